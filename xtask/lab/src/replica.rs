//! A replica that asks for all data and then reads nothing, as one behind a slow network: what the server writes
//! for it piles up in the buffers that replicas and the replication backlog share.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use crate::parameters::Replica;

/// How often it looks whether its time has come.
const LOOK: Duration = Duration::from_millis(10);

/// Says that all data may come over this connection while the server's child process writes it.
const INTRODUCTION: &[u8] = b"REPLCONF capa eof capa psync2\r\n";
/// Asks for all data.
const ASK: &[u8] = b"PSYNC ? -1\r\n";
/// The answer to the introduction. Redis refuses the request where this has not left.
const WELCOME: &[u8] = b"+OK\r\n";

/// Comes at its time, and stays until `end`, because a thread that has ended would end the load.
pub fn come(replica: &Replica, port: u16, end: &AtomicBool) -> Result<()> {
    let wait = |seconds: f64| {
        let begun = Instant::now();
        while begun.elapsed().as_secs_f64() < seconds && !end.load(Ordering::Relaxed) {
            thread::sleep(LOOK);
        }
    };
    wait(replica.after);
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .context("the replica cannot connect to the redis-server of the lab")?;
    let mut ask = || {
        server.write_all(INTRODUCTION)?;
        let mut answer = [0; WELCOME.len()];
        server.read_exact(&mut answer)?;
        server.write_all(ASK)?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = ask().context("the replica cannot ask for all data")?;
    ensure!(answer == WELCOME, "the redis-server refuses a replica");
    wait(f64::INFINITY);
    Ok(())
}
