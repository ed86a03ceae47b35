//! Finds the servers on this host.
//!
//! Measured with 2,000 other processes on a 2-core virtual machine: 90 ms of CPU time for the first
//! scan, 12 ms for each of the next ten, then 6 ms.

pub(crate) mod look;
mod looks;
pub(crate) mod matcher;
pub(crate) mod observed;
#[cfg(test)]
mod tests;
mod troubles;
mod unrelated;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use procfs::{ProcError, ProcResult};

use self::look::{HiddenServer, Look, ServerProcess, look_into, silent};
use self::looks::{Looks, MOST_NAMED, MOST_OTHERS, Slow};
use self::matcher::{Exclusion, Matcher, Role};
use self::observed::{ExeLink, ObservedProcess};
use self::troubles::Troubles;
use self::unrelated::Unrelated;
use crate::process::{FileId, ProcessHandle, ProcessIdentity};

/// How long one search of the host takes at most: what it does not come to is first at the next. The first one may take
/// longer.
const BUDGET: Duration = Duration::from_millis(250);
const FIRST_BUDGET: Duration = Duration::from_secs(5);
/// A look that is late for longer is told.
const LATE: Duration = Duration::from_secs(3);

/// The servers on this host, each list by ascending pid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Servers that can be watched. One that was found stays in the list until the kernel says that it has
    /// ended, or that the process executes something else.
    pub servers: Vec<ServerProcess>,
    /// The pids of those that have just started and do not listen yet, so that their names are not known:
    /// they are in `servers` after 10 s at the latest.
    pub starting: Vec<u32>,
    /// Whether a process with a server's name has not been looked at yet, as on a busy machine.
    pub is_behind: bool,
    /// Servers that cannot be looked into.
    pub hidden: Vec<HiddenServer>,
}

/// Finds servers, and remembers which processes are not servers.
#[derive(Debug)]
pub struct Scanner {
    matcher: Matcher,
    exclusions: Arc<[Exclusion]>,
    unrelated: Unrelated,
    slow: Slow,
    observing: Looks<ProcResult<ObservedProcess>>,
    looking: Looks<ProcResult<Look>>,
    /// The process with which the next search begins.
    next: u32,
    troubles: Troubles,
    /// Candidates that do not listen yet, and since when the scanner has been waiting for them.
    waiting: HashMap<ProcessIdentity, Instant>,
    servers: HashMap<u32, ServerProcess>,
    /// The servers that the user wants to be left alone.
    excluded: HashMap<u32, ProcessHandle>,
    scanned_before: bool,
}

impl Scanner {
    pub fn new(matcher: Matcher) -> Self {
        Self {
            matcher,
            exclusions: Arc::default(),
            unrelated: Unrelated::default(),
            slow: Slow::default(),
            observing: Looks::default(),
            looking: Looks::default(),
            next: 0,
            troubles: Troubles::default(),
            waiting: HashMap::new(),
            servers: HashMap::new(),
            excluded: HashMap::new(),
            scanned_before: false,
        }
    }

    /// Leaves alone the servers that one of these names. This is decided when a server is found: a later
    /// change of its port or control group does not matter.
    pub fn excluding(mut self, exclusions: Vec<Exclusion>) -> Self {
        self.exclusions = exclusions.into();
        self
    }

    /// Looks at all processes. If `/proc` is mounted with `hidepid`, those of other users are not seen.
    ///
    /// An error does not end a server: what cannot be looked at now stays as it was. A warning is logged when that
    /// begins. Fails if `/proc` cannot be listed and never could.
    pub fn scan(&mut self) -> anyhow::Result<Scan> {
        self.slow.forget(Instant::now());
        self.forget_ended();
        let mut scan = Scan::default();
        match list_processes() {
            Ok(pids) => {
                self.look_for_more(&pids, &mut scan);
                self.scanned_before = true;
            }
            Err(error) if self.scanned_before => self.troubles.met(None, &ProcError::from(error)),
            Err(error) => return Err(anyhow!("cannot list /proc ({error}): is it mounted?")),
        }
        self.troubles.end_scan();
        scan.servers = self.servers.values().cloned().collect();
        scan.servers.sort_unstable_by_key(|server| server.identity.pid);
        Ok(scan)
    }

    /// Forgets the servers that have ended, or execute something else.
    fn forget_ended(&mut self) {
        let Self { slow, troubles, servers, excluded, .. } = self;
        let mut runs = |handle: &ProcessHandle| {
            let identity = handle.identity();
            let begun = Instant::now();
            if slow.rests(identity.pid, begun) {
                return !handle.has_ended();
            }
            let now = ProcessIdentity::read(identity.pid);
            slow.looked(identity.pid, begun.elapsed(), Instant::now());
            match now {
                Ok(now) => identity.is_still(&now),
                Err(error) => {
                    troubles.met(Some(identity.pid), &error);
                    !handle.has_ended()
                }
            }
        };
        servers.retain(|_, server| runs(&server.handle));
        excluded.retain(|_, handle| runs(handle));
    }

