//! Servers in containers, by podman.

use std::fs;
use std::time::Duration;

use evictscope_testkit::skip::skip;
use rustix::process::{Pid, kill_process};

use crate::podman::{self, ContainedServer, Podman, PodmanContainer};
use crate::prelude::*;

/// How many keys of 500 bytes are written into the 4 MB of a server.
const KEYS: u32 = 8_000;

/// Only the servers in containers.
const ONLY: [&str; 2] = ["--probe-mode=every-call", "--process-match=^contained-"];

/// Opens podman's store, or says that the test is skipped.
fn podman() -> anyhow::Result<Option<Podman>> {
    match Podman::open()? {
        Ok(podman) => Ok(Some(podman)),
        Err(missing) => {
            skip(&missing)?;
            Ok(None)
        }
    }
}

/// Waits until the server of a container answers.
fn answering(container: &PodmanContainer) -> anyhow::Result<ContainedServer> {
    let server = container.server()?;
    until_true("the server answers", || Ok(server.answers()))?;
    Ok(server)
}

/// Waits until the agent watches a server, and returns what it says about it.
fn seen(agent: &Agent, server: ContainedServer) -> anyhow::Result<Scrape> {
    until("the server is seen", || {
        let scrape = agent.scrape()?;
        Ok(scrape.server_info(server.pid).is_some().then_some(scrape))
    })
}

/// Waits until the agent no longer says anything about servers.
fn gone(agent: &Agent, servers: &[ContainedServer]) -> anyhow::Result<()> {
    until_true("the servers are gone", || {
        let scrape = agent.scrape()?;
        Ok(!servers.iter().any(|server| scrape.server_info(server.pid).is_some()))
    })?;
    Ok(())
}

/// Returns a label of `evictscope_server_info`.
fn label(scrape: &Scrape, server: ContainedServer, name: &str) -> anyhow::Result<String> {
    Ok(scrape.server_info(server.pid).context("the server is not seen")?.get(name).unwrap_or("").to_owned())
}

/// Fails if the agent does not say which container each server is in.
fn are_named(agent: &Agent, servers: &[ContainedServer], containers: &[PodmanContainer]) -> anyhow::Result<()> {
    let scrape = agent.scrape()?;
    for (server, container) in servers.iter().zip(containers) {
        let id = container.id.as_str();
        for (name, expected) in [
            ("container_id", id),
            ("container_name", container.name.as_str()),
            ("cgroup", &format!("/libpod_parent/libpod-{id}")),
            ("pod_uid", ""),
        ] {
            let labelled = label(&scrape, *server, name)?;
            ensure!(labelled == expected, "{name} {labelled}, not {expected}");
        }
        let (port, labelled) = (podman::PORT.to_string(), label(&scrape, *server, "server")?);
        let with_id = format!("{port}@{}", &id[..12]);
        ensure!(labelled == port || labelled == with_id, "server {labelled}, not {with_id}");
    }
    Ok(())
}

/// Returns what the agent says about eviction calls, commands and evicted keys of servers, and what they say about the
/// last two.
fn counts(agent: &Agent, servers: &[ContainedServer]) -> anyhow::Result<Vec<[f64; 5]>> {
    let infos = servers.iter().map(|server| server.all_info()).collect::<anyhow::Result<Vec<_>>>()?;
    let page = agent.settled()?;
    let counts = servers.iter().zip(infos).map(|(server, info)| {
        let name = label(&page, *server, "server")?;
        let sum = |metric: &str| page.sum(metric, &[("server", &name)]);
        Ok([
            sum("evictscope_eviction_calls_total")?,
            sum("evictscope_commands_processed_total")?,
            sum("evictscope_evicted_keys_total")?,
            info.number("total_commands_processed")?,
            info.number("evicted_keys")?,
        ])
    });
    counts.collect()
}

/// Writes keys into servers, and fails if the agent's counts differ from theirs.
fn are_counted(agent: &Agent, servers: &[ContainedServer], keys: u32) -> anyhow::Result<()> {
    let before = counts(agent, servers)?;
    for server in servers {
        server.write_keys(keys)?;
    }
    let after = counts(agent, servers)?;
    for (before, after) in before.iter().zip(&after) {
        let [calls, commands, _, expected, _] = [0, 1, 2, 3, 4].map(|index| after[index] - before[index]);
        ensure!(commands == expected, "{commands} commands, not {expected}");
        ensure!(calls == commands, "{calls} calls, {commands} commands");
        let [_, _, evicted, _, expected] = *after;
        ensure!(evicted == expected && evicted > 0.0, "{evicted} keys, not {expected}");
    }
    Ok(())
}

/// Ends the agent, and fails if it leaves a probe in a server.
fn leaves_nothing(agent: Agent, servers: &[ContainedServer]) -> anyhow::Result<()> {
    let codes = servers.iter().map(|server| Code::of(server.pid)).collect::<anyhow::Result<Vec<_>>>()?;
    for code in &codes {
        ensure!(!code.changed()?.is_empty(), "no breakpoint in a server");
    }
    let log = agent.log()?;
    ensure!(!log.contains(" ERROR "), "{log}");
    agent.end_well()?;
    for code in &codes {
        let changed = code.changed()?;
        ensure!(changed.is_empty(), "the agent has left {changed:?}");
    }
    Ok(())
}

