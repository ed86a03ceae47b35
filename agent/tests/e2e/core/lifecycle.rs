//! Servers and agents that come and go.

use std::collections::BTreeSet;
use std::process::Command;

use evictscope_testkit::agent::inspect;
use evictscope_testkit::loopback::port_for_later;

use super::numbers::count_right;
use crate::prelude::*;

/// Returns the file offsets of the sites that the plan for a server has in evicting-only mode.
pub fn sites(redis: &Redis) -> anyhow::Result<BTreeSet<u64>> {
    let plan = inspect(redis.pid().to_string())?;
    let function = &plan["functions"][0];
    let sites = function["exits"].as_array().context("no exits")?.iter().chain([&function["inner"]]);
    sites.map(|site| site["file_offset"].as_u64().context("no file offset")).collect()
}

#[test]
#[ignore = "needs root and BPF"]
fn two_servers_of_one_executable_are_counted_apart() -> anyhow::Result<()> {
    let build = PrivateBuild::of_redis()?;
    let options = ["--maxmemory-eviction-tenacity", "100"];
    let (first, second) = (build.start(&options)?, build.start(&options)?);
    let agent = Agent::watching(&first, &["--probe-mode", "every-call"])?;
    agent.watches(&second)?;
    count_right(&[&agent], &first, 60_000)?;
    count_right(&[&agent], &second, 25_000)?;

    let load = first.load("-t set -r 10000000 -n 100000000")?;
    let (answered, commands) = ("total_commands_processed", 100_000.0);
    until_true("the first server is busy", || Ok(first.info(answered)? > commands))?;
    first.kill()?;
    drop(load);
    until_true("the killed server's series are gone", || Ok(!agent.scrape()?.has_server(&first.name())))?;
    count_right(&[&agent], &second, 10_000)
}

#[test]
#[ignore = "needs root and BPF"]
fn a_server_keeps_its_name_when_the_agent_is_started_anew() -> anyhow::Result<()> {
    let state = tempfile::tempdir()?;
    let directory = format!("--state-dir={}", state.path().display());
    let first = Redis::private_on(port_for_later()?, &[])?;
    let agent = Agent::watching(&first, &[&directory])?;
    // The same port on another address.
    let second = Redis::private_on(first.port(), &["--bind", "127.0.0.2"])?;
    let name = format!("{}@{}", first.port(), second.pid());
    agent.wait_for(&name)?;
    first.kill()?;
    until_true("the first server is gone", || Ok(!agent.scrape()?.has_server(&first.name())))?;
    agent.end_well()?;

    // On its own, it would be named by its port.
    let agent = Agent::start(&[&directory])?;
    agent.wait_for(&name)?;
    let third = Redis::private_on(first.port(), &[])?;
    agent.watches(&third)?;
    let scrape = agent.scrape()?;
    for (server, name) in [(&second, &name), (&third, &first.name())] {
        let label = scrape.server_info(server.pid()).and_then(|labels| labels.get("server"));
        ensure!(label == Some(name), "{label:?}, not {name}");
    }
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn each_site_is_probed_until_a_signal_ends_the_agent() -> anyhow::Result<()> {
    let redis = Redis::private(&[])?;
    let agent = Agent::watching(&redis, &["--probe-mode", "evicting-only"])?;
    let (planned, code) = (sites(&redis)?, Code::of(redis.pid())?);
    let placed = code.changed()?;
    ensure!(planned.is_subset(&placed), "breakpoints at {placed:?}, planned {planned:?}");
    let status = agent.end(Signal::INT)?;
    ensure!(status.success(), "{status}");
    let left = code.changed()?;
    ensure!(left.is_empty(), "{left:?}");
    redis.write_keys(1_000)
}

#[test]
#[ignore = "needs root and BPF"]
fn in_a_pid_namespace_of_its_own_the_agent_refuses_to_run() -> anyhow::Result<()> {
    let output = Command::new("unshare")
        .args(["--fork", "--pid", "--mount-proc", "--kill-child"])
        .arg(evictscope().get_program())
        .args(["run", "--listen", "127.0.0.1:0"])
        .output()?;
    let printed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{}: {printed}", output.status);
    ensure!(printed.contains("--pid=host"), "{printed}");
    Ok(())
}
