//! The thread of a server as the loop sees it: what came of its last attempt to attach, and when to try again.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::anyhow;
use evictscope_host::ServerProcess;
use evictscope_model::answers::UnwatchedReason;
use parking_lot::Mutex;

use super::pace::RETRY_INTERVAL;
use super::server::{ThreadOutcome, Watch};
use crate::planning::Failure;

pub struct ServerThread {
    pid: u32,
    /// The name of its process, which other servers may have too.
    pub name: String,
    pub label: String,
    /// `None` if it has ended: the server cannot be watched.
    thread: Option<JoinHandle<ThreadOutcome>>,
    attempt: Arc<Mutex<Attempt>>,
    /// When to try again, if it has no thread for want of resources.
    again: Option<Instant>,
    is_logged: bool,
}

/// What came of the last attempt to attach to a server.
#[derive(Clone)]
enum Attempt {
    NotYet,
    Attached,
    Failed(Failure),
}

impl ServerThread {
    /// Starts the thread of a server; `before` is the one that tried it last.
    pub fn start(watch: &Watch, process: ServerProcess, label: String, before: Option<Self>) -> Self {
        let is_logged = before.as_ref().is_some_and(|before| before.is_logged);
        let first = before.map_or(Attempt::NotYet, |before| before.attempt.lock().clone());
        let mut server = Self {
            pid: process.identity.pid,
            name: process.name.clone(),
            label: label.clone(),
            thread: None,
            attempt: Arc::new(Mutex::new(first)),
            again: None,
            is_logged,
        };
        let (watch, last) = (watch.clone(), server.attempt.clone());
        let tried = move |failed: Option<Failure>| *last.lock() = failed.map_or(Attempt::Attached, Attempt::Failed);
        let thread = std::thread::Builder::new()
            .name(format!("server {label}"))
            .spawn(move || watch.watch(&process, &label, tried));
        match thread {
            Ok(thread) => server.thread = Some(thread),
            Err(error) => {
                let why = format!("cannot start a thread for it: {error}");
                let failure = Failure { reason: UnwatchedReason::Resources, is_for_good: false, why };
                *server.attempt.lock() = Attempt::Failed(failure);
                server.put_off();
            }
        }
        server
    }

    pub fn was_tried(&self) -> bool {
        !matches!(*self.attempt.lock(), Attempt::NotYet)
    }

    pub fn failed(&self) -> Option<Failure> {
        match &*self.attempt.lock() {
            Attempt::Failed(failure) => Some(failure.clone()),
            Attempt::NotYet | Attempt::Attached => None,
        }
    }

    pub fn is_alive(&self) -> bool {
        self.thread.is_some()
    }

    /// Returns whether it takes a place among the servers that wait for their first attempt.
    pub fn is_starting(&self) -> bool {
        let lacks_resources = |failure: Failure| failure.reason == UnwatchedReason::Resources;
        self.is_alive() && (!self.was_tried() || self.failed().is_some_and(lacks_resources))
    }

    pub fn is_due(&self, now: Instant) -> bool {
        self.again.is_some_and(|again| again <= now)
    }

    /// Returns why its thread has ended, once. Fails if the thread has panicked.
    pub fn ended(&mut self) -> anyhow::Result<Option<ThreadOutcome>> {
        let ended = self.thread.take_if(|thread| thread.is_finished());
        let panicked = |_| {
            let label = &self.label;
            anyhow!("the thread of server {label} panicked; please report this")
        };
        ended.map(|ended| ended.join().map_err(panicked)).transpose()
    }

    /// Has it tried again later. Logs that once.
    pub fn put_off(&mut self) {
        self.again = Some(Instant::now() + RETRY_INTERVAL);
        if let Some(Failure { why, .. }) = self.failed()
            && !std::mem::replace(&mut self.is_logged, true)
        {
            let (pid, server) = (self.pid, &self.label);
            tracing::warn!(pid, server, "cannot watch this server: {why}");
        }
    }
}
