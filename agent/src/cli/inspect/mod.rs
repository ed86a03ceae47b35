//! `evictscope inspect`: the probe plan of one server or file.

mod cost;
mod json;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use evictscope_host::{Executable, root_of};
use evictscope_plan::{EVICTION_CALL, ProbePlan, TracedFunction};
use evictscope_probes::Probes;
use evictscope_telemetry::HitCosts;

use self::cost::{CostSource, Prediction};
use self::json::InspectReport;
use crate::planning::{DebugDirs, PlanRequest, Planned, Running};
use crate::terminal;

/// Show the probe plan of one server or executable: which probe would go where, how each value is
/// found, and what was not found and why
///
/// Exit code 0 when the eviction call and all that is read of it were found, 1 when not.
/// docs/TROUBLESHOOTING.md says how to read it. For a process of another user, it needs root, or CAP_SYS_PTRACE and
/// CAP_DAC_READ_SEARCH.
#[derive(clap::Args)]
pub struct Arguments {
    /// Process id of a running server, or path of an executable; for a file whose name is a number, ./NUMBER
    #[arg(value_name = "PID|PATH")]
    target: String,
    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
    /// Predict what the probes would cost at this many eviction calls a second: with maxmemory set,
    /// each command makes one. What a hit costs is measured on this program, which needs root
    #[arg(long, value_name = "CALLS/S", value_parser = parse_rate)]
    rate: Option<f64>,
    #[command(flatten)]
    debug_dirs: DebugDirs,
}

fn parse_rate(text: &str) -> Result<f64, &'static str> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or("not a number of calls a second: write 50000, for example")
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let debug_dirs = &arguments.debug_dirs.debug_dir;
    let (planned, shown, exe, root) = if let Ok(pid) = arguments.target.parse::<u32>() {
        let process = Running::find(pid)?;
        (process.plan(None, debug_dirs)?, process.path.clone(), process.path, root_of(pid))
    } else {
        let path = PathBuf::from(&arguments.target);
        // Its debug file is next to the file, not to a link to it.
        let exe = path.canonicalize().unwrap_or_else(|_| path.clone());
        let (executable, root) = (Executable::open(&path)?, PathBuf::from("/"));
        let planned = PlanRequest { executable: &executable, exe: &exe, root: &root, debug_dirs }.plan(None)?;
        planned.say_ignored();
        (planned, path, exe, root)
    };
    let Planned { plan, debug_file, nanoseconds, lacks_symbols, .. } = planned;
    let debug_file = debug_file.as_deref().map(Path::new);
    let took = Duration::from_nanos(nanoseconds);
    let missing = json::missing(&plan, lacks_symbols, &exe, &root);
    let cost = arguments.rate.map(|rate| predict(&plan, rate));
    let text = if arguments.json {
        let planning_seconds = took.as_secs_f64();
        let report = InspectReport { path: &shown, debug_file, planning_seconds, plan: &plan, lost: &missing, cost };
        serde_json::to_string_pretty(&report).context("cannot write the plan as JSON")? + "\n"
    } else {
        let cost = cost.map(|cost| cost.to_string()).unwrap_or_default();
        text::of(&shown, debug_file, &plan, &missing, took) + &cost
    };
    terminal::print(&text)?;
    let is_complete = plan.function(EVICTION_CALL.description).is_some_and(TracedFunction::has_all_quantities);
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Predicts the cost of a plan's probes, from the cost of a hit measured here if that is possible.
fn predict(plan: &ProbePlan, calls_per_second: f64) -> Prediction {
    let (costs, source) = match Probes::load_and_calibrate(None) {
        Ok((_, costs)) => (costs, CostSource::Measured),
        Err(_) => (HitCosts::DOCUMENTED, CostSource::Documented),
    };
    cost::predict(plan, costs, source, calls_per_second)
}
