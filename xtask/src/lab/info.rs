//! What the server says of itself: `INFO`, at fixed times, with the time at which it was true.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use rustix::process::setpriority_process;

use super::{client::Client, clock::Clock, record::Line};

/// From one question to the next. In each round of the event loop of a server that works off a backlog,
/// memory swells by tens of MiB, and what was asked first in the round before is answered first, when
/// it is at its lowest. Rounds take 0.1 s and more: so often, that is within a twentieth of one.
const INTERVAL: Duration = Duration::from_millis(5);

/// What is asked: an answer takes 50 µs of the main thread, 1 % of it.
const QUESTION: [&str; 6] = ["INFO", "server", "clients", "memory", "stats", "cpu"];

/// A saturated server answers in each round of its event loop what was asked in the round before, and
/// a round may take a second and more: with one connection there would be one answer a round. Each
/// question has a connection of its own; so many may be unanswered.
const CONNECTIONS: usize = 600;

/// The lowest nice value.
const MOST_FAVOURED: i32 = -20;

/// One answer to `INFO`. Times are seconds since 1970; sizes are bytes.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Sample {
    /// When the server wrote the answer, by its own clock (`server_time_usec`).
    pub at: f64,
    /// When it was asked.
    pub sent: f64,
    /// When the answer was here.
    pub received: f64,
    /// `used_memory`
    pub used_memory: u64,
    /// `maxmemory`
    pub maxmemory: u64,
    /// `mem_clients_normal`
    pub client_buffers: u64,
    /// `evicted_keys`
    pub evicted_keys: u64,
    /// `expired_keys`
    pub expired_keys: u64,
    /// `total_commands_processed`
    pub commands: u64,
    /// `used_cpu_user_main_thread` + `used_cpu_sys_main_thread`, seconds.
    pub main_thread_cpu: f64,
    /// `connected_clients`
    pub clients: u64,
}

impl Sample {
    /// Asks the server now.
    pub fn take(client: &mut Client, clock: &Clock) -> Result<Self> {
        let sent = clock.now();
        let text = client.call(&QUESTION)?;
        Self::parse(&text, sent, clock.now())
    }

    fn parse(text: &str, sent: f64, received: f64) -> Result<Self> {
        let value = |name: &str| -> Result<f64> {
            let found = text.lines().find_map(|line| {
                let value = line.strip_prefix(name)?.strip_prefix(':')?;
                value.trim().parse().ok()
            });
            found.with_context(|| {
                format!("INFO of this redis-server has no {name}: the lab needs Redis 7.0 or later")
            })
        };
        let count = |name: &str| Ok::<_, anyhow::Error>(value(name)? as u64);
        Ok(Self {
            at: value("server_time_usec")? / 1e6,
            sent,
            received,
            used_memory: count("used_memory")?,
            maxmemory: count("maxmemory")?,
            client_buffers: count("mem_clients_normal")?,
            evicted_keys: count("evicted_keys")?,
            expired_keys: count("expired_keys")?,
            commands: count("total_commands_processed")?,
            main_thread_cpu: value("used_cpu_user_main_thread")?
                + value("used_cpu_sys_main_thread")?,
            clients: count("connected_clients")?,
        })
    }
}

/// Starts to ask at fixed times, until `stop`, however late the answers are.
pub fn start(
    port: u16,
    clock: Clock,
    stop: &Arc<AtomicBool>,
    lines: &Sender<Line>,
) -> Result<Vec<JoinHandle<Result<()>>>> {
    // Without a place to wait in: a question is asked at its time or not at all.
    let (ask, asked) = mpsc::sync_channel(0);
    let asked = Arc::new(Mutex::new(asked));
    let mut threads = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = Client::connect(port)?;
        let (asked, lines) = (Arc::clone(&asked), lines.clone());
        threads.push(thread::spawn(move || {
            be_prompt();
            while next(&asked) {
                let sample = Sample::take(&mut client, &clock)?;
                if lines.send(Line::Info(sample)).is_err() {
                    break;
                }
            }
            Ok(())
        }));
    }
    let stop = Arc::clone(stop);
    threads.push(thread::spawn(move || {
        be_prompt();
        let mut due = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            // When nobody is free, there are questions enough.
            let _ = ask.try_send(());
            due += INTERVAL;
        }
        Ok(())
    }));
    Ok(threads)
}

/// Before the generator, which shares this core: a question that waits for it is asked in the middle of
/// a round.
fn be_prompt() {
    // A user who is not root may not; the record is coarser then.
    let _ = setpriority_process(None, MOST_FAVOURED);
}

/// Waits until there is to be asked; false when there is not any more.
fn next(asked: &Mutex<Receiver<()>>) -> bool {
    // Another thread's panic leaves a receiver as it was.
    let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
    asked.recv().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Server\r\nserver_time_usec:1000000500000\r\n# Clients\r\n\
        connected_clients:3000\r\nused_memory:1024\r\nused_memory_human:1.00K\r\nmaxmemory:2048\r\n\
        mem_clients_normal:512\r\ntotal_commands_processed:99\r\nexpired_keys:1\r\n\
        evicted_keys:7\r\nused_cpu_sys_main_thread:0.25\r\nused_cpu_user_main_thread:1.5\r\n";

    #[test]
    fn the_fields_are_those_of_the_whole_name() -> Result<()> {
        let sample = Sample::parse(TEXT, 999_999.0, 1_000_001.0)?;
        assert_eq!(sample.at, 1_000_000.5);
        assert_eq!(sample.used_memory, 1024);
        assert_eq!(sample.evicted_keys, 7);
        assert_eq!(sample.main_thread_cpu, 1.75);
        Ok(())
    }

    #[test]
    fn a_missing_field_is_named() {
        let text = TEXT.replace("evicted_keys", "other");
        let error = Sample::parse(&text, 0.0, 1.0).map_err(|error| error.to_string());
        assert!(error.is_err_and(|error| error.contains("evicted_keys")));
    }
}
