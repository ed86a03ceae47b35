//! `evictscope trace` counts the calls that the server counts, and leaves nothing behind.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, ExitStatus};

use evictscope_testkit::process;
use evictscope_testkit::wait::HANG;

use crate::prelude::*;

const COMMANDS: usize = 3_000;

struct Trace(Owned);

impl Trace {
    /// Starts it, and waits until the probes are on. It has no limit that matters: what it costs is tested elsewhere.
    fn start(redis: &Redis, function: &str, options: &[&str]) -> anyhow::Result<Self> {
        let mut command = evictscope();
        command
            .args(["trace", &redis.pid().to_string(), function])
            .args(["--seconds", "120", "--overhead-budget", "100%"])
            .args(options);
        let trace = Self(Owned::start(&mut command)?);
        trace.0.until("the trace is attached", || Ok(trace.0.log()?.contains("\nattached for ").then_some(())))?;
        Ok(trace)
    }

    /// Sends a signal, and waits until the trace has ended.
    fn ended_by(&self, signal: Signal) -> anyhow::Result<ExitStatus> {
        self.0.signal(signal)?;
        let has_ended = || Ok(self.0.must_be_alive().is_err());
        until_true("the trace has ended", has_ended).with_context(|| format!("{signal:?}"))?;
        // It has ended: this returns how.
        self.0.end(signal)
    }

    /// Ends it as Ctrl-C does, and returns all that it has printed.
    fn end(&self) -> anyhow::Result<String> {
        let status = self.ended_by(Signal::INT)?;
        let log = self.0.log()?;
        ensure!(status.success(), "{status}: {log}");
        Ok(log)
    }
}

/// Returns how many calls a summary has.
fn calls(printed: &str, function: &str) -> anyhow::Result<usize> {
    let summary = printed.lines().rev().find(|line| line.starts_with(function) && line.contains(" calls in "));
    let (_, calls) =
        summary.with_context(|| format!("no summary: {printed}"))?.split_once(": ").context("no number")?;
    let (calls, _) = calls.split_once(' ').context("no number")?;
    Ok(calls.parse()?)
}

/// Sends a command `times` times, each after the answer to the previous one.
fn send(redis: &Redis, command: &str, answer: &str, times: usize) -> anyhow::Result<()> {
    let mut client = TcpStream::connect(("127.0.0.1", redis.port()))?;
    let mut read = vec![0; answer.len()];
    for _ in 0..times {
        client.write_all(command.as_bytes())?;
        client.read_exact(&mut read)?;
        ensure!(read == answer.as_bytes(), "{}", String::from_utf8_lossy(&read));
    }
    Ok(())
}

/// Returns how many calls of a command the server has counted.
fn counted(redis: &Redis, command: &str) -> anyhow::Result<usize> {
    Ok(redis.counts_by_command()?.get(command).map_or(0, |[calls, ..]| *calls as usize))
}

