//! A replica that asks for all data and then reads nothing, as one behind a slow network: what the server writes
//! for it piles up in the buffers that replicas and the replication backlog share.

use std::{
    io::Write as _,
    net::{Ipv4Addr, TcpStream},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use crate::{
    parameters::Replica,
    record::{Line, What, tell},
};

/// How often it looks whether its time has come.
const LOOK: Duration = Duration::from_millis(10);

/// Asks for all data over this connection, also while the server's child process writes it.
const ASK: &[u8] = b"REPLCONF capa eof capa psync2\r\nPSYNC ? -1\r\n";

/// Comes at its time, and stays until `end`, because a thread that has ended would end the load.
pub fn come(replica: &Replica, port: u16, end: &AtomicBool, lines: &Sender<Line>) -> Result<()> {
    let wait = |seconds: f64| {
        let begun = Instant::now();
        while begun.elapsed().as_secs_f64() < seconds && !end.load(Ordering::Relaxed) {
            thread::sleep(LOOK);
        }
    };
    wait(replica.after);
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .context("the replica cannot connect to the redis-server of the lab")?;
    server.write_all(ASK).context("the replica cannot ask")?;
    tell(lines, What::ReplicaComes)?;
    wait(f64::INFINITY);
    Ok(())
}
