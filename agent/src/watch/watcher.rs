//! The loop, which finds servers and gives each its own thread.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::bail;
use evictscope_host::{HiddenServer, NewServer, ProcessIdentity, Scan, Scanner, ServerProcess, labels, printable};
use evictscope_model::answers::{UnwatchedReason, UnwatchedServer};
use evictscope_probes::ProbeError;
use evictscope_records::{Keeper, Labelled};

use super::server::{ThreadOutcome, Watch};
use super::server_thread::ServerThread;
use crate::clock::unix_time;
use crate::planning::Failure;

/// How often the host is searched for servers; one that starts must be seen within 2 s.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);
const TURN_INTERVAL: Duration = Duration::from_millis(100);
/// How long the agent waits, before it is ready, for the servers that it found at first. An executable that takes long
/// to plan does not hold it up longer.
const READY_PATIENCE: Duration = Duration::from_secs(5);

/// The most servers that wait for their first attempt at once, each in a thread: however many start, threads remain for
/// the others.
const MAX_STARTING: usize = 64;

/// How often in a row a search may find the process that holds the probes stopped.
const MOST_STOPPED: u32 = 10;

/// The loop and all that it holds.
pub struct Watcher {
    watch: Watch,
    scanner: Scanner,
    servers: HashMap<ProcessIdentity, ServerThread>,
    /// Why each of these cannot be looked into, by pid.
    hidden: HashMap<u32, HiddenServer>,
    stale: HashSet<String>,
    /// Whether there are servers that have no thread yet.
    is_behind: bool,
    /// The servers that ran when the agent before this one ended, except those that were found again.
    before: Vec<Labelled>,
    /// The servers to remember, as the keeper has them.
    remembered: Vec<Labelled>,
    /// How many searches have found the process that holds the probes stopped.
    stopped: u32,
}

impl Watcher {
    /// Returns a watcher that has not looked yet. Reads which servers are remembered.
    pub fn new(watch: Watch, scanner: Scanner) -> Self {
        let before = watch.shared.keeper().map_or_else(|_| Vec::new(), Keeper::remembered);
        Self {
            watch,
            scanner,
            servers: HashMap::new(),
            hidden: HashMap::new(),
            stale: HashSet::new(),
            is_behind: false,
            remembered: before.clone(),
            before,
            stopped: 0,
        }
    }

    /// Watches until the agent is about to end. Fails if a thread has panicked, or the process that holds the probes
    /// has ended.
    pub fn watch(mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut next_scan = begun;
        let mut is_ready = false;
        loop {
            let turn = Instant::now();
            self.reap()?;
            if turn >= next_scan {
                self.keep_keeper()?;
                self.look_for_servers();
                self.watch.endings.follow();
                next_scan = turn + SCAN_INTERVAL;
            }
            self.log_messages();
            self.log_stale();
            let has_tried_all = !self.is_behind && self.servers.values().all(ServerThread::was_tried);
            if !is_ready && (has_tried_all || begun.elapsed() >= READY_PATIENCE) {
                is_ready = true;
                self.watch.shared.set_ready();
                if self.servers.is_empty() {
                    tracing::info!("no server is watched now; those that start later will be found");
                }
            }
            self.watch.shared.set_unwatched(self.unwatched());
            self.watch.shared.turned(unix_time());
            if self.watch.stop.wait_until(turn + TURN_INTERVAL) {
                return Ok(());
            }
        }
    }

    /// Returns the servers that are not watched, by ascending pid.
    fn unwatched(&self) -> Vec<UnwatchedServer> {
        let hidden = self.hidden.values().map(|hidden| UnwatchedServer {
            server: format!("pid-{}", hidden.pid),
            pid: hidden.pid,
            reason: if hidden.is_denied { UnwatchedReason::Permission } else { UnwatchedReason::Executable },
            why: printable(&hidden.why),
        });
        let failed = self.servers.iter().filter_map(|(identity, server)| {
            let Failure { reason, why, .. } = server.failed()?;
            Some(UnwatchedServer { server: server.label.clone(), pid: identity.pid, reason, why: printable(&why) })
        });
        let silent = self.servers.iter().filter(|(_, server)| self.stale.contains(&server.label));
        let silent = silent.map(|(identity, server)| UnwatchedServer {
            server: server.label.clone(),
            pid: identity.pid,
            reason: UnwatchedReason::Resources,
            why: "it has not been read for seconds: its memory, or the agent's own CPU time, is held up".to_owned(),
        });
        let mut unwatched: Vec<UnwatchedServer> = hidden.chain(failed).chain(silent).collect();
        unwatched.sort_unstable_by_key(|server| server.pid);
        unwatched
    }

    fn reap(&mut self) -> anyhow::Result<()> {
        if self.watch.probes.has_lost_keeper() {
            return Err(ProbeError::KeeperEnded.into());
        }
        if self.watch.lookout.has_ended() && !self.watch.stop.wait_until(Instant::now()) {
            bail!("the thread that looks at calm servers panicked; please report this");
        }
        let mut ended = Vec::new();
        for (identity, server) in &mut self.servers {
            match server.ended()? {
                Some(ThreadOutcome::Ended) => ended.push(*identity),
                Some(ThreadOutcome::Later) => server.put_off(),
                Some(ThreadOutcome::Refused) | None => {}
            }
        }
        for identity in ended {
            self.servers.remove(&identity);
        }
        Ok(())
    }

