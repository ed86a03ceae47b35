//! `evictscope selftest`.

use std::path::Path;

use anyhow::{Context as _, ensure};
use evictscope_testkit::{
    agent::evictscope,
    code::Code,
    owned::Owned,
    redis::Redis,
    wait::{until, until_true},
};
use rustix::process::Signal;

fn start() -> anyhow::Result<Owned> {
    Owned::start(evictscope().arg("selftest"))
}

/// Returns the process id of the throw-away server, once it answers.
fn server_of(selftest: &Owned) -> anyhow::Result<u32> {
    selftest.until("selftest names its server", || {
        let log = selftest.log()?;
        let line = log.lines().find(|line| line.starts_with("ok    server: "));
        let pid = line.and_then(|line| line.split_once(", pid ")?.1.split(',').next());
        Ok(pid.map(str::parse).transpose()?)
    })
}

/// Fails where the server or the files of a selftest are still there a moment after its end.
fn is_cleaned_up(selftest: &Owned, server: u32) -> anyhow::Result<()> {
    // The process of a child that was killed disappears when whoever inherits it takes note of that.
    let runs = || match std::fs::read_to_string(format!("/proc/{server}/stat")) {
        Ok(stat) => !stat.contains(") Z ") && stat.contains("redis"),
        Err(_) => false,
    };
    until_true("the server has ended", || Ok(!runs()))?;
    let name = format!("evictscope-selftest-{}", selftest.pid());
    let directory = std::env::temp_dir().join(name);
    ensure!(!Path::new(&directory).exists(), "{}", directory.display());
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_burst_is_seen_and_no_other_server_is_touched() -> anyhow::Result<()> {
    let other = Redis::own(&[])?;
    let before = other.info("total_connections_received")?;
    let selftest = start()?;
    let server = server_of(&selftest)?;
    until_true("the agent watches it", || {
        Ok(selftest.log()?.contains("ok    agent: "))
    })?;
    let changed = Code::of(other.pid())?.changed()?;
    ensure!(changed.is_empty(), "the other server has {changed:?}");
    until("the selftest ends", || Ok(selftest.must_be_alive().err()))?;
    // It has ended: this only tells how.
    let status = selftest.end(Signal::TERM)?;
    let log = selftest.log()?;
    ensure!(status.success(), "{status}: {log}");
    for line in ["calls", "phase", "stall", "evicted keys"] {
        ensure!(log.contains(&format!("ok    {line}: ")), "{line}: {log}");
    }
    is_cleaned_up(&selftest, server)?;
    // Those of this test: one for each question.
    let asked = other.info("total_connections_received")? - before;
    ensure!(asked <= 1.0, "{asked} connections to the other server");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn what_it_started_ends_with_it() -> anyhow::Result<()> {
    // In order, and without a chance to do anything.
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let selftest = start()?;
        let server = server_of(&selftest)?;
        let status = selftest.end(signal)?;
        ensure!(!status.success(), "{signal:?}: {status}");
        if signal == Signal::KILL {
            let name = format!("evictscope-selftest-{}", selftest.pid());
            std::fs::remove_dir_all(std::env::temp_dir().join(name)).context("its files")?;
        }
        is_cleaned_up(&selftest, server)?;
    }
    Ok(())
}
