//! Finds the servers on this host.
//!
//! Measured with 2,000 other processes on a 2-core virtual machine: 90 ms of CPU time for the first
//! scan, 12 ms for each of the next ten, then 6 ms.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use procfs::process::Process;
use procfs::{ProcError, ProcResult};
use rustix::time::{ClockId, clock_gettime};

use super::matcher::{Matcher, Role};
use super::observed::{ExeLink, Identity, Observed, exe_proc_path};
use super::sockets::listening_name;
use super::unrelated::Unrelated;

/// A process younger than this is not reported: it may be about to fork into the background or to
/// execute something else, and not all of its sockets may be there.
const SETTLE: Duration = Duration::from_millis(100);

/// How long to wait for a new server to listen. Servers load their data only after that, but may
/// load modules before.
const LISTEN: Duration = Duration::from_millis(1_500);

/// A server that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerProcess {
    /// Tells it from every other server, past ones too.
    pub identity: Identity,
    /// The executable, as the process sees it; with ` (deleted)` appended where it was deleted or
    /// replaced before the server was found. For display: open `exe_proc_path` instead.
    pub exe: PathBuf,
    /// `/proc/PID/exe`, which opens the executable wherever it is.
    pub exe_proc_path: PathBuf,
    /// TCP port, else path of the Unix socket, else `pid-N`: where it listened when it was found.
    /// It never changes after that. Two servers may have the same name: see `labels`.
    pub name: String,
}

/// A process that looks like a server, but that the agent may not look into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenServer {
    /// Process id.
    pub pid: u32,
    /// The user it runs as.
    pub uid: u32,
    /// What could not be read, and what to do about it.
    pub why: String,
}

/// The servers on this host, each list by ascending pid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Those that can be watched.
    pub servers: Vec<ServerProcess>,
    /// Those that have just started and do not listen yet, so that their name is not known: they
    /// are in `servers` after 1.5 s at the latest.
    pub starting: Vec<u32>,
    /// Those that cannot be looked into.
    pub hidden: Vec<HiddenServer>,
}

/// Finds servers, and remembers which processes are no servers.
#[derive(Debug)]
pub struct Scanner {
    matcher: Matcher,
    unrelated: Unrelated,
    /// Candidates that do not listen yet, and since when the scanner waits for them.
    waiting: HashMap<Identity, Instant>,
    servers: HashMap<u32, ServerProcess>,
    scanned_before: bool,
}

impl Scanner {
    /// Returns a scanner that knows nothing yet.
    pub fn new(matcher: Matcher) -> Self {
        Self {
            matcher,
            unrelated: Unrelated::default(),
            waiting: HashMap::new(),
            servers: HashMap::new(),
            scanned_before: false,
        }
    }

    /// Looks at all processes. Where `/proc` is mounted with `hidepid`, those of other users are
    /// not seen at all.
    ///
    /// # Errors
    ///
    /// Fails where `/proc` cannot be listed.
    pub fn scan(&mut self) -> anyhow::Result<Scan> {
        let mut candidates = self
            .candidates()
            .map_err(|error| anyhow!("cannot list /proc ({error}): is it mounted?"))?;
        candidates.sort_unstable_by_key(|candidate| candidate.identity.pid);

        let mut servers = std::mem::take(&mut self.servers);
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut scan = Scan::default();
        for candidate in &candidates {
            if is_child_of_one(candidate, &candidates) {
                continue;
            }
            let identity = candidate.identity;
            let look = match servers.remove(&identity.pid) {
                Some(server) if server.identity == identity => Ok(Look::Server(server)),
                _ => {
                    let since = waiting
                        .remove(&identity)
                        .unwrap_or_else(|| self.waiting_since(candidate));
                    look_into(candidate, since)
                }
            };
            match look {
                Ok(Look::Server(server)) => {
                    self.servers.insert(identity.pid, server.clone());
                    scan.servers.push(server);
                }
                Ok(Look::Starting { since }) => {
                    self.waiting.insert(identity, since);
                    scan.starting.push(identity.pid);
                }
                Ok(Look::Hidden(hidden)) => scan.hidden.push(hidden),
                Err(error) => gone(identity.pid, &error),
            }
        }
        self.scanned_before = true;
        Ok(scan)
    }

