//! What the agent plans for an executable, and what that takes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::process;
use serde_json::Value;
use tempfile::NamedTempFile;

/// How often each is planned: the time is the median.
const ROUNDS: usize = 5;

/// A plan, as `inspect --json` prints it.
pub struct Plan {
    pub json: Value,
    /// How long planning took.
    pub milliseconds: f64,
    /// The most memory that the planning process had, in MiB.
    pub peak: f64,
}

impl Plan {
    /// Plans the probes of an executable, in processes of their own.
    pub fn of(program: &Path, agent: &Path) -> Result<Self> {
        let mut times = Vec::new();
        let (mut json, mut peak) = (Value::Null, 0.0_f64);
        for _ in 0..ROUNDS {
            let memory;
            (json, memory) = inspect(program, agent)?;
            let seconds = json["planning_seconds"].as_f64();
            times.push(seconds.context("the plan does not say how long it took")? * 1e3);
            peak = peak.max(memory);
        }
        times.sort_by(f64::total_cmp);
        Ok(Self {
            json,
            milliseconds: times[ROUNDS / 2],
            peak,
        })
    }

    /// Returns what was not found, each item with the reason.
    pub fn not_found(&self) -> Vec<(&str, &str)> {
        let items = self.json["not_found"].as_array().into_iter().flatten();
        items
            .map(|item| {
                let word = |key: &str| item[key].as_str().unwrap_or("?");
                (word("item"), word("why"))
            })
            .collect()
    }

    /// Returns `complete`, or the items that were not found.
    pub fn verdict(&self) -> String {
        let items: Vec<_> = self.not_found().iter().map(|(item, _)| *item).collect();
        match items.is_empty() {
            true => "complete".to_owned(),
            false => format!("without {}", items.join(", ")),
        }
    }

    /// Returns the methods by which the goal variables and the members were found.
    pub fn methods(&self) -> BTreeSet<&str> {
        let call = self.eviction_call();
        let quantities = call.and_then(|call| call["inner"]["quantities"].as_array());
        let members = self.json["members"].as_array();
        let all = quantities.into_iter().chain(members).flatten();
        all.filter_map(|item| item["method"].as_str()).collect()
    }

    /// Returns product and version of the server, if both are known.
    pub fn server(&self) -> Option<String> {
        let text = |key: &str| self.json[key].as_str();
        Some(format!("{} {}", text("product")?, text("version")?))
    }

    /// Returns whether nothing was found.
    pub fn is_empty(&self) -> bool {
        let is_empty = |key: &str| self.json[key].as_array().is_none_or(Vec::is_empty);
        is_empty("functions") && is_empty("members")
    }

    /// Returns the eviction call, if it was found.
    pub fn eviction_call(&self) -> Option<&Value> {
        let mut functions = self.json["functions"].as_array()?.iter();
        functions.find(|function| function["kind"] == "eviction_call")
    }

    /// Returns how many done sites of the eviction call end only the calls that leave a jump one way.
    pub fn ways(&self) -> usize {
        let elsewhere = self.exits().filter(|(_, is_at_goal)| !is_at_goal);
        elsewhere.filter(|(exit, _)| !exit["way"].is_null()).count()
    }

    /// Returns whether the goal probe ends some calls.
    pub fn ends_at_goal(&self) -> bool {
        self.exits().any(|(_, is_at_goal)| is_at_goal)
    }

    /// Returns the exits of the eviction call, and whether each is at the goal site.
    fn exits(&self) -> impl Iterator<Item = (&Value, bool)> {
        let call = self.eviction_call();
        let exits = call.and_then(|call| Some((&call["inner"], call["exits"].as_array()?)));
        exits.into_iter().flat_map(|(goal, exits)| {
            let exits = exits.iter();
            exits.map(|exit| (exit, exit["address"] == goal["address"]))
        })
    }
}

/// Runs `inspect` and returns what it prints, and its peak memory in MiB.
fn inspect(program: &Path, agent: &Path) -> Result<(Value, f64)> {
    // The kernel also counts the peak of the process that started this one, so that should be a small process.
    let peak = NamedTempFile::new().context("cannot make a file")?;
    let mut command = Command::new("time");
    command
        .args(["--quiet", "--format=%M", "--output"])
        .args([peak.path(), agent])
        .args(["inspect", "--json"])
        .arg(program);
    let output = command.output().context("cannot start `time`")?;
    // It is 1 if something was not found.
    ensure!(
        matches!(output.status.code(), Some(0 | 1)),
        "`{}` failed ({}): {}",
        process::display(&command),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let json = serde_json::from_slice(&output.stdout);
    let json = json.with_context(|| format!("`{}` printed no JSON", process::display(&command)))?;
    let kibibytes: f64 = fs::read_to_string(&peak)?.trim().parse()?;
    Ok((json, kibibytes / 1024.0))
}
