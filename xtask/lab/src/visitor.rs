//! What comes to a server under load, besides its clients.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::clock::unix_time;

use crate::client::Client;
use crate::scenario::{Visitor, What};

/// How often it checks whether its time has come.
const LOOK: Duration = Duration::from_millis(10);

/// Says that all data may come over this connection while the server's child process writes it.
const INTRODUCTION: &[u8] = b"REPLCONF capa eof capa psync2\r\n";
const ASK: &[u8] = b"PSYNC ? -1\r\n";
/// The answer to the introduction. Redis refuses the request if this has not been sent.
const WELCOME: &[u8] = b"+OK\r\n";

const SUBSCRIBERS: usize = 20;
/// The size of a message, in bytes. All subscribers together are owed 6.5 MB a second.
const MESSAGE: usize = 32 * 1024;
/// From one message to the next, in seconds.
const BETWEEN_MESSAGES: f64 = 0.1;

/// Keys that expire at once, and how many of them a script writes.
const PILE: u64 = 2_000_000;
const AT_ONCE: usize = 1_000;
const BETWEEN_SCRIPTS: Duration = Duration::from_millis(4);
/// Writes keys from the first one to the last one, which expire at a given time, or up to a given number of
/// milliseconds later.
const WRITE: &str = "for i = ARGV[1], ARGV[2] do \
     redis.call('SET', 'pile:' .. i, 'value', 'PXAT', ARGV[3] + math.random(0, ARGV[4])) end return 'OK'";

/// Comes at its time, and stays until `end`, because a thread that has ended would end the load.
pub fn come(visitor: &Visitor, port: u16, end: &AtomicBool) -> Result<()> {
    let is_over = || end.load(Ordering::Relaxed);
    let wait = |seconds: f64| {
        let begun = Instant::now();
        while begun.elapsed().as_secs_f64() < seconds && !is_over() {
            thread::sleep(LOOK);
        }
    };
    if let What::Pile { spread } = visitor.what {
        // Its time is when the keys expire.
        let mut client = Client::connect(port)?;
        let expires = ((unix_time()? + visitor.after) * 1e3).round();
        for first in (1..=PILE).step_by(AT_ONCE) {
            if is_over() {
                return Ok(());
            }
            let last = first + AT_ONCE as u64 - 1;
            let numbers = [first as f64, last as f64, expires, spread * 1e3];
            let [first, last, expires, spread] = &numbers.map(|number| number.to_string());
            client.call(&["EVAL", WRITE, "0", first, last, expires, spread])?;
            thread::sleep(BETWEEN_SCRIPTS);
        }
    }
    wait(visitor.after);
    // They stay, too.
    let mut connections = Vec::new();
    match visitor.what {
        What::Replica => connections.push(replica(port).context("no replica can come")?),
        What::Subscribers => {
            for _ in 0..SUBSCRIBERS {
                let subscriber = ask(port, b"SUBSCRIBE news\r\n");
                connections.push(subscriber.context("no subscriber can come")?);
            }
            let (mut publisher, message) = (Client::connect(port)?, "m".repeat(MESSAGE));
            while !is_over() {
                publisher.call(&["PUBLISH", "news", &message])?;
                wait(BETWEEN_MESSAGES);
            }
        }
        What::Pile { .. } => {}
    }
    wait(f64::INFINITY);
    drop(connections);
    Ok(())
}

fn ask(port: u16, request: &[u8]) -> io::Result<TcpStream> {
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    server.write_all(request)?;
    Ok(server)
}

fn replica(port: u16) -> Result<TcpStream> {
    let mut server = ask(port, INTRODUCTION)?;
    let mut answer = [0; WELCOME.len()];
    server.read_exact(&mut answer)?;
    ensure!(answer == WELCOME, "the redis-server refuses it");
    server.write_all(ASK)?;
    Ok(server)
}
