//! The loop, which finds servers, attaches to them, reads them and publishes them.
//!
//! It runs in a thread of its own, because looking at processes, planning, attaching and reading maps
//! all block. Its results go to the exporter through [`Shared`]; nothing comes back.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::attach::Attacher;
use super::service::Progress;
use super::watched::Watched;
use crate::export::{ExportedServer, Shared};
use crate::host::{Identity, Scan, Scanner, ServerProcess, label};
use crate::probes::Probes;

/// How often the host is searched for servers; one that starts must be seen within 2 s.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);
/// How often each server's counters are read.
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(100);
/// How long to wait before trying again a server that could not be attached to.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The loop and all it holds.
pub struct Watcher {
    probes: Probes,
    attacher: Attacher,
    scanner: Scanner,
    shared: Shared,
    progress: Progress,
    /// Servers to attach to, one in each turn of the loop: attaching takes up to a second, and the
    /// others must be read meanwhile.
    pending: VecDeque<ServerProcess>,
    watched: HashMap<Identity, Watched>,
    failed: HashMap<Identity, Failure>,
    hidden: HashSet<u32>,
}

/// A server that could not be attached to.
struct Failure {
    at: Instant,
    reason: String,
}

impl Watcher {
    /// Returns a watcher that has not looked yet.
    pub fn new(
        probes: Probes,
        attacher: Attacher,
        scanner: Scanner,
        shared: Shared,
        progress: Progress,
    ) -> Self {
        Self {
            probes,
            attacher,
            scanner,
            shared,
            progress,
            pending: VecDeque::new(),
            watched: HashMap::new(),
            failed: HashMap::new(),
            hidden: HashSet::new(),
        }
    }

    /// Watches until told to stop, then detaches from every server.
    pub fn watch(mut self, stop: &Receiver<()>) {
        let mut next_scan = Instant::now();
        let mut is_ready = false;
        loop {
            let begun = Instant::now();
            if begun >= next_scan {
                self.look_for_servers();
                next_scan = begun + SCAN_INTERVAL;
            }
            if let Some(process) = self.pending.pop_front() {
                self.add(process);
            }
            self.log_messages();
            for watched in self.watched.values_mut() {
                watched.read(&mut self.probes);
            }
            self.follow_modes();
            if !is_ready && self.pending.is_empty() {
                is_ready = true;
                if self.watched.is_empty() {
                    tracing::info!(
                        "no server is watched now; those that start later will be found"
                    );
                }
            }
            if is_ready {
                self.publish();
            }
            self.progress.turn();
            let rest = match self.pending.is_empty() {
                true => SNAPSHOT_INTERVAL.saturating_sub(begun.elapsed()),
                false => Duration::ZERO,
            };
            match stop.recv_timeout(rest) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        for (_, watched) in self.watched.drain() {
            self.probes.detach(watched.attachment);
        }
        self.probes.finish();
    }

    /// Hands the watched servers to the exporter, by ascending pid.
    fn publish(&self) {
        let exported = self.watched.values().map(Watched::exported);
        let mut servers: Vec<ExportedServer> = exported.collect();
        servers.sort_by_key(|server| server.pid);
        self.shared.publish(servers);
    }

    fn look_for_servers(&mut self) {
        let scan = match self.scanner.scan() {
            Ok(scan) => scan,
            Err(error) => {
                tracing::warn!("{error}");
                return;
            }
        };
        self.drop_ended(&scan);
        for server in &scan.hidden {
            if self.hidden.insert(server.pid) {
                tracing::warn!(pid = server.pid, "cannot watch this server: {}", server.why);
            }
        }
        self.hidden
            .retain(|pid| scan.hidden.iter().any(|server| server.pid == *pid));
        let is_due = |process: &ServerProcess| {
            let tried = self.failed.get(&process.identity);
            !self.watched.contains_key(&process.identity)
                && tried.is_none_or(|failure| failure.at.elapsed() >= RETRY_INTERVAL)
        };
        self.pending = scan.servers.into_iter().filter(is_due).collect();
    }

    fn drop_ended(&mut self, scan: &Scan) {
        let identities = scan.servers.iter().map(|server| server.identity);
        let running = |identity: &Identity| identities.clone().any(|one| one == *identity);
        for (identity, watched) in self.watched.extract_if(|identity, _| !running(identity)) {
            let (pid, server) = (identity.pid, watched.label);
            tracing::info!(pid, server, "server has ended");
            self.probes.detach(watched.attachment);
        }
        self.failed.retain(|identity, _| running(identity));
        self.attacher.plans.forget_unused();
    }

    fn add(&mut self, process: ServerProcess) {
        let identity = process.identity;
        let taken = self.watched.values().map(|watched| watched.label.as_str());
        let label = label(identity.pid, &process.name, taken);
        let attacher = &mut self.attacher;
        match attacher.attach(&mut self.probes, process, label.clone()) {
            Ok(watched) => {
                self.failed.remove(&identity);
                self.watched.insert(identity, watched);
            }
            Err(error) => {
                let reason = format!("{error:#}");
                let before = self.failed.get(&identity);
                if before.is_none_or(|failure| failure.reason != reason) {
                    let pid = identity.pid;
                    tracing::warn!(pid, server = label, "cannot watch this server: {reason}");
                }
                let at = Instant::now();
                self.failed.insert(identity, Failure { at, reason });
            }
        }
    }

    /// Logs the messages of the programs, with the name of the server.
    fn log_messages(&mut self) {
        for message in self.probes.messages() {
            let pid = message.pid;
            let mut servers = self.watched.values();
            let watched = servers.find(|watched| watched.process.identity.pid == pid);
            let server = watched.map(|watched| &watched.label);
            let text = &message.text;
            tracing::warn!(pid, server, "a check of the probe plan failed: {text}");
        }
    }

    /// Switches servers to the mode that was decided on, until it had to attach to one.
    fn follow_modes(&mut self) {
        for watched in self.watched.values_mut() {
            if watched.follow_mode(&mut self.probes) {
                break;
            }
        }
    }
}
