//! Processes that hold locks which the agent or the kernel waits for, and agents that are paused: they hold up nobody
//! else.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command};
use std::time::Duration;

use evictscope_testkit::process;
use rustix::process::kill_process;

use super::hostile::planned_for;
use crate::prelude::*;
use crate::probed::keeper_of;
use crate::silent_files::SilentFiles;

/// Maps a file, and when told reads its own memory on another, whose file system does not answer: so it holds its own
/// lock (`access_remote_vm`, mm/memory.c). A second thread waits to change the mappings, which keeps others from
/// reading them.
const HOLDER: &str = include_str!("../fixtures/holder.c");

/// A process of another user that will hold its own lock.
struct Holder {
    process: Owned,
    stdin: ChildStdin,
    files: SilentFiles,
}

impl Holder {
    /// Starts one as `program`, which maps the file `mapped`.
    fn start(program: &Path, mapped: &Path) -> anyhow::Result<Self> {
        let source = program.with_extension("c");
        std::fs::write(&source, HOLDER)?;
        let mut compiler = Command::new("cc");
        compiler.args(["-w", "-O1", "-pthread", "-o"]).arg(program);
        process::answer_of(compiler.arg(&source))?;
        let files = SilentFiles::mount(vec![0; 4096])?;
        let mut command = Command::new(program);
        command.arg(mapped).arg(files.path());
        let (process, stdin, mut stdout) = Owned::start_with_pipes(&mut command)?;
        std::io::Read::read_exact(&mut stdout, &mut [0; 7]).context("it maps nothing")?;
        Ok(Self { process, stdin, files })
    }

    fn hold(&mut self) -> anyhow::Result<()> {
        self.files.silence(true);
        self.stdin.write_all(b"\n")?;
        until_true("it holds its lock", || Ok(self.files.waiting() > 0))
    }

    fn let_go(&self) {
        self.files.silence(false);
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It cannot end before.
        self.let_go();
    }
}

/// A child that has to fork, as the library starts others without.
struct Forks(Child);

impl Forks {
    /// Fails if a process cannot fork while the lock is held.
    fn must_work(holder: &Holder) -> anyhow::Result<()> {
        let mut forks = Self(Command::new("sh").args(["-c", "(:) ; (:)"]).spawn()?);
        let status = until("a process forks", || Ok(forks.0.try_wait()?));
        ensure!(holder.files.waiting() > 0, "the lock is free");
        ensure!(status?.success());
        Ok(())
    }
}

