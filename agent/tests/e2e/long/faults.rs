//! Agents and servers that are killed at the worst moment, and two agents at once.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use evictscope_testkit::{
    agent::{Agent, evictscope},
    code::Code,
    own_build::OwnBuild,
    owned::Owned,
    redis::Redis,
    wait::until_true,
};
use rustix::process::Signal;

use crate::counts::count_right;

/// After this time without the breakpoints that are waited for, the agent hangs.
const HANGS: Duration = Duration::from_secs(300);
/// Writes another key of 500 bytes each time, so that a full server has to evict.
const WRITE: &str = "return redis.call('set', redis.call('incr', 'n'), string.rep('x', 500))";

/// Servers of one file under load, and where an agent places its probes in each.
struct Probed {
    own: OwnBuild,
    servers: Vec<Redis>,
    code: Vec<Code>,
    sites: BTreeSet<u64>,
    _loads: Vec<Owned>,
}

impl Probed {
    fn start(servers: usize) -> anyhow::Result<Self> {
        let own = OwnBuild::of_redis()?;
        let start = |_| own.start(&["--maxmemory", "8mb"]);
        let servers = (0..servers)
            .map(start)
            .collect::<anyhow::Result<Vec<_>>>()?;
        let load = |redis: &Redis| {
            redis.write_keys(20_000)?;
            let mut writes = Command::new("redis-cli");
            writes.args(["-p", &redis.name(), "-r", "-1", "-i", "0.001"]);
            Owned::start(writes.args(["eval", WRITE, "0"]))
        };
        let loads = servers.iter().map(load).collect::<anyhow::Result<_>>()?;
        let code = servers.iter().map(|redis| Code::of(redis.pid()));
        let code = code.collect::<anyhow::Result<Vec<Code>>>()?;
        let agent = Agent::start(&["--probe-mode=every-call", &own.only()])?;
        for redis in &servers {
            agent.watches(redis)?;
        }
        let sites = code[0].changed()?;
        ensure!(sites.len() > 1, "probes at {sites:?}");
        agent.end(Signal::TERM)?;
        Ok(Self {
            own,
            servers,
            code,
            sites,
            _loads: loads,
        })
    }

    /// Starts an agent, and does not wait for it.
    fn agent(&self) -> anyhow::Result<Owned> {
        let mut run = evictscope();
        run.args(["run", "--listen=127.0.0.1:0", "--probe-mode=every-call"]);
        Owned::start(run.arg(self.own.only()))
    }

    /// Returns the number of breakpoints in all servers.
    fn placed(&self) -> anyhow::Result<usize> {
        let mut placed = 0;
        for code in &self.code {
            placed += code.changed_of(&self.sites)?;
        }
        Ok(placed)
    }

