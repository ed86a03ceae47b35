//! Servers whose code is watched while agents come and go, and the kernel's log of what they left.

use std::collections::BTreeSet;
use std::fs::File;
use std::process::Command;
use std::time::{Duration, Instant};

use evictscope_testkit::process;
use procfs::process::all_processes;
use rustix::process::Pid;

use crate::prelude::*;

/// An agent that takes longer to place the breakpoints that are waited for hangs.
const HANGS: Duration = Duration::from_secs(300);
/// Writes another key of 500 bytes each time, so that a full server has to evict.
const WRITE: &str = "return redis.call('set', redis.call('incr', 'n'), string.rep('x', 500))";
/// The name of the process that holds an agent's probes.
const KEEPER: &str = "evictscope-keep";

/// Servers of one file under load, and where an agent places its probes in each.
pub struct ProbedServers {
    own: PrivateBuild,
    pub servers: Vec<Redis>,
    code: Vec<Code>,
    sites: BTreeSet<u64>,
    _loads: Vec<Owned>,
    _turn: File,
}

impl ProbedServers {
    pub fn start(servers: usize) -> anyhow::Result<Self> {
        let turn = turn()?;
        let own = PrivateBuild::of_redis()?;
        let start = |_| own.start(&["--maxmemory", "8mb"]);
        let servers = (0..servers).map(start).collect::<anyhow::Result<Vec<_>>>()?;
        let load = |redis: &Redis| {
            redis.write_keys(20_000)?;
            let mut writes = Command::new("redis-cli");
            writes.args(["-p", &redis.name(), "-r", "-1", "-i", "0.001"]);
            Owned::start(writes.args(["eval", WRITE, "0"]))
        };
        let loads = servers.iter().map(load).collect::<anyhow::Result<_>>()?;
        let code = servers.iter().map(|redis| Code::of(redis.pid())).collect::<anyhow::Result<Vec<Code>>>()?;
        let agent = Agent::start(&["--probe-mode=every-call", &own.only()])?;
        for redis in &servers {
            agent.watches(redis)?;
        }
        let sites = code[0].changed()?;
        ensure!(sites.len() > 1, "probes at {sites:?}");
        agent.end(Signal::TERM)?;
        Ok(Self { own, servers, code, sites, _loads: loads, _turn: turn })
    }

    /// Starts an agent without waiting for it.
    pub fn agent(&self, options: &[&str]) -> anyhow::Result<Owned> {
        let mut run = evictscope();
        run.args(["run", "--listen=127.0.0.1:0"]).args(options);
        Owned::start(run.arg(self.own.only()))
    }

    /// Returns the number of breakpoints where an agent places them, in all servers.
    pub fn placed(&self) -> anyhow::Result<usize> {
        let mut placed = 0;
        for code in &self.code {
            placed += code.changed_of(&self.sites)?;
        }
        Ok(placed)
    }

    /// Waits, as closely as possible, until the number of breakpoints is as wanted, and returns it.
    pub fn until(&self, agent: &Owned, is_wanted: impl Fn(usize) -> bool) -> anyhow::Result<usize> {
        let begun = Instant::now();
        loop {
            let placed = self.placed()?;
            if is_wanted(placed) {
                return Ok(placed);
            }
            agent.must_be_alive()?;
            ensure!(begun.elapsed() < HANGS, "{placed} breakpoints: {}", agent.log()?);
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Returns the number of breakpoints when all are placed.
    pub fn all(&self) -> usize {
        self.servers.len() * self.sites.len()
    }

    /// Waits until the code of all servers is that of their file again. Fails if a server does not answer.
    pub fn must_be_as_before(&self, what: &str) -> anyhow::Result<()> {
        until_true(what, || {
            let mut changed = 0;
            for code in &self.code {
                changed += code.changed()?.len();
            }
            Ok(changed == 0)
        })?;
        for redis in &self.servers {
            redis.info("evicted_keys")?;
        }
        Ok(())
    }

    /// Returns the lines in which the kernel says that a keeper could not take out a breakpoint.
    pub fn leaks(&self) -> anyhow::Result<BTreeSet<String>> {
        let said = process::answer_of(&mut Command::new("dmesg"))?;
        let own = said.lines().filter(|line| line.contains("leaking uprobe") && line.contains(KEEPER));
        Ok(own.map(str::to_owned).collect())
    }
}

/// Waits until no other test makes the kernel say that it could not take out a breakpoint, or watches for that. Other
/// such tests wait until the result is dropped.
pub fn turn() -> anyhow::Result<File> {
    let turn = File::create(std::env::temp_dir().join("evictscope-leaks.lock"))?;
    turn.lock()?;
    Ok(turn)
}

pub fn keeper_of(agent: u32) -> anyhow::Result<Pid> {
    let agent = agent.cast_signed();
    let mut processes = all_processes()?.filter_map(|process| process.ok()?.stat().ok());
    let keeper = processes.find(|stat| stat.ppid == agent && stat.comm == KEEPER).context("no keeper")?;
    Pid::from_raw(keeper.pid).context("no process")
}
