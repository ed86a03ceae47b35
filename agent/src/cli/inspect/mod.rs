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
use rustix::process::geteuid;

use self::cost::{CostSource, Prediction};
use self::json::InspectReport;
use crate::planning::{DebugDirs, PlanRequest, Planned};
use crate::terminal;

/// Show the probe plan of one server or executable: which probe would go where, how each value is
/// found, and what was not found and why
///
/// Exit code 0 when the eviction call and all that is read of it were found, 1 when not.
/// docs/TROUBLESHOOTING.md says how to read it.
#[derive(clap::Args)]
pub struct Arguments {
    /// Process id of a running server, or path of an executable
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

/// Plans for the target and prints the plan.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Target { path, shown, exe, root } = locate(&arguments.target)?;
    let debug_dirs = &arguments.debug_dirs.debug_dir;
    let planned =
        PlanRequest { executable: &Executable::open(&path)?, exe: &exe, root: &root, debug_dirs }.plan(None)?;
    planned.say_ignored();
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

/// An executable to look at.
struct Target {
    path: PathBuf,
    /// Its name for people.
    shown: PathBuf,
    /// Its path below `root`.
    exe: PathBuf,
    /// The root directory of its debug files.
    root: PathBuf,
}

fn locate(target: &str) -> anyhow::Result<Target> {
    let Ok(pid) = target.parse::<u32>() else {
        let path = PathBuf::from(target);
        return Ok(Target {
            // Its debug file is next to the file, not to a link to it.
            exe: path.canonicalize().unwrap_or_else(|_| path.clone()),
            shown: path.clone(),
            path,
            root: PathBuf::from("/"),
        });
    };
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    let shown = std::fs::read_link(&link).with_context(|| match Path::new(&format!("/proc/{pid}")).exists() {
        true if geteuid().is_root() => format!(
            "cannot look at the executable of process {pid}, not even as root: it is a kernel \
                 thread, or the system protects it"
        ),
        true => format!("cannot look at the executable of process {pid}: run as root"),
        false => format!("there is no process {pid}; for a file of that name say ./{pid}"),
    })?;
    Ok(Target { path: link, exe: shown.clone(), shown, root: root_of(pid) })
}
