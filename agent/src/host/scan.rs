//! Which servers run on this host.
//!
//! Measured with 2,000 other processes on a 2-core virtual machine: 90 ms of CPU time for the first
//! scan, 12 ms for each of the next ten, then 6 ms.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use procfs::process::Process;
use procfs::{ProcError, ProcResult};
use rustix::time::{ClockId, clock_gettime};

use super::matcher::{Matcher, Role};
use super::observed::{ExeLink, Observed, exe_proc_path};
use super::sockets::listening_name;
use super::unrelated::Unrelated;

/// A process younger than this is not reported: it may be about to fork into the background or to
/// execute something else, and not all of its sockets may be there.
const SETTLE: Duration = Duration::from_millis(100);

/// How long to wait for a new server to listen. Servers load their data only after that, but may
/// load modules before.
const LISTEN: Duration = Duration::from_millis(1_500);

/// The list of processes cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot list /proc ({0}): is it mounted?")]
pub struct ScanError(#[from] std::io::Error);

/// Which program of which process. A process that executes another program, as a server does at
/// `DEBUG RESTART`, keeps its pid and start time, but all addresses in it change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Process id in the agent's pid namespace.
    pub pid: u32,
    /// When it started, clock ticks since boot.
    pub start_time_ticks: u64,
    /// Address at which the program's code begins.
    pub text_start: u64,
}

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
    /// It never changes after that. Two servers may have the same: see `labels`.
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
    /// Candidates that do not listen, and since when they are waited for.
    waiting: HashMap<Identity, Instant>,
    servers: HashMap<u32, ServerProcess>,
    scanned_before: bool,
}

impl Scanner {
    /// A scanner that knows nothing yet.
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
    pub fn scan(&mut self) -> Result<Scan, ScanError> {
        let mut candidates = self.candidates()?;
        candidates.sort_unstable_by_key(|candidate| candidate.pid);

        let mut servers = std::mem::take(&mut self.servers);
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut scan = Scan::default();
        for candidate in &candidates {
            if is_child_of_one(candidate, &candidates) {
                continue;
            }
            let identity = identity(candidate);
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

    /// Since when a candidate that was not seen before is waited for. Its age does not tell, since
    /// it may have executed the server just now; but what the first scan finds was there before.
    fn waiting_since(&self, candidate: &Observed) -> Instant {
        let now = Instant::now();
        if self.scanned_before {
            return now;
        }
        now.checked_sub(age(candidate.start_time_ticks))
            .unwrap_or(now)
    }

    /// All processes that bear a server's name and are not helpers.
    fn candidates(&mut self) -> Result<Vec<Observed>, ScanError> {
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

/// What came of looking into a candidate.
enum Look {
    Server(ServerProcess),
    Starting { since: Instant },
    Hidden(HiddenServer),
}

/// Learns what there is to learn of a candidate that is waited for since then.
fn look_into(candidate: &Observed, since: Instant) -> ProcResult<Look> {
    let pid = candidate.pid;
    let hidden = |what: &str| -> ProcResult<Look> {
        Ok(Look::Hidden(HiddenServer {
            pid,
            uid: uid(pid)?,
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
    if age(candidate.start_time_ticks) < SETTLE {
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
        identity: identity(candidate),
        exe,
        exe_proc_path: exe_proc_path(pid),
        name,
    }))
}

/// A child that a server has forked, for saving or to execute something, and that does not say so
/// in its title. A server that went into the background is forked too, but its parent has ended.
fn is_child_of_one(process: &Observed, candidates: &[Observed]) -> bool {
    process.is_forked()
        && candidates
            .binary_search_by_key(&process.parent, |candidate| candidate.pid)
            .is_ok_and(|parent| same_executable(process, &candidates[parent]))
}

fn same_executable(one: &Observed, other: &Observed) -> bool {
    let file = |process: &Observed| {
        let metadata = std::fs::metadata(exe_proc_path(process.pid)).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    match (file(one), file(other)) {
        (Some(one), Some(other)) => one == other,
        // Not allowed to look: the names have to do.
        _ => one.comm == other.comm,
    }
}

fn identity(process: &Observed) -> Identity {
    Identity {
        pid: process.pid,
        start_time_ticks: process.start_time_ticks,
        text_start: process.text_start,
    }
}

fn uid(pid: u32) -> ProcResult<u32> {
    Ok(Process::new(pid.cast_signed())?.status()?.euid)
}

fn age(start_time_ticks: u64) -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let now = Duration::new(now.tv_sec.unsigned_abs(), 0)
        + Duration::from_nanos(now.tv_nsec.unsigned_abs());
    let ticks_per_second = procfs::ticks_per_second().max(1);
    let started = Duration::from_millis(start_time_ticks * 1_000 / ticks_per_second);
    now.saturating_sub(started)
}

/// Processes end while they are looked at; that is not worth a line, unless somebody asks.
fn gone(pid: u32, error: &ProcError) {
    tracing::debug!(pid, %error, "cannot look at this process: it has probably ended");
}

#[cfg(test)]
mod tests;
