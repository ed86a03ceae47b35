//! The agent with the user and the capabilities of `packaging/evictscope.service`, watching
//! servers of other users, and what it tells the service manager.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use evictscope_testkit::loopback::free_port;
use evictscope_testkit::service;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use procfs::process::Process;
use tempfile::TempDir;

use crate::prelude::*;
use crate::probed::keeper_of;

const WATCHDOG: Duration = Duration::from_secs(2);
/// How long the agent at first waits for the servers that it has found.
const READY_PATIENCE: Duration = Duration::from_secs(5);
/// Limits the exposure that `systemd-analyze security` may find, in tenths.
const MOST_EXPOSURE: &str = "--threshold=20";

/// A thread of another process that is stopped while the others of that run. It goes on when this is dropped.
struct StoppedThread(Pid);

impl StoppedThread {
    fn new(tid: u32) -> anyhow::Result<Self> {
        let thread = Pid::from_raw(tid.try_into()?);
        ptrace::seize(thread, ptrace::Options::empty()).context("cannot trace a thread")?;
        let stopped = Self(thread);
        ptrace::interrupt(thread)?;
        waitpid(thread, Some(WaitPidFlag::__WALL))?;
        Ok(stopped)
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        // If it has ended, nothing is left to do.
        let _ = ptrace::detach(self.0, None);
    }
}

/// The service manager, to which the agent reports.
struct Manager {
    socket: UnixDatagram,
    directory: TempDir,
}

impl Manager {
    fn new() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path)?;
        for path in [directory.path(), &path] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))?;
        }
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        Ok(Self { socket, directory })
    }

    /// Returns the lines that the agent reports within `time`.
    fn hear(&self, time: Duration) -> Vec<String> {
        let (begun, mut heard) = (Instant::now(), Vec::new());
        let mut buffer = [0; 4096];
        while begun.elapsed() < time {
            if let Ok(length) = self.socket.recv(&mut buffer) {
                heard.extend(String::from_utf8_lossy(&buffer[..length]).lines().map(str::to_owned));
            }
        }
        heard
    }

    fn wait_for(&self, state: &str) -> anyhow::Result<()> {
        until_true(state, || Ok(self.hear(Duration::from_millis(50)).iter().any(|line| line == state)))
    }
}

/// Starts an agent with the unit's privileges. Returns it, and the manager that it reports to.
fn service() -> anyhow::Result<(Agent, Manager)> {
    let manager = Manager::new()?;
    let mut run = service::command(evictscope().get_program());
    run.arg("run")
        .env("NOTIFY_SOCKET", manager.directory.path().join("notify"))
        .env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
    let agent = Agent::start_command(run, free_port()?, &[])?;
    manager.wait_for("READY=1")?;
    Ok((agent, manager))
}

/// Starts a server of a user other than root and the agent's.
fn server_of(uid: u32) -> anyhow::Result<Redis> {
    let mut program = Command::new("redis-server");
    program.uid(uid).gid(uid);
    Redis::start_program(program, &["--dir", "/"])
}

