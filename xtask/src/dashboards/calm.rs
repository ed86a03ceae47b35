//! A cache at its limit that evicts calmly: as many keys as are written.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};
use evictscope_lab::Client;
use evictscope_testkit::redis::Redis;

/// Its limit.
const OPTIONS: [&str; 2] = ["--maxmemory", "16mb"];
/// The number of new keys that fill it.
const FILLING: u64 = 20_000;
/// New keys a second from then on, each in place of another: a few percent of a core.
const RATE: f64 = 500.0;
/// The bytes of each value.
const VALUE: usize = 1000;
/// How often the keys that are due are written.
const PACE: Duration = Duration::from_millis(5);

/// The server and its one client. Both end when this is dropped.
pub struct Calm {
    // Before the server, because fields are dropped in this order.
    writer: Writer,
    server: Redis,
}

impl Calm {
    /// Starts and fills it.
    pub fn start() -> Result<Self> {
        Self::fill(Redis::start(&OPTIONS)?)
    }

    /// Ends it, and starts another on the same port.
    pub fn restart(mut self) -> Result<Self> {
        let port = self.server.port();
        self.end()?;
        drop(self);
        Self::fill(Redis::start_on(port, &OPTIONS)?)
    }

    fn fill(server: Redis) -> Result<Self> {
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

    /// Returns its name in the metrics.
    pub fn server(&self) -> String {
        self.server.name()
    }

    /// Ends the client, and fails where it could not write all the time.
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
        // A caller who wants the result calls `end`.
        let _ = self.end();
    }
}
