//! Whose requests wait, and who does not read answers, against `ss` and what the clients of this test did.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Command;

use evictscope_model::answers::{PeerCounts, PeersAnswer, PeersSeen};
use evictscope_testkit::process::answer_of;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use super::records::record_of;
use crate::prelude::*;

const PING: &[u8] = b"PING\r\n";
/// How many connections of each peer wait, and how many do not read.
const WAITING: [(&str, usize); 3] = [("127.0.0.3", 10), ("::1", 5), ("unix", 2)];
const SILENT: [(&str, usize); 2] = [("127.0.0.2", 3), ("unix", 1)];

trait Client: Read + Write {}
impl<T: Read + Write> Client for T {}

/// Connects a client that has this address, and has its connection accepted.
fn client(redis: &Redis, from: &str, path: &str) -> anyhow::Result<Box<dyn Client>> {
    let mut client: Box<dyn Client> = match from.parse() {
        Err(_) => Box::new(UnixStream::connect(path)?),
        Ok(from) => {
            let (family, to): (_, IpAddr) = match from {
                IpAddr::V4(_) => (AddressFamily::INET, Ipv4Addr::LOCALHOST.into()),
                IpAddr::V6(_) => (AddressFamily::INET6, Ipv6Addr::LOCALHOST.into()),
            };
            let socket = socket(family, SocketType::STREAM, None)?;
            bind(&socket, &SocketAddr::new(from, 0))?;
            connect(&socket, &SocketAddr::new(to, redis.port()))?;
            Box::new(TcpStream::from(socket))
        }
    };
    client.write_all(PING)?;
    client.read_exact(&mut [0; 7])?;
    Ok(client)
}

/// Returns Recv-Q and Send-Q of the server's connections, by the address of the other side.
fn by_ss(redis: &Redis) -> anyhow::Result<BTreeMap<String, (u64, u64)>> {
    let port = format!("sport = :{}", redis.port());
    let text = answer_of(Command::new("ss").args(["-Htn", "state", "established", &port]))?;
    let mut by_address: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [received, sent, _, peer, ..] = words[..] else { continue };
        let (address, _) = peer.rsplit_once(':').context("no port")?;
        let sums = by_address.entry(address.trim_matches(['[', ']']).to_owned()).or_default();
        sums.0 += received.parse::<u64>()?;
        sums.1 += sent.parse::<u64>()?;
    }
    Ok(by_address)
}

fn seen(agent: &Agent, redis: &Redis) -> anyhow::Result<Option<PeersSeen>> {
    let text = agent.get(&format!("/api/v1/peers?server={}", redis.name()))?;
    let answer: PeersAnswer = serde_json::from_str(&text)?;
    Ok(answer.now.map(|now| now.seen))
}

fn of<'a>(seen: &'a PeersSeen, peer: &str) -> anyhow::Result<&'a PeerCounts> {
    let name = if peer == "unix" { format!("pid {}", std::process::id()) } else { peer.to_owned() };
    seen.worst.iter().find(|of| of.peer == name).with_context(|| format!("no {name} in {seen:?}"))
}

fn must_be_as_ss_says(redis: &Redis, seen: &PeersSeen) -> anyhow::Result<()> {
    let ss = by_ss(redis)?;
    let bytes = |peer: &str| ss.get(peer).copied().unwrap_or_default();
    for (peer, count) in WAITING {
        let counts = of(seen, peer)?;
        ensure!(counts.waiting == count as u64 && counts.unread_bytes == (count * PING.len()) as u64, "{counts:?}");
        ensure!(peer == "unix" || bytes(peer) == (counts.unread_bytes, counts.untaken_bytes), "{ss:?}: {counts:?}");
    }
    for (peer, count) in SILENT {
        let counts = of(seen, peer)?;
        ensure!(counts.not_reading == count as u64 && counts.longest_untaken_seconds >= 1.0, "{counts:?}");
        ensure!(peer == "unix" || bytes(peer) == (0, counts.untaken_bytes), "{ss:?}: {counts:?}");
        println!("{counts:?}");
    }
    let connected = WAITING.iter().chain(&SILENT).map(|(_, count)| *count).sum::<usize>();
    ensure!(seen.all.connections == connected as u64, "{seen:?}");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn who_waits_and_who_does_not_read_is_told_by_address() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("socket");
    let path = path.to_str().context("an odd path")?;
    let redis = Redis::private(&["--unixsocket", path, "--protected-mode", "no", "--bind", "127.0.0.1", "::1"])?;
    let clients = |of: &[(&str, usize)]| -> anyhow::Result<Vec<Box<dyn Client>>> {
        let each = of.iter().flat_map(|(from, count)| std::iter::repeat_n(*from, *count));
        each.map(|from| client(&redis, from, path)).collect()
    };
    let (mut waiting, mut silent) = (clients(&WAITING)?, clients(&SILENT)?);
    silent[0].write_all(b"SETRANGE big 1048575 x\r\n")?;
    silent[0].read_exact(&mut [0; 10])?;
    let agent = Agent::watching(&redis, &[])?;
    let blind = Agent::watching(&redis, &["--peers=false"])?;
    for client in &mut silent {
        client.write_all(&b"GET big\r\n".repeat(6))?;
    }
    let silent_ones = silent.len() as u64;
    let is_silent = || Ok(seen(&agent, &redis)?.is_some_and(|seen| seen.all.not_reading == silent_ones));
    until_true("answers are not read", is_silent)?;

    redis.signal(Signal::STOP)?;
    for client in &mut waiting {
        client.write_all(PING)?;
    }
    let look = until("all wait for a second", || {
        let seen = seen(&agent, &redis)?.filter(|seen| seen.all.waiting == waiting.len() as u64);
        Ok(seen.filter(|seen| seen.all.longest_wait_seconds >= 1.5))
    })?;
    must_be_as_ss_says(&redis, &look)?;
    let page = agent.get(&format!("/server/{}", redis.name()))?;
    for said in ["10 of 17 waiting requests come from 127.0.0.3", "3 connections of 127.0.0.2 do not read: "] {
        ensure!(page.contains(said), "{page}");
    }
    ensure!(!agent.get("/metrics")?.contains("127.0.0.3"), "an address is in a metric");
    until_true("the other agent sees them wait", || {
        Ok(blind.reading(&redis)?.sum("evictscope_clients_waiting", &[])? == waiting.len() as f64)
    })?;
    ensure!(seen(&blind, &redis)?.is_none(), "peers are looked at");
    let page = blind.get(&format!("/server/{}", redis.name()))?;
    ensure!(page.contains("is off") && !page.contains("127.0.0.3"), "{page}");

    redis.signal(Signal::CONT)?;
    for client in &mut waiting {
        client.read_exact(&mut [0; 7])?;
    }
    until_true("nobody waits", || Ok(seen(&agent, &redis)?.is_some_and(|seen| seen.all.waiting == 0)))?;
    // A record that waits is kept when the agent ends.
    agent.end(Signal::TERM)?;
    let peers = record_of(&agent, |_| true)?.peers;
    ensure!(peers.iter().any(|look| look.seen.all.waiting == waiting.len() as u64), "{peers:?}");
    ensure!(peers.iter().any(|look| of(&look.seen, "127.0.0.2").is_ok_and(|of| of.not_reading == 3)), "{peers:?}");
    Ok(())
}
