//! `evictscope inspect`: the probe plan of one server or file.

mod text;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use rustix::process::geteuid;
use serde::Serialize;

use super::cost::{self, Prediction, Source};
use crate::host::Executable;
use crate::probes::Probes;
use crate::telemetry::HitCosts;
use crate::watch::DebugFiles;
use evictscope_plan::{EVICTION_CALL, ProbePlan, TracedFunction};

/// Show the probe plan of one server or executable: which probe would go where, how each value is
/// found, and what was not found and why
///
/// Exit code 0 when the eviction call and all that is read of it were found, 1 when not.
/// docs/INSPECT.md describes the JSON.
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
    debug_files: DebugFiles,
}

fn parse_rate(text: &str) -> Result<f64, &'static str> {
    let rate = text.parse().ok();
    rate.filter(|rate: &f64| rate.is_finite() && *rate > 0.0)
        .ok_or("not a number of calls a second: write 50000, for example")
}

/// What `--json` prints: the plan, and which file it is for.
#[derive(Serialize)]
struct Report<'a> {
    path: &'a Path,
    debug_file: Option<&'a Path>,
    planning_seconds: f64,
    #[serde(flatten)]
    plan: &'a ProbePlan,
    cost: Option<Prediction>,
}

/// Plans and prints.
///
/// # Errors
///
/// Where there is no such process or file, or it is no executable.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Target {
        path,
        shown,
        exe,
        root,
    } = locate(&arguments.target)?;
    let data = Executable::open(&path)?.read()?;
    let debug = arguments.debug_files.find(&data, &exe, &root)?;
    for ignored in &debug.ignored {
        eprintln!("debug file ignored: {ignored}");
    }
    let debug_file = debug.found.as_ref().map(|file| file.path.as_path());
    let begun = Instant::now();
    let plan = evictscope_plan::plan(&data, debug.data())
        .with_context(|| format!("cannot plan for {}", shown.display()))?;
    let took = begun.elapsed();
    let cost = arguments.rate.map(|rate| predict(&plan, rate));
    let mut out = std::io::stdout().lock();
    let printed = if arguments.json {
        let report = Report {
            path: &shown,
            debug_file,
            planning_seconds: took.as_secs_f64(),
            plan: &plan,
            cost,
        };
        let text =
            serde_json::to_string_pretty(&report).context("cannot write the plan as JSON")?;
        writeln!(out, "{text}")
    } else {
        let cost = cost.as_ref().map(ToString::to_string);
        let text = text::of(&shown, debug_file, &plan, took);
        write!(out, "{text}{}", cost.unwrap_or_default())
    };
    ignore_closed_pipe(printed)?;
    let function = plan.function(EVICTION_CALL.description);
    Ok(
        match function.is_some_and(TracedFunction::has_all_quantities) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        },
    )
}

/// Predicts what the probes of a plan would cost, by what a hit costs here where that can be measured.
fn predict(plan: &ProbePlan, calls_per_second: f64) -> Prediction {
    let (costs, source) = match Probes::load_and_calibrate() {
        Ok((_, costs)) => (costs, Source::Measured),
        Err(_) => (HitCosts::DOCUMENTED, Source::Documented),
    };
    cost::predict(plan, costs, source, calls_per_second)
}

/// An executable to look at.
struct Target {
    /// What to open.
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
            // Its debug file lies by the file, not by a link to it.
            exe: path.canonicalize().unwrap_or_else(|_| path.clone()),
            shown: path.clone(),
            path,
            root: PathBuf::from("/"),
        });
    };
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    let shown = std::fs::read_link(&link).with_context(|| {
        match Path::new(&format!("/proc/{pid}")).exists() {
            true if geteuid().is_root() => format!(
                "cannot look at the executable of process {pid}, not even as root: it is a kernel \
                 thread, or the system protects it"
            ),
            true => format!("cannot look at the executable of process {pid}: run as root"),
            false => format!("there is no process {pid}; for a file of that name say ./{pid}"),
        }
    })?;
    Ok(Target {
        path: link,
        exe: shown.clone(),
        shown,
        root: PathBuf::from(format!("/proc/{pid}/root")),
    })
}

/// Takes a reader that has seen enough (`| head`) for no failure.
fn ignore_closed_pipe(printed: std::io::Result<()>) -> std::io::Result<()> {
    match printed {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
