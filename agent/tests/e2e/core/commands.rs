//! What the agent says of commands, against the server's own `INFO commandstats`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use evictscope_records::Occasion;
use evictscope_records::explain::explain;
use evictscope_testkit::servers::{PACKAGED, on_each};

use super::records::record_of;
use crate::prelude::*;

/// A request whose answers are read until the server closes the connection.
const END: &str = "\r\nQUIT\r\n";

/// How many clients send a long MGET at once.
const MGETS: u64 = 300;

#[test]
#[ignore = "needs root and BPF"]
fn commands_are_counted_as_the_server_does_on_every_build() -> anyhow::Result<()> {
    on_each(&PACKAGED, compare)
}

fn compare(program: &Path) -> anyhow::Result<()> {
    let redis = Redis::private_of(program, &["--maxmemory", "0"])?;
    let agent = Agent::watching(&redis, &[])?;
    let script = "for i=1,2000 do redis.call('set','k'..i,i) redis.call('get','k'..i) redis.call('incr','n') end";
    for command in [
        &["eval", script, "0"][..],
        &["rpush", "list", "1", "2"],
        &["hset", "hash", "field", "1"],
        &["zadd", "set", "1", "one"],
        &["mget", "k1", "k2", "k3"],
        &["keys", "*9*"],
        &["config", "get", "maxmemory"],
        &["object", "encoding", "list"],
        &["expire", "k1", "100"],
    ] {
        redis.cli(command)?;
    }
    // One that fails, and one that is refused.
    let _ = (redis.cli(&["incr", "list"]), redis.cli(&["get"]));
    let counts = agent.same_counts_by_command(&redis)?;
    let failed = counts.get("incr").context("INCR was not counted")?;
    ensure!(counts.len() >= 10, "{counts:?}");
    println!("{}: {} commands, INCR {failed:?}", program.display(), counts.len());
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_stall_names_the_commands_that_took_its_time() -> anyhow::Result<()> {
    let redis = Redis::private(&["--maxmemory", "0", "--enable-debug-command", "yes"])?;
    redis.cli(&["debug", "populate", "800000", "k"])?;
    let agent = Agent::watching(&redis, &[])?;
    let before = redis.counts_by_command()?;
    let ask = |request: &str| -> anyhow::Result<TcpStream> {
        let mut client = TcpStream::connect(("127.0.0.1", redis.port()))?;
        client.write_all(format!("{request}{END}").as_bytes())?;
        Ok(client)
    };
    let script = "EVAL 'local i=0 while i<30000000 do i=i+1 end' 0";
    let keys: Vec<String> = (1..=4_000).map(|key| format!("k:{key}")).collect();
    let mget = format!("MGET {}", keys.join(" "));
    let mut clients = vec![ask(script)?];
    // The others wait for it.
    std::thread::sleep(Duration::from_millis(100));
    clients.extend([ask("KEYS *x*")?, ask(script)?, ask(script)?]);
    for _ in 0..MGETS {
        clients.push(ask(&mget)?);
    }
    for mut client in clients {
        client.read_to_end(&mut Vec::new())?;
    }
    let after = redis.counts_by_command()?;
    until_true("it is known what all of them took", || {
        let answer = agent.commands(&redis)?;
        let calls = |name| answer.commands.iter().find(|command| command.command == name).map(|command| command.calls);
        Ok(calls("mget") == Some(MGETS) && agent.reading(&redis)?.sum("evictscope_stall_seconds_total", &[])? > 1.0)
    })?;
    agent.end(Signal::TERM)?;
    let explanation = explain(&record_of(&agent, |summary| summary.occasion == Occasion::Stall)?);
    // If the machine is busy, the lack of a CPU is the cause, and the commands are evidence.
    let evidence = explanation.causes.iter().flat_map(|cause| &cause.evidence);
    let text = evidence.fold(explanation.why.clone(), |text, evidence| text + " " + evidence);
    println!("{text}");

    let took = |name: &str| (after[name][1] - before.get(name).map_or(0, |counts| counts[1])) as f64;
    let all: f64 = ["eval", "keys", "mget"].map(took).iter().sum();
    for name in ["eval", "keys", "mget"] {
        let percent = 100.0 * took(name) / all;
        let named = text.split([':', ',', '.', ';']).find_map(|part| {
            part.trim().strip_prefix(&name.to_uppercase())?.trim().strip_suffix(" %")?.parse::<f64>().ok()
        });
        println!("{name}: {percent:.1} % by the server, {named:?} in the record");
        match named {
            Some(named) => ensure!((named - percent).abs() <= 5.0, "{name} took {percent} %: {text}"),
            None => ensure!(percent < 15.0, "{name} took {percent} %: {text}"),
        }
    }
    Ok(())
}
