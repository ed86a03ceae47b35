//! A load that makes a server at its limit evict all the time.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};

/// While one thread reads its answers, the server works for the others.
const THREADS: u32 = 4;
/// Connections of each thread. A server that evicts takes more than a tenth of a second to serve all of them.
const CONNECTIONS: u32 = 200;
/// How many commands are sent on each connection before any answer is read.
const AT_ONCE: u32 = 50;
/// Bytes of a value: small, so that evicting takes longer than reading it.
const VALUE: usize = 256;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Threads that write keys.
pub struct Load(Vec<JoinHandle<anyhow::Result<()>>>);

impl Load {
    /// Starts writing keys that are new each time, for `lasting`. It ends by itself.
    pub fn start(server: SocketAddr, lasting: Duration) -> anyhow::Result<Self> {
        let until = Instant::now() + lasting;
        let threads = (0..THREADS).map(|number| {
            thread::Builder::new().name("load".to_owned()).spawn(move || write_keys(server, number, until))
        });
        let threads = threads.collect::<Result<_, _>>();
        Ok(Self(threads.context("cannot start a thread")?))
    }

    /// Returns whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.0.iter().all(JoinHandle::is_finished)
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    ///
    /// Fails if the server did not answer each command with `OK`.
    pub fn end(self) -> anyhow::Result<()> {
        for thread in self.0 {
            let ended = thread.join();
            ended.map_err(|_| anyhow!("the load panicked; please report this"))??;
        }
        Ok(())
    }
}

fn write_keys(server: SocketAddr, thread: u32, until: Instant) -> anyhow::Result<()> {
    let connect = |_| {
        let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    };
    let mut streams = (0..CONNECTIONS).map(connect).collect::<anyhow::Result<Vec<_>>>()?;
    let value = "x".repeat(VALUE);
    let right = b"+OK\r\n".repeat(AT_ONCE as usize);
    let mut answers = vec![0; right.len()];
    let mut next = 0_u64;
    while Instant::now() < until {
        for stream in &mut streams {
            let mut commands = Vec::new();
            for _ in 0..AT_ONCE {
                let key = format!("{thread}:{next:012}");
                let length = key.len();
                write!(commands, "*3\r\n$3\r\nSET\r\n${length}\r\n{key}\r\n${VALUE}\r\n{value}\r\n")?;
                next += 1;
            }
            stream.write_all(&commands)?;
        }
        for stream in &mut streams {
            stream.read_exact(&mut answers)?;
            ensure!(answers == right, "the server answered a SET with an error");
        }
    }
    Ok(())
}
