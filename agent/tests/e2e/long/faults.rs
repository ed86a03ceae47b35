//! Agents and servers that are killed at the worst moment, two agents at once, and one without file descriptors.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use procfs::process::Process;
use rustix::process::{Pid, Resource, Rlimit, kill_process, prlimit};

use crate::core::killed::kill_at_random_moments;
use crate::core::numbers::count_right;
use crate::prelude::*;
use crate::probed::{ProbedServers, keeper_of};

#[test]
#[ignore = "needs root and BPF"]
fn an_agent_that_is_asked_to_end_while_it_attaches_leaves_no_probe() -> anyhow::Result<()> {
    let probed = ProbedServers::start(3)?;
    let all = probed.all();
    let mut midway = 0;
    for placed in [all / 2, 1, 1] {
        let agent = probed.agent(&["--probe-mode=every-call"])?;
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

/// How many agents are killed.
const KILLS: &str = "EVICTSCOPE_KILLS";

#[test]
#[ignore = "needs root and BPF"]
fn no_breakpoint_outlives_many_agents_that_are_killed() -> anyhow::Result<()> {
    kill_at_random_moments(std::env::var(KILLS).map_or(Ok(100), |kills| kills.parse())?)
}

/// The kernel cannot take out the breakpoints that a keeper is placing when it is killed: they stay until the next
/// agent comes, though they no longer call anything.
#[test]
#[ignore = "needs root and BPF"]
fn what_an_agent_and_its_keeper_leave_that_are_killed_goes_with_the_next_agent() -> anyhow::Result<()> {
    let probed = ProbedServers::start(3)?;
    let all = probed.all();
    for placed in [all / 2, 1, 1, all - 1] {
        let agent = probed.agent(&["--probe-mode=every-call"])?;
        let keeper = until("the agent has a keeper", || Ok(keeper_of(agent.pid()).ok()))?;
        let seen = probed.until(&agent, |now| now >= placed)?;
        kill_process(keeper, Signal::KILL)?;
        agent.end(Signal::KILL)?;
        let stay = probed.placed()?;
        println!("killed with {seen} of {all}: {stay} stay");
        for redis in &probed.servers {
            let before = redis.info("evicted_keys")?;
            redis.write_keys(1_000)?;
            let evicted = redis.info("evicted_keys")? - before;
            ensure!(evicted > 0.0, "the server evicts nothing");
        }
    }
    let agent = probed.agent(&["--probe-mode=every-call"])?;
    until_true("the next agent is attached", || {
        Ok(agent.log()?.matches("attached pid=").count() == probed.servers.len())
    })?;
    agent.end_well()?;
    probed.must_be_as_before("no breakpoint after the next agent")
}

#[test]
#[ignore = "needs root and BPF"]
fn servers_that_are_killed_while_they_are_attached_to_leave_nothing() -> anyhow::Result<()> {
    let build = PrivateBuild::of_redis()?;
    let lasting = build.start(&["--maxmemory", "8mb"])?;
    let agent = Agent::watching(&lasting, &["--probe-mode=every-call", &build.only()])?;
    let sites = Code::of(lasting.pid())?.changed()?;
    let process = Process::new(agent.pid().try_into()?)?;
    let before = (process.fd_count()?, agent.log()?.len());
    let mut midway = 0;
    for round in 0..4 {
        // The agent looks once a second, so it finds all three at once.
        let victims = (0..3).map(|_| build.start(&[])).collect::<anyhow::Result<Vec<Redis>>>()?;
        let code = victims.iter().map(|redis| Code::of(redis.pid())).collect::<anyhow::Result<Vec<Code>>>()?;
        // It sees no server that is younger than 100 ms. It is about to attach to the others, or has just done so.
        let wanted = round % (sites.len() + 1);
        let begun = Instant::now();
        let mut placed = vec![0; code.len()];
        while begun.elapsed() < Duration::from_secs(3) && placed[0] < wanted.max(1) {
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
        Ok(is_alone && process.fd_count()? <= before.0)
    };
    until_true("nothing of them is left", is_as_before)?;
    let log = agent.log()?;
    let since = &log[before.1..];
    // That they were killed is what it must say.
    let others = since.lines().filter(|line| !line.contains("ended by SIGKILL"));
    for line in others {
        let is_wrong = line.contains(" WARN ") || line.contains(" ERROR ");
        ensure!(!is_wrong, "{since}");
    }
    lasting.write_keys(20_000)?;
    let evicted = agent.settled_reading(&lasting)?.sum("evictscope_evicted_keys_total", &[])?;
    let expected = lasting.info("evicted_keys")?;
    ensure!(evicted == expected && evicted > 0.0, "{evicted} of {expected} evicted keys");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn two_agents_count_the_same_and_each_takes_off_its_own_probes() -> anyhow::Result<()> {
    let build = PrivateBuild::of_redis()?;
    let options = ["--maxmemory-eviction-tenacity", "100", "--maxmemory", "8mb"];
    let servers = [build.start(&options)?, build.start(&options)?];
    let code = [Code::of(servers[0].pid())?, Code::of(servers[1].pid())?];
    let changed = || anyhow::Ok([code[0].changed()?, code[1].changed()?]);
    let start = || {
        let agent = Agent::start(&["--probe-mode=every-call", &build.only()])?;
        for redis in &servers {
            agent.watches(redis)?;
        }
        anyhow::Ok(agent)
    };
    let first = start()?;
    let placed = changed()?;
    let second = start()?;
    for redis in &servers {
        // Those of the first agent stay.
        let foreign = second.reading(redis)?.sum("evictscope_foreign_breakpoints", &[])?;
        ensure!(foreign > 1.0, "{foreign} breakpoints of the first agent");
    }
    for redis in &servers {
        count_right(&[&first, &second], redis, 20_000)?;
    }
    ensure!(changed()? == placed, "{:?}, {placed:?} with one", changed()?);

    first.end_well()?;
    ensure!(changed()? == placed, "{:?}, {placed:?} with both", changed()?);
    for redis in &servers {
        count_right(&[&second], redis, 20_000)?;
    }
    second.end_well()?;
    let left = changed()?;
    ensure!(left.iter().all(BTreeSet::is_empty), "{left:?} are left");
    Ok(())
}

/// Leaves the agent this many descriptors besides those that it has open.
fn leave_free(agent: &Agent, free: usize) -> anyhow::Result<()> {
    let process = Process::new(agent.pid().try_into()?)?;
    let open = process.fd()?.map(|open| Ok(open?.fd)).collect::<anyhow::Result<BTreeSet<i32>>>()?;
    // From this number on, none can be opened.
    let limit = (0..).filter(|number| !open.contains(number)).nth(free);
    limit_to(agent, limit.context("no number is free")?.try_into()?)
}

fn limit_to(agent: &Agent, descriptors: u64) -> anyhow::Result<()> {
    let limit = Rlimit { current: Some(descriptors), maximum: Some(8192) };
    prlimit(Pid::from_raw(agent.pid().cast_signed()), Resource::Nofile, limit)?;
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn without_descriptors_servers_keep_their_series_and_new_ones_are_found_later() -> anyhow::Result<()> {
    let build = PrivateBuild::of_redis()?;
    let first = build.start(&[])?;
    let agent = Agent::watching(&first, &[&build.only()])?;

    // With one descriptor the processes can be listed, but none can be looked at.
    leave_free(&agent, 1)?;
    let second = build.start(&[])?;
    for free in [1, 0] {
        leave_free(&agent, free)?;
        for _ in 0..5 {
            // The connection of the first scrape is still open.
            let scrape = agent.settled()?;
            ensure!(scrape.has_server(&first.name()), "{free} free: {}", agent.log()?);
            ensure!(!scrape.has_server(&second.name()), "it was found without descriptors");
        }
    }
    let commands = |redis| agent.reading(redis)?.sum("evictscope_commands_processed_total", &[]);
    let before = commands(&first)?;
    first.write_keys(10_000)?;
    until_true("its commands are counted", || Ok(commands(&first)? - before >= 10_000.0))?;
    let log = agent.log()?;
    let warnings = log.matches("cannot look at the processes of this host").count();
    ensure!(warnings == 1, "{warnings} warnings: {log}");
    ensure!(!log.contains("has ended"), "{log}");

    limit_to(&agent, 8192)?;
    agent.watches(&second)?;
    let is_over = || {
        let log = agent.log()?;
        let times = log.matches("processes can be looked at again").count();
        ensure!(times < 2, "{log}");
        Ok(times == 1)
    };
    until_true("the log says that it is over", is_over)?;
    // A server that ends is still noticed.
    first.kill()?;
    until_true("its series are gone", || Ok(!agent.scrape()?.has_server(&first.name())))
}
