//! Executables and file systems that were made to do harm: each hides its own servers, and no others.

use std::process::Command;

use evictscope_testkit::loopback::free_port;
use evictscope_testkit::redis;
use evictscope_testkit::service;
use rustix::process::{Pid, kill_process};

use crate::prelude::*;
use crate::silent_files::SilentFiles;

/// Waits until this many servers are not watched for this reason.
fn unwatched(agent: &Agent, reason: &str, servers: f64) -> anyhow::Result<()> {
    until_true(&format!("{servers} servers are unwatched: {reason}"), || {
        let labels = [("reason", reason)];
        Ok(agent.scrape()?.sum("evictscope_servers_unwatched", &labels)? == servers)
    })
}

pub fn planners(agent: &Agent) -> anyhow::Result<Vec<i32>> {
    let parent = i32::try_from(agent.pid())?;
    let stats = procfs::process::all_processes()?.filter_map(Result::ok).filter_map(|process| process.stat().ok());
    Ok(stats.filter(|stat| stat.ppid == parent && stat.comm == "evictscope-plan").map(|stat| stat.pid).collect())
}

fn asleep(program: impl AsRef<std::ffi::OsStr>) -> anyhow::Result<Owned> {
    Owned::start(Command::new(program).arg("600"))
}

#[test]
#[ignore = "needs root, BPF and FUSE"]
fn a_file_system_that_does_not_answer_hides_its_own_servers_alone() -> anyhow::Result<()> {
    let files = SilentFiles::mount(std::fs::read("/usr/bin/sleep")?)?;
    let hidden = asleep(files.path_in_overlay())?;
    files.silence(true);
    let first = Redis::private(&[])?;
    for signal in [Signal::TERM, Signal::KILL] {
        let agent = Agent::start(&["--probe-mode", "evicting-only"])?;
        until_true("a planner waits", || Ok(!planners(&agent)?.is_empty() && files.waiting() > 0))?;
        agent.watches(&first)?;
        if signal == Signal::TERM {
            unwatched(&agent, "resources", 1.0)?;
            ensure!(agent.log()?.contains("does not answer"), "{}", agent.log()?);
            // A server of another build is looked at beside the planner that cannot be killed.
            let mut other = std::fs::read(redis::executable()?)?;
            other.push(0);
            let copy = tempfile::NamedTempFile::new()?;
            std::fs::write(copy.path(), other)?;
            agent.watches(&Redis::private_of(copy.path(), &[])?)?;
        }
        let status = agent.end(signal)?;
        ensure!(status.success() == (signal == Signal::TERM), "{status}");
        until_true("no breakpoint is left", || Ok(Code::of(first.pid())?.changed()?.is_empty()))?;
    }
    hidden.must_be_alive()
}

/// A probe would make the kernel read the page, and let no process fork until it has.
#[test]
#[ignore = "needs root, BPF and FUSE"]
fn no_probe_is_placed_in_a_file_system_in_user_space() -> anyhow::Result<()> {
    let files = SilentFiles::mount(std::fs::read(redis::executable()?)?)?;
    let server = Redis::start_program(Command::new(files.path()), &[])?;
    let agent = Agent::start(&[])?;
    agent.watches(&Redis::private(&[])?)?;
    unwatched(&agent, "executable", 1.0)?;
    ensure!(agent.log()?.contains("in user space"), "{}", agent.log()?);
    ensure!(Code::of(server.pid())?.changed()?.is_empty());
    let mut trace = evictscope();
    trace.args(["trace", &server.pid().to_string(), "processCommand"]);
    let refused = trace.output()?;
    let printed = String::from_utf8_lossy(&refused.stderr);
    ensure!(!refused.status.success() && printed.contains("in user space"), "{printed}");
    server.must_be_alive()
}

#[test]
#[ignore = "needs root, BPF and FUSE"]
fn a_planner_that_is_killed_is_started_again() -> anyhow::Result<()> {
    let files = SilentFiles::mount(std::fs::read("/usr/bin/sleep")?)?;
    let _hidden = asleep(files.path_in_overlay())?;
    files.silence(true);
    let agent = Agent::start(&[])?;
    until_true("a planner waits", || Ok(!planners(&agent)?.is_empty() && files.waiting() > 0))?;
    for planner in planners(&agent)? {
        kill_process(Pid::from_raw(planner).context("no process")?, Signal::KILL)?;
    }
    files.silence(false);
    until_true("it is said", || Ok(agent.log()?.contains("signal: 9")))?;
    // Only its name makes it a server.
    unwatched(&agent, "executable", 1.0)?;
    agent.watches(&Redis::private(&[])?)
}

#[test]
#[ignore = "needs root and BPF"]
fn more_servers_than_threads_are_unwatched_until_there_are_some() -> anyhow::Result<()> {
    const SLEEPING: usize = 40;
    let build = PrivateBuild::of("/usr/bin/sleep".as_ref())?;
    let sleeping = (0..SLEEPING).map(|_| asleep(build.path())).collect::<anyhow::Result<Vec<Owned>>>()?;
    // The user's processes are limited, as the unit limits those of its control group.
    let mut limited = service::command("prlimit".as_ref());
    limited.args(["--nproc=24"]).arg(evictscope().get_program());
    limited.arg("run").arg(redis::match_private());
    let agent = Agent::start_command(limited, free_port()?, &[])?;
    until_true("a thread cannot be started", || Ok(agent.log()?.contains("cannot start a thread")))?;
    unwatched(&agent, "executable", SLEEPING as f64)?;
    agent.watches(&Redis::private(&[])?)?;
    drop(sleeping);
    unwatched(&agent, "executable", 0.0)
}
