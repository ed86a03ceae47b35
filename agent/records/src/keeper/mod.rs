//! The thread that writes records and the labels of live servers, so that no server's thread waits for a disk.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use evictscope_telemetry::microseconds;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::explain::{CauseKind, explain};
use crate::store::StoreError;
use crate::{Labelled, Record, RecordId, Store};

/// The most records that may wait to be written. Each has some MB.
const MOST_WAITING: usize = 8;
/// How often the thread counts what is kept, and retries labels that it could not write.
const INTERVAL: Duration = Duration::from_secs(30);
/// For how long it is known which causes records name.
const NAMED: Duration = Duration::from_secs(3_600);
/// How often the ending agent checks whether the thread has ended.
const LOOK: Duration = Duration::from_millis(5);
/// How long the ending agent waits for the disk.
const PATIENCE: Duration = Duration::from_secs(20);

/// Tells a requester that a record was written, or why it was not.
pub type Tell = oneshot::Sender<Result<RecordId, String>>;

/// Hands work to the thread that writes. Clones share it.
#[derive(Clone, Debug)]
pub struct Keeper(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    queue: Mutex<Queue>,
    has_changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread must write, and what it has done.
#[derive(Debug, Default)]
struct Queue {
    records: VecDeque<(Record, Vec<Tell>)>,
    /// The live servers, if they have changed.
    labels: Option<Vec<Labelled>>,
    is_ending: bool,
    counts: KeeperCounts,
    causes: Causes,
    /// Why nothing can be written, if that was logged.
    trouble: Option<String>,
}

/// The causes that records of a server name, and when what the last of them is about ended, microseconds since 1970.
pub type Causes = BTreeMap<(String, CauseKind), u64>;

/// What the thread has done, for metrics: how many records were written and could not be written, and how many are
/// kept, with how many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the line above says what they are")]
pub struct KeeperCounts {
    pub written: u64,
    pub failed: u64,
    pub records: u64,
    pub bytes: u64,
}

impl Keeper {
    /// Starts the thread. Fails if the thread cannot be started.
    pub fn start(store: Store) -> io::Result<Self> {
        let mut queue = Queue::default();
        queue.count_kept(store.kept());
        let inner =
            Arc::new(Inner { store, queue: Mutex::new(queue), has_changed: Condvar::new(), thread: Mutex::default() });
        let writing = inner.clone();
        let thread = std::thread::Builder::new().name("records".to_owned()).spawn(move || writing.write_all())?;
        *inner.thread.lock() = Some(thread);
        Ok(Self(inner))
    }

    /// Has a record written, and then tells its requesters. Never waits for the disk: if too many records wait for it,
    /// or the thread has ended, this one is counted as failed, and a warning is logged.
    pub fn keep(&self, record: Record, tell: Vec<Tell>) {
        let has_ended = self.0.thread.lock().as_ref().is_none_or(JoinHandle::is_finished);
        let mut queue = self.0.queue.lock();
        if queue.records.len() < MOST_WAITING && !has_ended {
            queue.records.push_back((record, tell));
            self.0.has_changed.notify_all();
            return;
        }
        queue.counts.failed += 1;
        drop(queue);
        let why = if has_ended {
            "the thread that writes records has ended: restart evictscope".to_owned()
        } else {
            format!("{MOST_WAITING} records already wait for the disk: try again later")
        };
        tracing::warn!(record = record.id.as_str(), "lost: {why}");
        tell_all(tell, &Err(why));
    }

    /// Reads the servers that were live when the previous agent ended, with their labels. Logs a warning if they cannot
    /// be read.
    pub fn remembered(&self) -> Vec<Labelled> {
        let labels = self.0.store.labels();
        labels.read().unwrap_or_else(|error| {
            let file = labels.path();
            tracing::warn!(
                "cannot read {}: {error}; servers that share a port may have other names than before",
                file.display()
            );
            Vec::new()
        })
    }

    /// Has these remembered as the live servers. Never waits for the disk.
    pub fn remember(&self, labels: Vec<Labelled>) {
        self.0.queue.lock().labels = Some(labels);
        self.0.has_changed.notify_all();
    }

    /// Returns the directory of records.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Returns what has been done so far.
    pub fn counts(&self) -> KeeperCounts {
        self.0.queue.lock().counts
    }

    /// Returns the causes that records of the last hour name.
    pub fn causes(&self) -> Causes {
        let causes = &mut self.0.queue.lock().causes;
        causes.retain(|_, ended_us| unix_us().saturating_sub(*ended_us) < microseconds(NAMED));
        causes.clone()
    }

    /// Writes what is waiting, and ends the thread. Waits some seconds for the disk at most.
    pub fn finish(&self) {
        self.finish_within(PATIENCE);
    }

    fn finish_within(&self, patience: Duration) {
        self.0.queue.lock().is_ending = true;
        self.0.has_changed.notify_all();
        let Some(thread) = self.0.thread.lock().take() else { return };
        let since = Instant::now();
        while !thread.is_finished() {
            if since.elapsed() > patience {
                tracing::warn!("the disk takes too long: the last records are lost");
                return;
            }
            std::thread::sleep(LOOK);
        }
        if thread.join().is_err() {
            tracing::error!("the thread that writes records panicked; please report this");
        }
    }
}

impl Inner {
    fn write_all(&self) {
        // Labels that could not be written are retried.
        let mut labels = None;
        let mut has_warned = false;
        loop {
            let mut queue = self.queue.lock();
            let is_idle = |queue: &mut Queue| queue.records.is_empty() && queue.labels.is_none() && !queue.is_ending;
            self.has_changed.wait_while_for(&mut queue, is_idle, INTERVAL);
            let is_ending = queue.is_ending;
            labels = queue.labels.take().or(labels);
            drop(queue);
            if let Some(all) = &labels {
                match self.store.labels().write(all) {
                    Ok(()) => (labels, has_warned) = (None, false),
                    Err(_) if has_warned => {}
                    Err(error) => {
                        tracing::warn!(
                            "cannot write {}: {error}; after a restart of the agent, servers that share a port may have other names",
                            self.store.labels().path().display()
                        );
                        has_warned = true;
                    }
                }
            }
            loop {
                let next = self.queue.lock().records.pop_front();
                let Some((record, tell)) = next else { break };
                let written = self.store.write(&record).map(|_| ());
                tell_all(tell, &written.as_ref().map_err(ToString::to_string).map(|()| record.id.clone()));
                let named = if written.is_ok() { explain(&record).causes } else { Vec::new() };
                let mut queue = self.queue.lock();
                let label = &record.server.label;
                queue.causes.extend(named.iter().map(|cause| ((label.clone(), cause.kind), record.ended_us)));
                queue.count(&record, written);
            }
            let kept = self.store.kept();
            self.queue.lock().count_kept(kept);
            if is_ending {
                return;
            }
        }
    }
}

impl Queue {
    /// Counts a record that was written or lost. Logs once that nothing can be written, and once that it can again.
    fn count(&mut self, record: &Record, written: Result<(), StoreError>) {
        let name = record.id.as_str();
        match written {
            Ok(()) => {
                self.counts.written += 1;
                tracing::info!(record = name, server = record.server.label, "kept");
                if self.trouble.take().is_some() {
                    tracing::info!("records can be written again");
                }
            }
            Err(error) => {
                self.counts.failed += 1;
                tracing::debug!(record = name, "lost: {error}");
                if self.trouble.is_none() {
                    tracing::warn!(
                        "{error}; everything else works, and evictscope_records_failed_total counts what is lost"
                    );
                    self.trouble = Some(error.to_string());
                }
            }
        }
    }

    fn count_kept(&mut self, kept: Result<(u64, u64), StoreError>) {
        if let Ok(kept) = kept {
            (self.counts.records, self.counts.bytes) = kept;
        }
    }
}

fn tell_all(tell: Vec<Tell>, said: &Result<RecordId, String>) {
    for tell in tell {
        // The requester may be gone.
        let _ = tell.send(said.clone());
    }
}

/// Returns the time, microseconds since 1970.
pub fn unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, microseconds)
}

#[cfg(test)]
mod tests;
