//! `evictscope profile`: shows where the main thread of a process spends its CPU time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use evictscope_host::ProcessHandle;
use evictscope_probes::Sampler;
use evictscope_records::profile::format::{flame_graph, folded, pprof};
use evictscope_records::profile::{Activity, Profile};

use crate::clock::since_1970;
use crate::planning::{DebugDirs, Running};
use crate::profile::{ProfiledProcess, Profiler, Profiling};
use crate::terminal::{self, EndSignals, note};

/// Show where the main thread of a server spends its CPU time, in and out of evictions
///
/// Samples the thread's stack 49 times in each second of its CPU time, and so never while it rests. Works without frame
/// pointers and on stripped servers. Of the stack, only the names of functions are kept. It needs no running agent, and
/// disturbs none. Works on other processes too.
///
/// On stderr it says how many samples there were, how many of the stacks are whole, and what ran.
///
/// Needs root, or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; if kernel.perf_event_paranoid is above
/// 2, as on Debian, CAP_SYS_ADMIN as well. docs/TOUR.md explains the output.
#[derive(clap::Args)]
pub struct Arguments {
    /// Process id of a running server
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pid: u32,
    /// For how long to look, in seconds
    #[arg(long, default_value = "30", value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// Samples in each second of CPU time
    #[arg(long, default_value_t = 49, value_parser = clap::value_parser!(u32).range(1..=999))]
    hz: u32,
    /// What to write: a flame graph to open in a browser, folded stacks for other tools, or a file for `go tool pprof`
    #[arg(long, value_enum, default_value_t = Format::Svg)]
    format: Format,
    /// Write to FILE; `-` is the standard output [default: profile-PID.svg or profile-PID.pb.gz; folded stacks to the
    /// standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    debug_dirs: DebugDirs,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Svg,
    Folded,
    Pprof,
}

/// Profiles until the time is over, the process ends, or a signal comes.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let ending = EndSignals::listen()?;
    let (handle, subject) = subject(arguments)?;
    let profiler =
        Profiler::start(Sampler::load(), arguments.debug_dirs.debug_dir.clone()).map_err(|why| anyhow!(why.0))?;
    let path = subject.path.clone();
    let mut profiling = profiler.begin_of(subject, arguments.hz).map_err(|why| anyhow!(why.0))?;
    note(&format!(
        "sampling the main thread of process {} ({}) for {} s",
        arguments.pid,
        path.display(),
        arguments.seconds
    ));
    let deadline = Instant::now() + Duration::from_secs(arguments.seconds.into());
    while Instant::now() < deadline && !handle.has_ended() {
        if ending.wait_until(deadline.min(Instant::now() + Duration::from_millis(200))) {
            break;
        }
    }
    let profile = end(&mut profiling)?;
    note(&summary(&profile));
    ensure!(profile.samples() != 0, "{}", why_no_samples(&profiling, &profile));
    write(arguments, &profile)?;
    Ok(ExitCode::SUCCESS)
}

fn subject(arguments: &Arguments) -> anyhow::Result<(ProcessHandle, ProfiledProcess)> {
    let process = Running::find(arguments.pid)?;
    let plan = process.plan(None, &arguments.debug_dirs.debug_dir)?.plan;
    if plan.function(evictscope_plan::EVICTION_CALL.description).is_none() {
        note("no eviction function was found in it: evictions are not shown separately");
    }
    let Running { path, command, .. } = process;
    Ok((process.handle, ProfiledProcess { pid: arguments.pid, executable: Arc::new(process.exe), path, command }))
}

/// Ends it, and waits for its samples.
fn end(profiling: &mut Profiling) -> anyhow::Result<Profile> {
    const PATIENCE: Duration = Duration::from_secs(30);
    profiling.stop();
    let begun = Instant::now();
    loop {
        if let Some(profile) = profiling.taken() {
            return Ok(profile.dated(since_1970()));
        }
        ensure!(begun.elapsed() <= PATIENCE, "the samples were not unwound in time; please report this");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn why_no_samples(profiling: &Profiling, profile: &Profile) -> String {
    if profiling.is_of_other_namespace() {
        return evictscope_probes::ProbeError::OtherPidNamespace.to_string();
    }
    if profile.lost > 0 {
        return "all samples were lost: the machine has no time left for reading them".to_owned();
    }
    "the thread used no CPU time meanwhile: a profile shows only where it works, so try again under load, or with --seconds 300".to_owned()
}

fn summary(profile: &Profile) -> String {
    let samples = profile.samples();
    let of = |activity| {
        let stacks = profile.stacks.iter().filter(|stack| stack.activity == activity);
        stacks.map(|stack| stack.samples).sum::<u64>() as f64 / samples.max(1) as f64 * 100.0
    };
    let seconds = profile.length_us as f64 / 1e6;
    let busy = samples as f64 / f64::from(profile.hz.max(1)) / seconds.max(1e-6);
    let whole = profile.whole_share().unwrap_or(0.0) * 100.0;
    let spent = profile.spent_ns as f64 / 1e9 / seconds.max(1e-6) * 100.0;
    format!(
        "{samples} samples in {seconds:.1} s (the thread ran for {:.0} % of the time), {} lost; {whole:.1} % of the stacks are whole; in evictions {:.1} %, in expire cycles {:.1} %, in neither {:.1} %; this cost the thread {spent:.2} % of its time",
        busy * 100.0,
        profile.lost,
        of(Activity::EvictionCall),
        of(Activity::ExpireCycle),
        of(Activity::Other),
    )
}

fn write(arguments: &Arguments, profile: &Profile) -> anyhow::Result<()> {
    let pid = arguments.pid;
    let (bytes, default) = match arguments.format {
        Format::Svg => {
            let title = format!("Main thread of process {pid}");
            let drawn = flame_graph(profile, Some(&title)).context("cannot draw the flame graph")?;
            (drawn.unwrap_or_default().into_bytes(), format!("profile-{pid}.svg"))
        }
        Format::Folded => (folded(profile).into_bytes(), "-".to_owned()),
        Format::Pprof => (pprof(profile)?, format!("profile-{pid}.pb.gz")),
    };
    let path = arguments.output.clone().unwrap_or_else(|| default.into());
    if path == Path::new("-") {
        return Ok(terminal::document(&bytes)?);
    }
    fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    note(&format!("written to {}", path.display()));
    Ok(())
}