#[test]
#[ignore = "needs root and BPF"]
fn calls_are_those_that_the_server_counts() -> anyhow::Result<()> {
    let redis = Redis::private(&[])?;
    redis.cli(&["set", "key", "value"])?;
    let trace = Trace::start(&redis, "get", &[])?;
    let before = counted(&redis, "get")?;
    send(&redis, "GET key\r\n", "$5\r\nvalue\r\n", COMMANDS)?;
    let after = counted(&redis, "get")?;
    let printed = trace.end()?;
    ensure!(after - before == COMMANDS);
    ensure!(calls(&printed, "getCommand")? == COMMANDS, "{printed}");
    ensure!(printed.contains("getCommand, which implements GET"), "{printed}");
    ensure!(Code::of(redis.pid())?.changed()?.is_empty());
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn it_counts_beside_a_running_agent_and_so_does_that() -> anyhow::Result<()> {
    let redis = Redis::private(&["--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru"])?;
    redis.write_keys(20_000)?;
    let agent = Agent::watching(&redis, &["--probe-mode", "every-call"])?;
    let all = || agent.settled_reading(&redis)?.sum("evictscope_eviction_calls_total", &[]);
    // Each command makes a call.
    let counts = || {
        send(&redis, "PING\r\n", "+PONG\r\n", 1)?;
        Ok(all().is_ok_and(|calls| calls > 0.0))
    };
    until_true("the agent counts calls", counts)?;
    let before = all()?;
    let trace = Trace::start(&redis, "performEvictions", &[])?;
    send(&redis, "PING\r\n", "+PONG\r\n", COMMANDS)?;
    let printed = trace.end()?;
    let traced = calls(&printed, "performEvictions")?;
    ensure!(traced >= COMMANDS, "{printed}");
    let is_all = || Ok(all()? - before >= traced as f64);
    until_true(&format!("the agent counts the {traced} calls that were traced"), is_all)?;
    // A timer may go on with an eviction before the trace begins, or after it has ended.
    let more = all()? - before;
    ensure!(more <= traced as f64 + 100.0, "the agent counted {more}, the trace {traced}");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn slow_calls_say_whether_an_eviction_ran_inside() -> anyhow::Result<()> {
    let redis = Redis::private(&["--maxmemory", "20mb", "--maxmemory-policy", "allkeys-lru"])?;
    // Within the limit, no call has an eviction inside.
    let trace = Trace::start(&redis, "processCommand", &["--slower", "1us"])?;
    send(&redis, "SET key value\r\n", "+OK\r\n", 100)?;
    let calm = trace.end()?;
    ensure!(calls(&calm, "processCommand")? == 100, "{calm}");
    ensure!(!calm.contains("  main    eviction"), "{calm}");

    redis.write_keys(60_000)?;
    let evicted = redis.info("evicted_keys")?;
    let trace = Trace::start(&redis, "processCommand", &["--slower", "1us"])?;
    let value = "x".repeat(20_000);
    // More than the clients that filled it gave back when they ended.
    for key in 0..500 {
        send(&redis, &format!("SET {key} {value}\r\n"), "+OK\r\n", 1)?;
    }
    let printed = trace.end()?;
    ensure!(redis.info("evicted_keys")? > evicted, "nothing was evicted");
    ensure!(printed.contains("  main    eviction"), "{printed}");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn however_it_ends_nothing_is_left() -> anyhow::Result<()> {
    let redis = Redis::private(&[])?;
    let code = Code::of(redis.pid())?;
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL] {
        let trace = Trace::start(&redis, "processCommand", &["--slower", "1ms"])?;
        ensure!(!code.changed()?.is_empty(), "no probe is on");
        trace.ended_by(signal)?;
        // If it was killed, the kernel takes them off.
        until_true("all probes are off", || Ok(code.changed()?.is_empty()))?;
        send(&redis, "PING\r\n", "+PONG\r\n", 10)?;
    }
    // A reader that goes away.
    let pid = redis.pid().to_string();
    let program = evictscope();
    let piped = format!("{:?} trace {pid} processCommand --seconds 1200 | head -n 1", program.get_program());
    let limit = HANG.as_secs().to_string();
    let head = process::answer_of(Command::new("timeout").args([&limit, "sh", "-c", &piped]))?;
    ensure!(head.starts_with("tracing processCommand"), "{head}");
    // The shell may end before the trace.
    until_true("all probes are off", || Ok(code.changed()?.is_empty()))
}

#[test]
#[ignore = "needs root and BPF"]
fn it_ends_with_the_server() -> anyhow::Result<()> {
    let redis = Redis::private(&[])?;
    let trace = Trace::start(&redis, "PING", &[])?;
    send(&redis, "PING\r\n", "+PONG\r\n", 10)?;
    redis.kill()?;
    let has_ended = || {
        let log = trace.0.log()?;
        Ok(log.contains("has ended").then_some(log))
    };
    let printed = until("the trace says that the server has ended", has_ended)?;
    ensure!(calls(&printed, "pingCommand")? == 10, "{printed}");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_busy_function_is_observed_for_a_part_of_the_time() -> anyhow::Result<()> {
    let redis = Redis::private(&[])?;
    redis.cli(&["set", "key", "value"])?;
    let _load = redis.load("-n 100000000 -P 16 -c 4 get key")?;
    let pid = redis.pid().to_string();
    let before = counted(&redis, "get")?;
    let printed = process::answer_of(evictscope().args(["trace", &pid, "GET", "--seconds", "10"]))?;
    let all = counted(&redis, "get")? - before;
    ensure!(printed.contains(" were observed: "), "{printed}");
    // Without a budget it would be all of them.
    let seen = calls(&printed, "getCommand")?;
    ensure!(seen > 0 && seen < all / 2, "{seen} of {all}: {printed}");
    Ok(())
}