fn kill(server: ContainedServer) -> anyhow::Result<()> {
    Ok(kill_process(Pid::from_raw(server.pid.cast_signed()).context("no process has number 0")?, Signal::KILL)?)
}

#[test]
#[ignore = "needs root and BPF"]
fn each_kind_of_container_is_seen_named_and_counted() -> anyhow::Result<()> {
    let Some(podman) = podman()? else { return Ok(()) };
    // An upgrade inside a container deletes the file.
    let deleted = podman.create(podman::GLIBC, &[])?;
    deleted.start()?;
    let server = answering(&deleted)?;
    fs::remove_file(format!("/proc/{}/root{}", server.pid, podman::GLIBC))?;
    let agent = Agent::start(&ONLY)?;
    let scrape = seen(&agent, server)?;
    let file = label(&scrape, server, "file")?;
    ensure!(file == format!("{} (deleted)", podman::GLIBC), "file {file}");

    const OWN_USERS: [&str; 2] = ["--uidmap=0:200000:65536", "--gidmap=0:200000:65536"];
    let mut containers = vec![deleted];
    let mut servers = vec![server];
    for (case, program, options, is_v2) in [
        ("namespaces of its own", podman::GLIBC, &[][..], false),
        ("users of its own", podman::GLIBC, &OWN_USERS, false),
        ("musl", podman::MUSL, &[], false),
        ("cgroup v2", podman::GLIBC, &[], true),
    ] {
        let mut container = podman.create(program, options)?;
        if is_v2 {
            container.start_under_cgroup_v2()?
        } else {
            container.start()?
        }
        let server = answering(&container)?;
        seen(&agent, server)?;
        for namespace in ["pid", "mnt", "net", "user"] {
            let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{namespace}"));
            let is_own = of(&server.pid.to_string())? != of("self")?;
            let expected = namespace != "user" || options == OWN_USERS;
            ensure!(is_own == expected, "{case}: namespace {namespace}");
        }
        let cgroups = fs::read_to_string(format!("/proc/{}/cgroup", server.pid))?;
        let v2 = format!("0::/libpod_parent/libpod-{}", container.id);
        let others = cgroups.matches(&container.id).count() - cgroups.matches(&v2).count();
        ensure!(!is_v2 || others == 0, "{case}: {cgroups}");
        containers.push(container);
        servers.push(server);
    }
    are_named(&agent, &servers, &containers)?;
    are_counted(&agent, &servers, KEYS)?;

    // Some end before the agent, and some after it.
    containers.truncate(3);
    gone(&agent, &servers[3..])?;
    leaves_nothing(agent, &servers[..3])
}

#[test]
#[ignore = "needs root and BPF"]
fn a_container_that_restarts_in_a_loop_is_seen_each_time() -> anyhow::Result<()> {
    let Some(podman) = podman()? else { return Ok(()) };
    let agent = Agent::start(&ONLY)?;
    let container = podman.create(podman::GLIBC, &["--restart=always"])?;
    container.start()?;
    let mut server = answering(&container)?;
    for round in 0..5 {
        // Half of them end before they are found, before they are attached to, or just then.
        if round % 2 == 0 {
            seen(&agent, server)?;
        } else {
            std::thread::sleep(Duration::from_millis(150 * round));
        }
        kill(server)?;
        let restarted = || {
            let again = container.server().ok();
            Ok(again.filter(|again| again.pid != server.pid && again.answers()))
        };
        server = until("the container restarts", restarted)?;
    }
    seen(&agent, server)?;
    are_counted(&agent, &[server], KEYS)?;
    are_named(&agent, &[server], std::slice::from_ref(&container))?;
    let others = agent.scrape()?.by_label("evictscope_server_info", "pid");
    ensure!(others.len() == 1, "{} servers are left", others.len());
    leaves_nothing(agent, &[server])
}

#[test]
#[ignore = "needs root and BPF"]
fn thirty_containers_are_seen_at_once() -> anyhow::Result<()> {
    let Some(podman) = podman()? else { return Ok(()) };
    let containers = (0..30).map(|_| podman.create(podman::GLIBC, &[])).collect::<anyhow::Result<Vec<_>>>()?;
    let agent = Agent::start(&ONLY)?;
    podman.start(&containers)?;
    let servers = podman.servers(&containers)?;
    for server in &servers {
        seen(&agent, *server)?;
    }
    are_named(&agent, &servers, &containers)?;
    are_counted(&agent, &servers, KEYS)?;
    leaves_nothing(agent, &servers)?;

    // An agent that finds all of them at once names none by the port alone.
    let agent = Agent::start(&ONLY)?;
    for server in &servers {
        seen(&agent, *server)?;
    }
    let scrape = agent.scrape()?;
    for (container, server) in containers.iter().zip(&servers) {
        let expected = format!("{}@{}", podman::PORT, &container.id[..12]);
        let labelled = label(&scrape, *server, "server")?;
        ensure!(labelled == expected, "server {labelled}, not {expected}");
    }
    drop(containers);
    gone(&agent, &servers)
}
