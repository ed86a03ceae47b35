//! End to end: servers and agents that come and go.
//!
//! Needs root and BPF: `cargo xtask test` runs these where they can run.

use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use evictscope_testkit::{
    agent::{Agent, evictscope},
    port::port_for_later,
    process,
    redis::{self, Redis, copy_to},
    scrape::Scrape,
    wait::within,
};
use rustix::process::Signal;

/// How long to wait for what is not timed.
const SOON: Duration = Duration::from_secs(15);

/// Returns the bytes of the running server's code at the sites of its plan, and the bytes of its file there.
fn code_at_sites(redis: &Redis) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
    let output = evictscope()
        .args(["inspect", "--json", &redis.pid().to_string()])
        .output()?;
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let function = &plan["functions"][0];
    let exits = function["exits"].as_array().context("no exits")?;
    let exe = std::fs::File::open(format!("/proc/{}/exe", redis.pid()))?;
    let memory = std::fs::File::open(format!("/proc/{}/mem", redis.pid()))?;
    let (mut running, mut original) = (Vec::new(), Vec::new());
    for site in exits.iter().chain([&function["inner"]]) {
        let offset = site["file_offset"].as_u64().context("no file offset")?;
        let mapping = procfs::process::Process::new(redis.pid().try_into()?)?
            .maps()?
            .into_iter()
            .find(|map| {
                (map.offset..map.offset + (map.address.1 - map.address.0)).contains(&offset)
                    && map.perms.contains(procfs::process::MMPermissions::EXECUTE)
            })
            .context("the site is not mapped")?;
        let mut byte = [0];
        exe.read_exact_at(&mut byte, offset)?;
        original.extend(byte);
        memory.read_exact_at(&mut byte, mapping.address.0 + offset - mapping.offset)?;
        running.extend(byte);
    }
    Ok((running, original))
}