    /// Looks at the processes that are not known to be servers, for as long as the budget allows.
    fn look_for_more(&mut self, pids: &[u32], scan: &mut Scan) {
        let until = Instant::now() + if self.scanned_before { BUDGET } else { FIRST_BUDGET };
        self.observing.take_answers(pids);
        self.looking.take_answers(pids);
        let mut candidates = self.candidates(pids, until);
        let files = self.files(&candidates);
        candidates.sort_by_key(|candidate| self.slow.rank(candidate.identity.pid));
        let mut waiting = std::mem::take(&mut self.waiting);
        for candidate in candidates {
            if is_child_of_server(&candidate, &files) {
                continue;
            }
            let identity = candidate.identity;
            let pid = identity.pid;
            let since = waiting.remove(&identity).unwrap_or_else(|| self.waiting_since(&candidate));
            let begun = Instant::now();
            let mut look = None;
            if begun < until {
                let exclusions = self.exclusions.clone();
                look = self.looking.at(pid, MOST_NAMED, move || look_into(&candidate, since, &exclusions));
                self.slow.looked(pid, begun.elapsed(), Instant::now());
            }
            match look {
                Some(Ok(Look::Server(server))) => {
                    self.servers.insert(pid, server);
                }
                Some(Ok(Look::Excluded { handle, by })) => {
                    tracing::info!(pid, "this server is left alone because of --exclude {by}");
                    self.excluded.insert(pid, handle);
                }
                Some(Ok(Look::Starting)) => {
                    self.waiting.insert(identity, since);
                    scan.starting.push(pid);
                }
                None => {
                    self.waiting.insert(identity, since);
                    scan.is_behind = true;
                }
                Some(Ok(Look::Hidden(hidden))) => scan.hidden.push(hidden),
                Some(Err(error)) => {
                    self.waiting.insert(identity, since);
                    self.troubles.met(Some(pid), &error);
                }
            }
        }
        let named = self.observing.late_for(LATE).filter(|pid| has_name(&self.matcher, *pid));
        scan.hidden.extend(named.filter_map(|pid| silent(pid, "cmdline")));
        scan.hidden.extend(self.looking.late_for(LATE).filter_map(|pid| silent(pid, "fd")));
        scan.hidden.sort_unstable_by_key(|server| server.pid);
        scan.is_behind |= self.observing.late_for(Duration::ZERO).chain(self.slow.resting(Instant::now())).any(|pid| {
            let is_told = self.servers.contains_key(&pid)
                || self.excluded.contains_key(&pid)
                || scan.hidden.iter().any(|hidden| hidden.pid == pid);
            !is_told && pids.binary_search(&pid).is_ok() && has_name(&self.matcher, pid)
        });
        scan.starting.sort_unstable();
    }

    /// Returns since when to wait for a new candidate. Except in the first scan its age does not count,
    /// because it may only just have executed the server.
    fn waiting_since(&self, candidate: &ObservedProcess) -> Instant {
        let age = if self.scanned_before { Duration::ZERO } else { candidate.identity.age() };
        let now = Instant::now();
        now.checked_sub(age).unwrap_or(now)
    }

    /// Returns all processes that have a server's name, are not helpers and are not known yet. Those that it does not
    /// come to until `until` are first at the next search.
    fn candidates(&mut self, pids: &[u32], until: Instant) -> Vec<ObservedProcess> {
        self.unrelated.begin();
        let mut candidates = Vec::new();
        let first = pids.partition_point(|pid| *pid < self.next);
        let (later, first) = pids.split_at(first);
        self.next = 0;
        for &pid in first.iter().chain(later) {
            let is_known = self.servers.contains_key(&pid) || self.excluded.contains_key(&pid);
            let begun = Instant::now();
            let is_wanted = self.observing.has_answer(pid) || self.looking.has_answer(pid);
            if is_known || self.slow.rests(pid, begun) && !is_wanted {
                continue;
            }
            if begun >= until {
                if self.next == 0 {
                    self.next = pid;
                }
                self.unrelated.put_off(pid);
                continue;
            }
            let Some(known) = self.unrelated.look(pid) else { continue };
            let most = if has_name(&self.matcher, pid) { MOST_NAMED } else { MOST_OTHERS };
            let observed = self.observing.at(pid, most, move || ObservedProcess::of(pid));
            self.slow.looked(pid, begun.elapsed(), Instant::now());
            match observed {
                Some(Ok(process)) => match self.matcher.role(&process) {
                    Role::Unrelated => self.unrelated.remember(pid, known),
                    Role::Helper => {}
                    Role::Candidate => candidates.push(process),
                },
                Some(Err(error)) => self.troubles.met(Some(pid), &error),
                None => {}
            }
        }
        candidates
    }

    /// Returns the executables of all processes that may have forked a candidate, by pid.
    fn files(&self, candidates: &[ObservedProcess]) -> HashMap<u32, Option<FileId>> {
        let servers = self.servers.values().map(|server| &server.identity);
        let excluded = self.excluded.values().map(ProcessHandle::identity);
        let identities = servers.chain(excluded).chain(candidates.iter().map(|candidate| &candidate.identity));
        identities.map(|identity| (identity.pid, identity.executable)).collect()
    }
}

/// Returns the pids of all processes, ascending.
fn list_processes() -> io::Result<Vec<u32>> {
    let mut pids = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        pids.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    pids.sort_unstable();
    Ok(pids)
}

/// Returns whether a process has a server's name, as far as its memory need not be read for that.
fn has_name(matcher: &Matcher, pid: u32) -> bool {
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    matcher.matches(comm.trim_end(), &ExeLink::read(pid))
}

/// Returns whether a server has forked this process, to save or to execute something, though its
/// title does not say so. A server in the background is forked too, but its parent has ended.
fn is_child_of_server(process: &ObservedProcess, files: &HashMap<u32, Option<FileId>>) -> bool {
    let executable = process.identity.executable;
    // A file that may not be looked at is assumed to be the same.
    let is_same = |file: &Option<FileId>| executable.is_none() || file.is_none() || executable == *file;
    process.is_forked() && files.get(&process.parent).is_some_and(is_same)
}
