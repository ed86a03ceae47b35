//! The wall clock is set while a server evicts, and an agent that may not read its servers says so.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use evictscope_model::answers::TimelineAnswer;
use evictscope_records::Occasion;
use evictscope_records::explain::explain;
use evictscope_testkit::agent::{Agent, NO_STATE, STATE_DIRECTORY, evictscope};
use evictscope_testkit::loopback::free_port;
use evictscope_testkit::process;
use evictscope_testkit::redis::{EVICTING_WITHOUT_PAUSE, PrivateBuild};
use evictscope_testkit::wait::until_true;

use crate::core::phases::{fill, is_in};
use crate::core::records::record_of;

/// What is preloaded.
const SHIM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/fixtures/shim.c");
const HOUR: f64 = 3_600.0;

/// Returns a command with a shim preloaded, which is made in `directory`.
fn shimmed(directory: &Path) -> anyhow::Result<Command> {
    let shim = directory.join("shim.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", SHIM, "-ldl", "-o"]).arg(&shim);
    process::answer_of(&mut compiler)?;
    let mut command = evictscope();
    command.env("LD_PRELOAD", shim);
    Ok(command)
}

#[test]
#[ignore = "needs root and BPF"]
fn a_burst_in_which_the_clock_is_set_is_told_like_any_other() -> anyhow::Result<()> {
    for step in [HOUR, -HOUR] {
        let build = PrivateBuild::of_redis()?;
        let redis = build.start(&[])?;
        fill(&redis)?;
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("step");
        let mut run = shimmed(directory.path())?;
        run.arg("run").arg(build.only()).env("SHIM_STEP", &file);
        let agent = Agent::start_command(run, free_port()?, &["--probe-mode=evicting-only"])?;
        agent.watches(&redis)?;
        let load = redis.load(EVICTING_WITHOUT_PAUSE)?;
        let stalled = |least: f64| -> anyhow::Result<bool> {
            Ok(agent.reading(&redis)?.sum("evictscope_stall_seconds_total", &[])? >= least)
        };
        until_true("clients are stalled", || stalled(1.0))?;
        std::fs::write(&file, format!("{step:.0}"))?;
        until_true("they still are", || stalled(2.0))?;
        drop(load);
        until_true("the burst is over", || is_in(&agent.settled_reading(&redis)?, "not_saturated"))?;
        // The live pages have one clock.
        let bursts = agent.bursts(&redis)?;
        let burst = bursts.first().context("no burst")?;
        let timeline = agent.get(&format!("/api/v1/timeline?server={}", redis.name()))?;
        let timeline: TimelineAnswer = serde_json::from_str(&timeline)?;
        let mut times = timeline.samples.iter().filter_map(|sample| sample.time);
        let (first, last) = times.next().zip(times.next_back()).context("no times")?;
        let (start, end) = burst.start.zip(burst.end).context("no time of the burst")?;
        ensure!(first <= start && end <= last, "{start} to {end}, in {first} to {last}");
        ensure!(last.seconds() - first.seconds() < HOUR, "{first} to {last}");
        // So has its record.
        let record = record_of(&agent, |summary| matches!(summary.occasion, Occasion::Burst | Occasion::Stall))?;
        let about = record.began_us..=record.ended_us;
        let inside = record.moments.iter().filter(|moment| about.contains(&moment.unix_us()));
        ensure!(inside.count() > 10, "few moments in {about:?}");
        ensure!(!explain(&record).what.contains("What happened is not known"), "{:?}", explain(&record));
    }
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn check_tries_what_run_does() -> anyhow::Result<()> {
    let build = PrivateBuild::of_redis()?;
    let redis = build.start(&[])?;
    let directory = tempfile::tempdir()?;
    let check = |mut command: Command| -> anyhow::Result<(bool, String)> {
        let output = command.args(["check", "--listen=127.0.0.1:0", &build.only()]).output()?;
        Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()))
    };
    let (well, printed) = check(evictscope())?;
    ensure!(well && printed.contains("everything can be seen"), "{printed}");
    // A number of the kernel's decides nothing.
    let mut old = Command::new("setarch");
    old.env(STATE_DIRECTORY, NO_STATE).args(["x86_64", "--uname-2.6"]).arg(evictscope().get_program());
    let (well, printed) = check(old)?;
    ensure!(well && printed.contains("kernel: 2.6."), "{printed}");
    // A server whose memory may not be read is not watched.
    let mut denied = shimmed(directory.path())?;
    denied.env("SHIM_NO_MEM", "1");
    let (well, printed) = check(denied)?;
    let mem = format!("will not be watched: may not read /proc/{}/mem", redis.pid());
    ensure!(!well && printed.contains(&mem), "{printed}");
    Ok(())
}
