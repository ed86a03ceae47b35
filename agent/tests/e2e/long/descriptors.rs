//! An agent that has no file descriptors left.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use evictscope_testkit::{agent::Agent, own_build::OwnBuild, wait::until_true};
use procfs::process::Process;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// Leaves the agent this many descriptors besides those that it has open.
fn leave_free(agent: &Agent, free: usize) -> anyhow::Result<()> {
    let process = Process::new(agent.pid().try_into()?)?;
    let open = process.fd()?.map(|open| Ok(open?.fd));
    let open = open.collect::<anyhow::Result<BTreeSet<i32>>>()?;
    // From this number on, none can be opened.
    let limit = (0..).filter(|number| !open.contains(number)).nth(free);
    limit_to(agent, limit.context("no number is free")?.try_into()?)
}

fn limit_to(agent: &Agent, descriptors: u64) -> anyhow::Result<()> {
    let limit = Rlimit { current: Some(descriptors), maximum: Some(8192) };
    let pid = Pid::from_raw(agent.pid().cast_signed());
    prlimit(pid, Resource::Nofile, limit)?;
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn without_descriptors_servers_keep_their_series_and_new_ones_are_found_later() -> anyhow::Result<()> {
    let own = OwnBuild::of_redis()?;
    let first = own.start(&[])?;
    let agent = Agent::watching(&first, &[&own.only()])?;

    // With one descriptor the processes can be listed, but none can be looked at.
    leave_free(&agent, 1)?;
    let second = own.start(&[])?;
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
        let said = log.matches("processes can be looked at again").count();
        ensure!(said < 2, "{log}");
        Ok(said == 1)
    };
    until_true("the log says that it is over", is_over)?;
    // A server that ends is still noticed.
    first.kill()?;
    until_true("its series are gone", || Ok(!agent.scrape()?.has_server(&first.name())))
}