impl Drop for Forks {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

#[test]
#[ignore = "needs root, BPF and FUSE"]
fn who_maps_an_executable_and_holds_his_lock_stops_no_fork() -> anyhow::Result<()> {
    let build = PrivateBuild::of_redis()?;
    let first = build.start(&[])?;
    let place = tempfile::tempdir()?;
    let mut holder = Holder::start(&place.path().join("holder"), &build.path())?;
    let agent = Agent::watching(&first, &[&build.only(), "--probe-mode=evicting-only"])?;
    holder.hold()?;
    let second = build.start(&[])?;
    agent.watches(&second)?;
    let why = format!("no probe is placed in process {}: process {} ", second.pid(), holder.process.pid());
    until_true("the log says why", || Ok(agent.log()?.contains(&why)))?;
    Forks::must_work(&holder)?;
    let observed = || agent.reading(&second)?.sum("evictscope_observed_seconds_total", &[("kind", "evicting")]);
    ensure!(observed()? == 0.0, "no probe is placed, and calls are called observed");
    ensure!(agent.reading(&second)?.sum("evictscope_probe_mode", &[])? == 0.0, "it is said to be in a probe mode");
    holder.let_go();
    until_true("probes are placed", || Ok(observed()? > 0.0))?;

    // Nor does taking them off.
    holder.hold()?;
    agent.signal(Signal::TERM)?;
    until_true("it ends", || Ok(agent.log()?.contains("SIGTERM")))?;
    Forks::must_work(&holder)?;
    holder.let_go();
    agent.end_well()?;
    for redis in [&first, &second] {
        redis.must_be_alive()?;
    }
    Ok(())
}

#[test]
#[ignore = "needs root, BPF and FUSE"]
fn who_maps_the_agent_and_holds_his_lock_does_not_keep_it_from_watching() -> anyhow::Result<()> {
    let build = PrivateBuild::of_redis()?;
    let redis = build.start(&[])?;
    let place = tempfile::tempdir()?;
    let program = evictscope();
    let mut holder = Holder::start(&place.path().join("holder"), program.get_program().as_ref())?;
    holder.hold()?;
    let agent = Agent::watching(&redis, &[&build.only()])?;
    ensure!(holder.files.waiting() > 0, "the lock is free");
    ensure!(agent.log()?.contains("does not measure what a hit costs"));
    agent.settled_reading(&redis)?;
    agent.end_well()
}

#[test]
#[ignore = "needs root, BPF and FUSE"]
fn processes_that_cannot_be_read_hide_no_other_server() -> anyhow::Result<()> {
    let build = PrivateBuild::of_redis()?;
    let first = build.start(&[])?;
    let agent = Agent::watching(&first, &[&build.only()])?;
    let place = tempfile::tempdir()?;
    let other = place.path().join("other");
    // One has a server's name.
    let named = build.path().with_extension("held");
    let mut holders = [Holder::start(&other, &other)?, Holder::start(&named, &other)?];
    // A later pid than theirs.
    for holder in &mut holders {
        holder.hold()?;
    }
    let second = build.start(&[])?;
    agent.watches(&second)?;
    until_true("what has a server's name is unwatched", || {
        Ok(agent.scrape()?.sum("evictscope_servers_unwatched", &[])? == 1.0)
    })?;
    let why = format!("reading /proc/{}/cmdline does not end", holders[1].process.pid());
    ensure!(agent.log()?.contains(&why), "{}", agent.log()?);
    for holder in &holders {
        ensure!(holder.files.waiting() > 0, "its lock is free");
    }
    agent.get("/-/healthy")?;
    agent.end_well()
}

#[test]
#[ignore = "needs root and BPF"]
fn a_stopped_agent_goes_on_and_has_its_keeper_go_on() -> anyhow::Result<()> {
    let build = PrivateBuild::of_redis()?;
    let first = build.start(&[])?;
    let agent = Agent::watching(&first, &[&build.only()])?;
    agent.signal(Signal::STOP)?;
    // Longer than a loop may stand still.
    std::thread::sleep(Duration::from_secs(35));
    agent.signal(Signal::CONT)?;
    let (second, third): (Redis, Redis) = (build.start(&[])?, build.start(&[])?);
    agent.watches(&second)?;
    agent.get("/-/healthy")?;

    let keeper = keeper_of(agent.pid())?;
    kill_process(keeper, Signal::STOP)?;
    let fourth = build.start(&[])?;
    agent.watches(&fourth)?;
    kill_process(keeper, Signal::STOP)?;
    agent.end_well()?;
    third.must_be_alive()
}

#[test]
#[ignore = "needs root and BPF"]
fn a_server_that_is_started_anew_is_not_planned_for_again() -> anyhow::Result<()> {
    let build = PrivateBuild::of_redis()?;
    let agent = Agent::start(&[&build.only()])?;
    let run = || {
        let redis = build.start(&[])?;
        agent.watches(&redis)?;
        let pid = redis.pid();
        redis.kill()?;
        until_true("it is gone", || Ok(agent.scrape()?.server_info(pid).is_none()))?;
        planned_for(&agent)
    };
    let first = run()?;
    ensure!(first > Duration::ZERO, "planning took no time");
    let second = run()?;
    ensure!(second == first, "{first:?}, then {second:?}");
    Ok(())
}
