//! A cache that lives at its limit, and evicts as much as is written, calmly.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};

use crate::{lab::Client, redis::Server};

/// Its limit.
const MAXMEMORY: &str = "16mb";
/// New keys that fill it.
const FILLING: u64 = 20_000;
/// New keys a second from then on, each of which takes the place of another: a few percent of a core.
const RATE: f64 = 500.0;
/// Bytes of each.
const VALUE: usize = 1000;
/// How often those that are due are written.
const PACE: Duration = Duration::from_millis(5);

/// The server, and its one client; both end when it is dropped.
pub struct Calm {
    // Before the server, because fields are dropped in this order.
    writer: Writer,
    server: Server,
}

impl Calm {
    /// Starts and fills it.
    pub fn start() -> Result<Self> {
        let server = Server::start_with(MAXMEMORY, &[])?;
        let mut client = Client::connect(server.port())?;
        let value = "x".repeat(VALUE);
        let mut written = 0;
        let mut write_until = move |keys: u64| {
            while written < keys {
                client.call(&["set", &format!("key:{written}"), &value])?;
                written += 1;
            }
            anyhow::Ok(())
        };
        write_until(FILLING)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let begun = Instant::now();
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                thread::sleep(PACE);
                let due = begun.elapsed().as_secs_f64() * RATE;
                write_until(FILLING + due as u64)?;
            }
            Ok(())
        });
        Ok(Self {
            writer: Writer {
                stop,
                thread: Some(thread),
            },
            server,
        })
    }

    /// Its name in the metrics.
    pub fn server(&self) -> String {
        self.server.port().to_string()
    }

    /// Ends the client: whether it could write all the time.
    pub fn end(&mut self) -> Result<()> {
        self.writer.end()
    }
}

struct Writer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Writer {
    fn end(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map_or(Ok(Ok(())), JoinHandle::join);
        ended
            .map_err(|_| anyhow!("the writer of the calm server panicked"))?
            .context("the calm server")
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Asked for by `end`, where anyone wants to know.
        let _ = self.end();
    }
}
