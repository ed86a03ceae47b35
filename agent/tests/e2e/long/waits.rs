//! What clients wait for, by the clients' own clocks.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::prelude::*;

const PING: &[u8] = b"PING\r\n";
const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];

fn connect(redis: &Redis) -> anyhow::Result<TcpStream> {
    let mut client = TcpStream::connect(("127.0.0.1", redis.port()))?;
    client.set_nodelay(true)?;
    wait(&mut client, PING)?;
    Ok(client)
}

/// Returns how long the answer to a request took.
fn wait(client: &mut TcpStream, request: &[u8]) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    client.write_all(request)?;
    ensure!(client.read(&mut [0; 64])? > 0, "closed");
    Ok(begun.elapsed())
}

/// A calm server stands still again and again, each time for less than its sockets are usually left alone.
#[test]
#[ignore = "needs root and BPF"]
fn waits_of_a_calm_server_are_those_of_its_clients() -> anyhow::Result<()> {
    let redis = Redis::private(&DEBUG)?;
    let mut clients = (0..20).map(|_| connect(&redis)).collect::<Result<Vec<_>, _>>()?;
    let mut sleeper = connect(&redis)?;
    let agent = Agent::watching(&redis, &[])?;
    let before = agent.settled_reading(&redis)?;
    let mut waits = Vec::new();
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(700));
        thread::scope(|scope| {
            let sleeps = scope.spawn(|| wait(&mut sleeper, b"DEBUG SLEEP 0.15\r\n"));
            thread::sleep(Duration::from_millis(5));
            let all: Vec<_> =
                (clients.iter_mut()).map(|client| scope.spawn(|| wait(client, PING))).chain([sleeps]).collect();
            for client in all {
                waits.push(client.join().map_err(|_| anyhow::anyhow!("panicked"))??);
            }
            anyhow::Ok(())
        })?;
    }
    let after = agent.settled_reading(&redis)?;
    let grown = |name: &str, labels: &[(&str, &str)]| anyhow::Ok(after.sum(name, labels)? - before.sum(name, labels)?);
    let by_clients: f64 = waits.iter().map(Duration::as_secs_f64).sum();
    let by_agent = grown("evictscope_client_wait_seconds_total", &[])?;
    println!("{by_clients} s by the clients, {by_agent} s by the agent");
    ensure!((by_clients * 0.9..by_clients * 1.1).contains(&by_agent), "{by_agent} of {by_clients} s");
    let longer = |ms| waits.iter().filter(|wait| **wait >= Duration::from_millis(ms)).count() as f64;
    let over = grown("evictscope_requests_waited_total", &[("over", "0.1")])?;
    ensure!((longer(110)..=longer(90)).contains(&over), "{over} requests over 0.1 s");
    Ok(())
}

/// They connect, ask, and give up, while the server does something else.
#[test]
#[ignore = "needs root and BPF"]
fn clients_that_give_up_do_not_wait() -> anyhow::Result<()> {
    const MANY: usize = 50;
    let redis = Redis::private(&DEBUG)?;
    let mut sleeper = connect(&redis)?;
    let agent = Agent::watching(&redis, &[])?;
    thread::scope(|scope| {
        let sleeps = scope.spawn(|| wait(&mut sleeper, b"DEBUG SLEEP 4\r\n"));
        thread::sleep(Duration::from_millis(100));
        for _ in 0..MANY {
            let mut client = TcpStream::connect(("127.0.0.1", redis.port()))?;
            client.write_all(PING)?;
        }
        until_true("they are counted", || {
            let scrape = agent.reading(&redis)?;
            let value = |name| scrape.sum(name, &[]);
            let [waiting, connected] = [value("evictscope_clients_waiting")?, value("evictscope_clients_connected")?];
            ensure!(waiting <= connected, "{waiting} of {connected} wait");
            let gave_up = value("evictscope_clients_gave_up_total")?;
            let unanswered = value("evictscope_unanswered_seconds")?;
            Ok(gave_up == MANY as f64 && waiting == 1.0 && unanswered > 1.0)
        })?;
        sleeps.join().map_err(|_| anyhow::anyhow!("panicked"))?
    })?;
    until_true("somebody is answered", || Ok(agent.reading(&redis)?.sum("evictscope_unanswered_seconds", &[])? == 0.0))
}