    /// Returns since when to wait for a new candidate. Its age does not count, since it may have executed
    /// the server just now, except in the first scan.
    fn waiting_since(&self, candidate: &Observed) -> Instant {
        let now = Instant::now();
        if self.scanned_before {
            return now;
        }
        now.checked_sub(age(candidate.identity.start_time_ticks))
            .unwrap_or(now)
    }

    /// Returns all processes that have a server's name and are not helpers.
    fn candidates(&mut self) -> std::io::Result<Vec<Observed>> {
        self.unrelated.begin();
        let mut candidates = Vec::new();
        for entry in std::fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let Some(known) = self.unrelated.look(pid) else {
                continue;
            };
            match Observed::of(pid) {
                Ok(process) => match self.matcher.role(&process) {
                    Role::Unrelated => self.unrelated.remember(pid, known),
                    Role::Helper => {}
                    Role::Candidate => candidates.push(process),
                },
                Err(error) => gone(pid, &error),
            }
        }
        Ok(candidates)
    }
}

/// The outcome of looking into a candidate.
enum Look {
    Server(ServerProcess),
    Starting { since: Instant },
    Hidden(HiddenServer),
}

/// Finds out where a candidate listens. It has been waited for since `since`.
fn look_into(candidate: &Observed, since: Instant) -> ProcResult<Look> {
    let pid = candidate.identity.pid;
    let hidden = |what: &str| -> ProcResult<Look> {
        Ok(Look::Hidden(HiddenServer {
            pid,
            uid: Process::new(pid.cast_signed())?.status()?.euid,
            why: format!(
                "may not read /proc/{pid}/{what}: run as root, or with CAP_SYS_PTRACE and \
                 CAP_DAC_READ_SEARCH"
            ),
        }))
    };
    let exe = match &candidate.exe {
        ExeLink::Path(path) => path.clone(),
        ExeLink::Denied => return hidden("exe"),
        ExeLink::Absent => return Err(ProcError::NotFound(None)),
    };
    if age(candidate.identity.start_time_ticks) < SETTLE {
        return Ok(Look::Starting { since });
    }
    let name = match listening_name(pid, candidate.title_port()) {
        Ok(Some(name)) => name,
        Ok(None) if since.elapsed() < LISTEN => return Ok(Look::Starting { since }),
        Ok(None) => format!("pid-{pid}"),
        Err(ProcError::PermissionDenied(_)) => return hidden("fd"),
        Err(error) => return Err(error),
    };
    Ok(Look::Server(ServerProcess {
        identity: candidate.identity,
        exe,
        exe_proc_path: exe_proc_path(pid),
        name,
    }))
}

/// Returns whether a server has forked this process, to save or to execute something, though its
/// title does not say so. A server in the background is forked too, but its parent has ended.
fn is_child_of_one(process: &Observed, candidates: &[Observed]) -> bool {
    process.is_forked()
        && candidates
            .binary_search_by_key(&process.parent, |candidate| candidate.identity.pid)
            .is_ok_and(|parent| same_executable(process, &candidates[parent]))
}

fn same_executable(one: &Observed, other: &Observed) -> bool {
    let file = |process: &Observed| {
        let metadata = std::fs::metadata(exe_proc_path(process.identity.pid)).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    match (file(one), file(other)) {
        (Some(one), Some(other)) => one == other,
        // Where looking is not allowed, the names decide.
        _ => one.comm == other.comm,
    }
}

fn age(start_time_ticks: u64) -> Duration {
    let now = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
    let ticks_per_second = procfs::ticks_per_second().max(1);
    let started = Duration::from_millis(start_time_ticks * 1_000 / ticks_per_second);
    now.saturating_sub(started)
}

/// Logs that a process could not be looked at, for debugging only: processes end all the time.
fn gone(pid: u32, error: &ProcError) {
    tracing::debug!(pid, %error, "cannot look at this process: it has probably ended");
}

#[cfg(test)]
mod tests;
