//! `evictscope selftest`.

use std::path::PathBuf;

use crate::prelude::*;

fn start() -> anyhow::Result<Owned> {
    Owned::start(evictscope().arg("selftest"))
}

fn wait_for_server(selftest: &Owned) -> anyhow::Result<()> {
    selftest.until("selftest names its server", || Ok(selftest.log()?.contains("ok    server: ").then_some(())))
}

/// Waits until all that it started has ended, and returns where its files are or were.
fn ended(selftest: &Owned) -> anyhow::Result<PathBuf> {
    let name = format!("evictscope-selftest-{}", selftest.pid());
    until_true("what it started has ended", || {
        let mut all = procfs::process::all_processes()?.filter_map(Result::ok);
        // The server has a title of its own, but works in that directory.
        Ok(!all.any(|process| {
            let arguments = process.cmdline().unwrap_or_default().join(" ");
            format!("{arguments} {}", process.cwd().unwrap_or_default().display()).contains(&name)
        }))
    })?;
    Ok(std::env::temp_dir().join(name))
}

#[test]
#[ignore = "needs root and BPF"]
fn a_burst_is_seen_and_no_other_server_is_touched() -> anyhow::Result<()> {
    let other = Redis::private(&[])?;
    let before = other.info("total_connections_received")?;
    let selftest = start()?;
    wait_for_server(&selftest)?;
    until_true("the agent watches it", || Ok(selftest.log()?.contains("ok    agent: ")))?;
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
    ensure!(!ended(&selftest)?.exists(), "its files are left");
    // Only those of this test: one for each question.
    let asked = other.info("total_connections_received")? - before;
    ensure!(asked <= 1.0, "{asked} connections to the other server");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn what_it_started_ends_with_it() -> anyhow::Result<()> {
    // Cleanly, and without a chance to do anything.
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let selftest = start()?;
        wait_for_server(&selftest)?;
        let status = selftest.end(signal)?;
        ensure!(!status.success(), "{signal:?}: {status}");
        let files = ended(&selftest)?;
        match signal {
            Signal::KILL => std::fs::remove_dir_all(files).context("its files")?,
            _ => ensure!(!files.exists(), "{signal:?}: its files are left"),
        }
    }
    Ok(())
}