#[test]
#[ignore = "needs root and BPF"]
fn it_watches_servers_of_other_users_with_the_privileges_of_the_unit() -> anyhow::Result<()> {
    let before = server_of(64_001)?;
    let begun = Instant::now();
    let (agent, _manager) = service()?;
    let is_seen = agent.scrape()?.server_info(before.pid()).is_some();
    ensure!(is_seen || begun.elapsed() > READY_PATIENCE, "ready without its server");
    agent.watches(&before)?;
    let later = server_of(64_002)?;
    agent.watches(&later)?;
    for redis in [&before, &later] {
        redis.write_keys(200_000)?;
        let evicted = redis.info("evicted_keys")?;
        ensure!(evicted > 1_000.0, "{evicted} keys evicted");
        until_true("all evictions are counted", || {
            let scrape = agent.reading(redis)?;
            let counted = scrape.sum("evictscope_evicted_keys_total", &[])?;
            let calls = scrape.sum("evictscope_mem_tofree_bytes_count", &[])?;
            Ok(counted == evicted && calls > 0.0)
        })?;
    }

    service::must_have_these_privileges(agent.pid(), service::NOBODY, service::NOBODY)?;
    let keeper = Process::new(keeper_of(agent.pid())?.as_raw_nonzero().get())?.status()?;
    let held = [keeper.capprm, keeper.capeff, keeper.capinh];
    // CAP_PERFMON and CAP_BPF, neither of which it can pass on.
    let is_bound = keeper.capamb == Some(0) && keeper.nonewprivs == Some(1);
    ensure!(held == [3 << 38, 3 << 38, 0] && is_bound, "{held:x?}");
    agent.thread("watcher")?;
    // At most a quarter of MemoryMax, in kilobytes.
    let peak = Process::new(agent.pid().try_into()?)?.status()?.vmhwm;
    ensure!(peak.is_some_and(|peak| peak < 256 << 10), "{peak:?}");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn the_manager_hears_of_its_start_its_life_and_its_end() -> anyhow::Result<()> {
    let _server = server_of(64_001)?;
    let (agent, manager) = service()?;
    let signs = |time| manager.hear(time).iter().filter(|line| *line == "WATCHDOG=1").count();
    for _ in 0..5 {
        manager.wait_for("WATCHDOG=1")?;
    }

    // The watcher alone is stopped. HTTP still answers, but no server is watched.
    let watcher = StoppedThread::new(agent.thread("watcher")?)?;
    until_true("the agent says that it hangs", || Ok(agent.get("/-/healthy").is_err()))?;
    // Earlier ones may still be unread.
    signs(WATCHDOG / 2);
    let hung = signs(2 * WATCHDOG);
    agent.get("/metrics")?;
    drop(watcher);
    ensure!(hung == 0, "{hung} signs of life though the watcher hangs");
    manager.wait_for("WATCHDOG=1")?;
    agent.get("/-/healthy")?;

    agent.end_well()?;
    manager.wait_for("STOPPING=1")
}

/// The manager of a container, or a hung one, may read nothing; a process that tells it more then waits.
#[test]
#[ignore = "needs root and BPF"]
fn a_manager_that_does_not_listen_holds_up_nothing() -> anyhow::Result<()> {
    let (agent, manager) = service()?;
    let crowd = UnixDatagram::unbound()?;
    crowd.set_nonblocking(true)?;
    let path = manager.directory.path().join("notify");
    while crowd.send_to(b"STATUS=full", &path).is_ok() {}
    let process = Process::new(agent.pid().try_into()?)?;
    until_true("a sign of life waits", || {
        let mut waits = process.tasks()?.filter_map(Result::ok).filter_map(|thread| {
            std::fs::read_to_string(format!("/proc/{}/task/{}/wchan", process.pid, thread.tid)).ok()
        });
        Ok(waits.any(|place| place.contains("unix_wait")))
    })?;
    agent.get("/metrics")?;
    agent.end_well()
}

#[test]
#[ignore = "needs systemd's programs"]
fn systemd_finds_no_fault_with_the_unit_and_little_exposure() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let copy = directory.path().join("evictscope.service");
    // Neither the program nor the manual is installed where the unit says.
    let text = include_str!("../../../../packaging/evictscope.service");
    let program = evictscope().get_program().to_string_lossy().into_owned();
    std::fs::write(&copy, text.replace("/usr/bin/evictscope", &program))?;
    for arguments in [
        &["verify", "--man=no", "--recursive-errors=one"][..],
        &["security", "--offline=true", "--no-pager", MOST_EXPOSURE],
    ] {
        let output = Command::new("systemd-analyze").args(arguments).arg(&copy).output();
        let output = output.context("cannot run systemd-analyze; `apt-get install systemd`")?;
        let all = [output.stdout, output.stderr].concat();
        let all = String::from_utf8_lossy(&all);
        ensure!(output.status.success(), "{arguments:?}: {all}");
        ensure!(arguments[0] != "verify" || all.is_empty(), "{all}");
    }
    Ok(())
}
