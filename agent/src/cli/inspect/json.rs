//! What `inspect --json` prints: json.md says it to users. `agent/tests/command_line.rs` compares its table with what
//! is printed.
#![doc = include_str!("json.md")]

use std::fmt;
use std::path::Path;

use evictscope_host::package_of;
use evictscope_model::{Lost, Member};
use evictscope_plan::{Item, NotFound, ProbePlan, Reason};
use serde::Serialize;

use super::cost::Prediction;

#[derive(Serialize)]
pub struct InspectReport<'a> {
    pub path: &'a Path,
    pub debug_file: Option<&'a Path>,
    pub planning_seconds: f64,
    #[serde(flatten)]
    pub plan: &'a ProbePlan,
    pub lost: &'a [Missing<'a>],
    pub cost: Option<Prediction>,
}

/// An item that was not found: what is lost, and what would help.
#[derive(Serialize)]
pub struct Missing<'a> {
    item: Item,
    why: &'a Reason,
    #[serde(flatten)]
    lost: Lost,
    would_help: String,
}

/// Returns what was not found in the executable that is called `exe` below `root`. `lacks_symbols` says whether it has
/// no debug information, and no separate file with it was found.
pub fn missing<'a>(plan: &'a ProbePlan, lacks_symbols: bool, exe: &Path, root: &Path) -> Vec<Missing<'a>> {
    let by_symbols = |item: Item| match item {
        Item::Member(member) => member != Member::EvictionPool,
        _ => matches!(item, Item::Function(_)),
    };
    let is_asked = lacks_symbols && plan.not_found.iter().any(|missing| by_symbols(missing.item));
    let package = is_asked.then(|| package_of(exe, root)).flatten();
    let describe = |NotFound { item, reason }: &'a NotFound| Missing {
        item: *item,
        why: reason,
        lost: item.lost(),
        would_help: match reason {
            Reason::Unsupported(_) => "only another server".to_owned(),
            Reason::Budget => "nothing".to_owned(),
            Reason::Packed => "unpacking the server with `upx -d`, and restarting it".to_owned(),
            _ if by_symbols(*item) && lacks_symbols => match &package {
                Some(package) => format!("debug symbols: package {package}-dbgsym"),
                None => "debug symbols, from where the executable came from".to_owned(),
            },
            _ => "a newer evictscope; please report it with `evictscope inspect --json`".to_owned(),
        },
    };
    plan.not_found.iter().map(describe).collect()
}

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lost { metrics, alerts } = &self.lost;
        writeln!(f, "  {}: {}", self.item, self.why)?;
        let mut list =
            |what: &str, names: String| if names.is_empty() { Ok(()) } else { writeln!(f, "    {what} {names}") };
        let below = "\n                   ";
        list("lost metrics  ", metrics.join(below))?;
        list("lost alerts   ", alerts.join(below))?;
        writeln!(f, "    would help     {}", self.would_help)
    }
}