    /// Waits, as closely as can be, until the number of breakpoints is wanted, and returns it.
    fn until(&self, agent: &Owned, is_wanted: impl Fn(usize) -> bool) -> anyhow::Result<usize> {
        let begun = Instant::now();
        loop {
            let placed = self.placed()?;
            if is_wanted(placed) {
                return Ok(placed);
            }
            agent.must_be_alive()?;
            ensure!(
                begun.elapsed() < HANGS,
                "{placed} breakpoints: {}",
                agent.log()?
            );
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn all(&self) -> usize {
        self.servers.len() * self.sites.len()
    }

    /// Fails where anything is left in a server, or one does not answer.
    fn must_be_as_before(&self, what: &str) -> anyhow::Result<()> {
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
}

#[test]
#[ignore = "needs root and BPF"]
fn an_agent_that_is_asked_to_end_while_it_attaches_leaves_no_probe() -> anyhow::Result<()> {
    let probed = Probed::start(3)?;
    let all = probed.all();
    let mut midway = 0;
    for placed in [all / 2, 1, 1] {
        let agent = probed.agent()?;
        let seen = probed.until(&agent, |now| now >= placed)?;
        let status = agent.end(Signal::TERM)?;
        midway += usize::from(seen < all);
        let what = format!("no breakpoint after SIGTERM with {seen} of {all}");
        ensure!(status.success(), "{what}: {status}: {}", agent.log()?);
        probed.must_be_as_before(&what)?;
    }
    println!("{midway} of 3 agents ended while they attached");
    Ok(())
}

/// The kernel cannot take out the breakpoints that a thread is placing or taking out when it is killed (`leaking
/// uprobe`): they stay, though nothing is called there any more, until an agent has been attached there again.
#[test]
#[ignore = "needs root and BPF"]
fn what_a_killed_agent_leaves_harms_no_server_and_goes_with_the_next_agent() -> anyhow::Result<()> {
    let probed = Probed::start(3)?;
    let all = probed.all();
    let kill = |agent: Owned, seen: usize, when: &str| {
        agent.end(Signal::KILL)?;
        let stay = probed.placed()?;
        println!("killed while it {when} with {seen} of {all}: {stay} stay");
        for redis in &probed.servers {
            let before = redis.info("evicted_keys")?;
            redis.write_keys(1_000)?;
            let evicted = redis.info("evicted_keys")? - before;
            ensure!(evicted > 0.0, "the server evicts nothing");
        }
        anyhow::Ok(usize::from(seen > 0 && seen < all))
    };
    let mut midway = 0;
    for placed in [all / 2, 1, 1] {
        let agent = probed.agent()?;
        let seen = probed.until(&agent, |now| now >= placed)?;
        midway += kill(agent, seen, "attached")?;
    }
    for left in [all - 1, all / 2] {
        let agent = probed.agent()?;
        probed.until(&agent, |now| now == all)?;
        agent.signal(Signal::TERM)?;
        let seen = probed.until(&agent, |now| now <= left)?;
        midway += kill(agent, seen, "detached")?;
    }
    println!("{midway} of 5 agents were killed on the way");
    let agent = probed.agent()?;
    until_true("the next agent is attached", || {
        let log = agent.log()?;
        let attached = log.matches("attached pid=").count();
        Ok(attached == probed.servers.len())
    })?;
    let status = agent.end(Signal::TERM)?;
    ensure!(status.success(), "{status}: {}", agent.log()?);
    probed.must_be_as_before("no breakpoint after the next agent")
}

/// Returns how many file descriptors a process has open.
fn descriptors(pid: u32) -> anyhow::Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

#[test]
#[ignore = "needs root and BPF"]
fn servers_that_are_killed_while_they_are_attached_to_leave_nothing() -> anyhow::Result<()> {
    let own = OwnBuild::of_redis()?;
    let lasting = own.start(&["--maxmemory", "8mb"])?;
    let agent = Agent::watching(&lasting, &["--probe-mode=every-call", &own.only()])?;
    let sites = Code::of(lasting.pid())?.changed()?;
    let before = (descriptors(agent.pid())?, agent.log()?.len());
    let mut midway = 0;
    for round in 0..4 {
        // The agent looks twice a second, so it finds all three at once.
        let victims = (0..3).map(|_| own.start(&[]));
        let victims = victims.collect::<anyhow::Result<Vec<Redis>>>()?;
        let code = victims.iter().map(|redis| Code::of(redis.pid()));
        let code = code.collect::<anyhow::Result<Vec<Code>>>()?;
        // It sees none that is younger than 100 ms. With others it is about to attach, or has just done so.
        let wanted = round % (sites.len() + 1);
        let begun = Instant::now();
        let mut placed = vec![0; code.len()];
        while begun.elapsed() < Duration::from_millis(700) && placed[0] < wanted.max(1) {
            for (placed, code) in placed.iter_mut().zip(&code) {
                *placed = code.changed_of(&sites)?;
            }
        }
        midway += placed.iter().filter(|now| **now < sites.len()).count();
        for victim in &victims {
            victim.kill()?;
        }
    }
    println!("{midway} of 12 servers were killed with less than all probes placed");

    let is_as_before = || {
        let is_alone = agent.scrape()?.servers() == BTreeSet::from([&*lasting.name()]);
        let open = descriptors(agent.pid())?;
        Ok(is_alone && open <= before.0)
    };
    until_true("nothing of them is left", is_as_before)?;
    let log = agent.log()?;
    let since = &log[before.1..];
    for word in [" WARN ", " ERROR "] {
        ensure!(!since.contains(word), "{since}");
    }
    lasting.write_keys(20_000)?;
    let scrape = agent.settled_reading(&lasting)?;
    let evicted = scrape.sum("evictscope_evicted_keys_total", &[])?;
    let expected = lasting.info("evicted_keys")?;
    let is_right = evicted == expected && evicted > 0.0;
    ensure!(is_right, "{evicted} of {expected} evicted keys");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn two_agents_count_the_same_and_each_takes_off_its_own_probes() -> anyhow::Result<()> {
    let own = OwnBuild::of_redis()?;
    let options = ["--maxmemory-eviction-tenacity", "100", "--maxmemory", "8mb"];
    let servers = [own.start(&options)?, own.start(&options)?];
    let code = [Code::of(servers[0].pid())?, Code::of(servers[1].pid())?];
    let changed = || anyhow::Ok([code[0].changed()?, code[1].changed()?]);
    let start = || {
        let agent = Agent::start(&["--probe-mode=every-call", &own.only()])?;
        for redis in &servers {
            agent.watches(redis)?;
        }
        anyhow::Ok(agent)
    };
    let first = start()?;
    let placed = changed()?;
    let second = start()?;
    for redis in &servers {
        count_right(&[&first, &second], redis, 20_000)?;
    }
    ensure!(
        changed()? == placed,
        "{:?}, {placed:?} with one",
        changed()?
    );

    let status = first.end(Signal::TERM)?;
    ensure!(status.success(), "{status}");
    ensure!(
        changed()? == placed,
        "{:?}, {placed:?} with both",
        changed()?
    );
    for redis in &servers {
        count_right(&[&second], redis, 20_000)?;
    }
    let status = second.end(Signal::TERM)?;
    ensure!(status.success(), "{status}");
    let left = changed()?;
    ensure!(left.iter().all(BTreeSet::is_empty), "{left:?} are left");
    Ok(())
}