    /// Has the keeper go on if something has stopped it. Fails if it cannot for so long that it is of no use: the next
    /// agent starts another.
    fn keep_keeper(&mut self) -> anyhow::Result<()> {
        self.stopped = if self.watch.probes.is_keeper_stopped() { self.stopped + 1 } else { 0 };
        if self.stopped > MOST_STOPPED {
            bail!("`evictscope-keeper`, which holds the probes, is stopped, as by a debugger");
        }
        Ok(())
    }

    fn look_for_servers(&mut self) {
        let scan = match self.scanner.scan() {
            Ok(scan) => scan,
            Err(error) => return tracing::warn!("{error}"),
        };
        self.log_hidden(&scan);
        // A server that cannot be watched is forgotten with its process.
        let listed: HashSet<ProcessIdentity> = scan.servers.iter().map(|server| server.identity).collect();
        self.servers.retain(|identity, server| server.is_alive() || listed.contains(identity));
        let most = MAX_STARTING.saturating_sub(self.servers.values().filter(|server| server.is_starting()).count());
        let now = Instant::now();
        let is_new =
            |process: &ServerProcess| self.servers.get(&process.identity).is_none_or(|server| server.is_due(now));
        let mut new: Vec<ServerProcess> = scan.servers.into_iter().filter(is_new).collect();
        self.is_behind = new.len() > most;
        new.truncate(most);
        let before: Vec<Option<ServerThread>> =
            (new.iter()).map(|process| self.servers.remove(&process.identity)).collect();
        let labels = self.labels(&new, &listed);
        for ((process, label), before) in new.into_iter().zip(labels).zip(before) {
            let identity = process.identity;
            // If the process executes another program, that is another server.
            self.before.retain(|server| server.pid != identity.pid);
            self.servers.insert(identity, ServerThread::start(&self.watch, process, label, before));
        }
        self.remember(&listed);
    }

    /// Has the running servers remembered, if they have changed.
    fn remember(&mut self, listed: &HashSet<ProcessIdentity>) {
        let Ok(keeper) = self.watch.shared.keeper() else { return };
        let servers = self.running(listed).map(|(identity, server)| Labelled {
            pid: identity.pid,
            start_time_ticks: identity.start_time_ticks,
            label: server.label.clone(),
        });
        let mut servers: Vec<Labelled> = servers.collect();
        servers.sort_unstable();
        // If the agent is about to end, so are the threads of servers that still run.
        if servers != self.remembered && !self.watch.stop.wait_until(Instant::now()) {
            keeper.remember(servers.clone());
            self.remembered = servers;
        }
    }

    fn labels(&self, new: &[ServerProcess], listed: &HashSet<ProcessIdentity>) -> Vec<String> {
        let new = new.iter().map(|process| NewServer {
            pid: process.identity.pid,
            name: &process.name,
            container: process.container.short_id(),
            // The label that it had when the agent before this one ended.
            had: self
                .before
                .iter()
                .find(|server| server.is_of(process.identity.pid, process.identity.start_time_ticks))
                .map(|server| server.label.as_str()),
        });
        let running = self.running(listed).map(|(_, server)| (server.name.as_str(), server.label.as_str()));
        labels(&new.collect::<Vec<_>>(), &running.collect::<Vec<_>>())
    }

    /// Returns the servers that run: the thread of one that has just ended may still be taking off its probes.
    fn running(&self, listed: &HashSet<ProcessIdentity>) -> impl Iterator<Item = (&ProcessIdentity, &ServerThread)> {
        self.servers.iter().filter(|(identity, _)| listed.contains(identity))
    }

    fn log_hidden(&mut self, scan: &Scan) {
        for server in &scan.hidden {
            if self.hidden.insert(server.pid, server.clone()).is_none() {
                tracing::warn!(pid = server.pid, "cannot watch this server: {}", server.why);
            }
        }
        self.hidden.retain(|pid, _| scan.hidden.iter().any(|server| server.pid == *pid));
    }

    fn log_messages(&self) {
        for message in self.watch.probes.messages() {
            let pid = message.pid;
            let server = self.servers.iter().find(|(identity, _)| identity.pid == pid);
            let server = server.map(|(_, server)| &server.label);
            let text = &message.text;
            tracing::warn!(pid, server, "a check of the probe plan failed: {text}");
        }
    }

    /// Logs servers that cannot be read in time, and when they can again.
    fn log_stale(&mut self) {
        let stale: HashSet<String> = self.watch.shared.stale().into_iter().collect();
        for server in stale.difference(&self.stale) {
            tracing::warn!(server, "has not been read for seconds: its series are gone until it is read again");
        }
        for server in self.stale.difference(&stale) {
            tracing::info!(server, "is read again, or has ended");
        }
        self.stale = stale;
    }
}
