//! `evictscope inspect`: the probe plan of one server or file.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::geteuid;
use serde::Serialize;

use super::cost::{self, Prediction, Source};
use crate::host::Executable;
use crate::probes::Probes;
use crate::telemetry::HitCosts;
use crate::watch::DebugFiles;
use evictscope_plan::{EVICTION_CALL, ProbePlan, Site, TracedFunction, variable_name};

/// Show the probe plan of one server or executable: what would be attached where, how each value
/// is found, and what could not be
///
/// Exit code 0 when all four goal variables are certain, 1 when not. docs/INSPECT.md describes the
/// JSON.
#[derive(clap::Args)]
pub struct Arguments {
    /// Process id of a running server, or path of an executable
    #[arg(value_name = "PID|PATH")]
    target: String,
    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
    /// Predict what the probes would cost at so many eviction calls a second: with maxmemory set,
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

/// What `--json` prints: the plan, and of what.
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
        let text = text(&shown, debug_file, &plan, took);
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

/// What the probes of a plan would cost: by what a hit costs here, where that can be measured.
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
    /// What to call it.
    shown: PathBuf,
    /// Its path below `root`.
    exe: PathBuf,
    /// The root directory that its debug files are looked for from.
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

/// A reader that has seen enough (`| head`) is no failure.
fn ignore_closed_pipe(printed: std::io::Result<()>) -> std::io::Result<()> {
    match printed {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

fn text(path: &Path, debug_file: Option<&Path>, plan: &ProbePlan, took: Duration) -> String {
    let identity = &plan.identity;
    let mut lines = vec![
        format!("executable  {}", path.display()),
        format!(
            "server      {} {}",
            identity.product.unwrap_or("unknown product"),
            identity.version.as_deref().unwrap_or("of unknown version")
        ),
        format!(
            "build id    {}",
            identity.build_id.as_deref().unwrap_or("none")
        ),
        format!("planned in  {:.1} ms", took.as_secs_f64() * 1e3),
    ];
    lines.extend(debug_file.map(|path| format!("debug file  {}", path.display())));
    for function in &plan.functions {
        probes(function, &mut lines);
        quantities(function, &mut lines);
    }
    if !plan.members.is_empty() {
        members(plan, &mut lines);
    }
    lines.extend([String::new(), "not found, and so not exported".to_owned()]);
    if plan.not_found.is_empty() {
        lines.push("  nothing".to_owned());
    }
    for missing in &plan.not_found {
        lines.push(format!("  {}: {}", missing.item, missing.reason));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// The probes of one function, and where they were found.
fn probes(function: &TracedFunction, lines: &mut Vec<String>) {
    let description = function.kind.description;
    lines.extend([
        String::new(),
        format!("{} at {:#x}", function.name, function.address),
        "  probe                  address  file offset  kernel        instruction".to_owned(),
    ]);
    let mut probe = |part: &str, site: Option<&Site>, note: &str| {
        let name = description.probe(part);
        lines.push(match site {
            Some(site) => {
                let kernel = match site.emulated {
                    true => "emulates",
                    false => "single-steps",
                };
                let (address, offset) = (site.address, site.file_offset);
                let instruction = &site.instruction;
                format!(
                    "  {name:<17} {address:#12x}  {offset:#11x}  {kernel:<12}  {instruction}{note}"
                )
            }
            None => format!("  {name:<17} not found"),
        });
    };
    probe("enter", function.entry.as_ref(), "");
    if let Some(part) = description.inner {
        probe(part, function.inner.as_ref().map(|inner| &inner.site), "");
    }
    for exit in &function.exits {
        let note = exit.result.as_ref().map_or_else(
            || "   (result not known)".to_owned(),
            |place| format!("   (result: {place})"),
        );
        probe(description.exit, Some(&exit.site), &note);
    }
    if function.exits.is_empty() {
        probe(description.exit, None, "");
    }
}

/// The quantities of one function, and how they are computed.
fn quantities(function: &TracedFunction, lines: &mut Vec<String>) {
    let description = function.kind.description;
    let Some(part) = description.inner else {
        return;
    };
    lines.push(format!(
        "  value          computed at {:<17}  found by",
        description.probe(part)
    ));
    for quantity in description.quantities {
        let name = variable_name(*quantity);
        lines.push(match function.quantity(*quantity) {
            Some(plan) => {
                let recipe = plan.recipe.to_string();
                format!("  {name:<13}  {recipe:<29}  {}", plan.method)
            }
            None => format!("  {name:<13}  not found"),
        });
    }
}

/// What is read of the server's memory.
fn members(plan: &ProbePlan, lines: &mut Vec<String>) {
    lines.extend([
        String::new(),
        "member of server                 address  offset  found by".to_owned(),
    ]);
    for member in &plan.members {
        let offset = member.offset.map(|offset| offset.to_string());
        lines.push(format!(
            "  {:<26} {:#11x}  {:>6}  {}",
            member.member.name(),
            member.address,
            offset.as_deref().unwrap_or("-"),
            member.method
        ));
    }
}