#[test]
#[ignore = "needs root and BPF"]
fn two_servers_of_one_executable_are_counted_apart() -> anyhow::Result<()> {
    let first = Redis::start(&["--maxmemory-eviction-tenacity", "100"])?;
    let second = Redis::start(&["--maxmemory-eviction-tenacity", "100"])?;
    let agent = Agent::start(&["--probe-mode", "every-call"])?;
    for redis in [&first, &second] {
        agent.wait_for(&redis.name(), Duration::from_secs(3))?;
    }
    let before = agent.settled()?;
    first.write_keys(60_000)?;
    second.write_keys(25_000)?;
    let after = agent.settled()?;
    for (redis, keys) in [(&first, 60_000.0), (&second, 25_000.0)] {
        let name = redis.name();
        let server = [("server", name.as_str())];
        let grown =
            |metric: &str| anyhow::Ok(after.sum(metric, &server)? - before.sum(metric, &server)?);
        let calls = grown("evictscope_eviction_calls_total")?;
        let commands = grown("evictscope_commands_processed_total")?;
        ensure!(calls == commands, "{calls} calls, {commands} commands");
        let is_right = (keys..keys + 100.0).contains(&calls);
        ensure!(is_right, "server {name}: {calls} calls for {keys} keys");
    }

    let load = first.load(&["-t", "set", "-r", "10000000", "-n", "100000000"])?;
    std::thread::sleep(Duration::from_millis(500));
    first.kill()?;
    drop(load);
    within(
        Duration::from_secs(3),
        "the killed server's series are gone",
        || Ok((!agent.scrape()?.has_server(&first.name())).then_some(())),
    )?;
    let calls = |scrape: Scrape| {
        let scrape = scrape.of_server(second.port(), second.pid());
        scrape.sum("evictscope_eviction_calls_total", &[])
    };
    let before = calls(agent.scrape()?)?;
    second.write_keys(10_000)?;
    let grown = calls(agent.settled()?)? - before;
    ensure!(grown >= 10_000.0, "{grown} calls of the other server");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_server_that_starts_later_is_seen_within_two_seconds() -> anyhow::Result<()> {
    let agent = Agent::start(&[])?;
    for _ in 0..5 {
        let redis = Redis::start(&[])?;
        let took = agent.wait_for(&redis.name(), Duration::from_secs(2))?;
        println!("seen {took:?} after it answered");
    }
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_server_keeps_its_name_when_the_agent_is_started_anew() -> anyhow::Result<()> {
    let state = tempfile::tempdir()?;
    let directory = format!("--state-dir={}", state.path().display());
    let first = Redis::start_on(port_for_later()?, &[])?;
    let agent = Agent::start(&[&directory])?;
    agent.wait_for(&first.name(), SOON)?;
    // The same port of another address.
    let second = Redis::start_on(first.port(), &["--bind", "127.0.0.2"])?;
    let name = format!("{}@{}", first.port(), second.pid());
    agent.wait_for(&name, SOON)?;
    first.kill()?;
    within(SOON, "the first server is gone", || {
        Ok((!agent.scrape()?.has_server(&first.name())).then_some(()))
    })?;
    let status = agent.end(Signal::TERM)?;
    ensure!(status.success(), "{status}");

    // By itself, it would be called by its port.
    let agent = Agent::start(&[&directory])?;
    agent.wait_for(&name, SOON)?;
    let third = Redis::start_on(first.port(), &[])?;
    agent.wait_for(&first.name(), SOON)?;
    let scrape = agent.scrape()?;
    for (server, name) in [(&second, &name), (&third, &first.name())] {
        let said = scrape.server_info(server.pid());
        let said = said.and_then(|labels| labels.get("server"));
        ensure!(said == Some(name), "{said:?}, not {name}");
    }
    Ok(())
}

/// Returns how many probes the kernel says that it could not take off.
fn leaked_probes() -> anyhow::Result<usize> {
    let log = process::answer_of(&mut Command::new("dmesg"))?;
    Ok(log.matches("leaking uprobe").count())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_signal_ends_the_agent_cleanly_and_sigkill_leaves_no_probe() -> anyhow::Result<()> {
    // No other agent on this host looks for this name. The probes of such an agent would stay.
    let directory = tempfile::tempdir()?;
    let name = format!("probed-{}", std::process::id());
    copy_to(directory.path(), &name)?;
    let start = |_| Redis::start_program(Command::new(directory.path().join(&name)), &[]);
    let servers = (0..4).map(start).collect::<anyhow::Result<Vec<Redis>>>()?;
    let only = format!("^{name}$");
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let leaked = leaked_probes()?;
        let agent = Agent::start(&["--probe-mode", "evicting-only", "--process-match", &only])?;
        for redis in &servers {
            agent.wait_for(&redis.name(), Duration::from_secs(3))?;
            let (attached, _) = code_at_sites(redis)?;
            let all = attached.iter().all(|byte| *byte == 0xcc);
            ensure!(all, "no breakpoints at the sites: {attached:x?}");
        }
        let asked = Instant::now();
        let status = agent.end(signal)?;
        let took = asked.elapsed();
        println!("{signal:?}: {status} after {took:?}");
        if signal != Signal::KILL {
            ensure!(status.success(), "{signal:?}: {status}");
        }
        ensure!(took < Duration::from_secs(2), "{signal:?}: {took:?}");
        for redis in &servers {
            let (left, original) = code_at_sites(redis)?;
            ensure!(left == original, "{signal:?}: {left:x?}, {original:x?}");
            redis.write_keys(1_000)?;
        }
        let leaked_now = leaked_probes()?;
        ensure!(leaked_now <= leaked, "{signal:?}: the kernel lost probes");
    }
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn an_executable_that_was_deleted_or_is_in_another_mount_namespace_is_planned_for()
-> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let deleted = Redis::start_program(copy_to(directory.path(), "redis-server")?, &[])?;
    std::fs::remove_file(directory.path().join("redis-server"))?;

    let hidden_directory = tempfile::tempdir()?;
    let hidden = hidden_directory.path().display();
    let mut program = Command::new("unshare");
    program.args(["--mount", "--propagation", "private", "sh", "-c"]).arg(format!(
        "mount -t tmpfs none {hidden} && cp {} {hidden}/redis-server && exec {hidden}/redis-server \"$@\"",
        redis::executable()?.display()
    ));
    program.arg("sh");
    let hidden = Redis::start_program(program, &[])?;

    let agent = Agent::start(&[])?;
    for redis in [&deleted, &hidden] {
        agent.wait_for(&redis.name(), Duration::from_secs(3))?;
        redis.write_keys(150_000)?;
        let scrape = agent.settled()?.of_server(redis.port(), redis.pid());
        let calls = scrape.sum("evictscope_eviction_calls_total", &[("kind", "evicting")])?;
        ensure!(calls > 1_000.0, "{calls} evicting calls");
    }
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn in_a_pid_namespace_of_its_own_the_agent_refuses_to_run() -> anyhow::Result<()> {
    let output = Command::new("unshare")
        .args(["--fork", "--pid", "--mount-proc", "--kill-child"])
        .arg(evictscope().get_program())
        .args(["run", "--listen", "127.0.0.1:0"])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{}: {said}", output.status);
    ensure!(said.contains("--pid=host"), "{said}");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_port_in_use_is_named_in_the_error() -> anyhow::Result<()> {
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let output = evictscope().args(["run", "--listen", &address]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{}", output.status);
    for part in [&address, "in use", "--listen"] {
        ensure!(said.contains(part), "{said}");
    }
    Ok(())
}
