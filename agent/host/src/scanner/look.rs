//! Finds out where a process with a server's name listens, and whether to leave it alone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use procfs::process::Process;
use procfs::{ProcError, ProcResult};

use super::looks::user_of;
use super::matcher::{Exclusion, Traits};
use super::observed::{ExeLink, ObservedProcess};
use crate::cgroups::{Cgroups, Container};
use crate::confinement::Confinement;
use crate::mount::unanswering;
use crate::names::Listening;
use crate::process::{ProcessHandle, ProcessIdentity, exe_proc_path};

/// A process younger than this is not reported: it may be about to fork into the background or to
/// execute something else, and not all of its sockets may be there.
pub(super) const SETTLE: Duration = Duration::from_millis(100);

/// How long to wait for a new server to listen: its name is its port for as long as it runs, and hosts are busy when
/// their servers start. Servers load their data only after they listen, but may load modules before.
pub(super) const LISTEN: Duration = Duration::from_secs(10);

/// A running server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerProcess {
    /// Tells it from every other server, including past ones.
    pub identity: ProcessIdentity,
    pub handle: Arc<ProcessHandle>,
    /// The name that it was started by, as the kernel keeps it (15 bytes): the link's, if it was started by a link to a
    /// file with another name. Its arguments do not show it: a server overwrites them with its title.
    pub command: String,
    /// The executable, as the process sees it; with ` (deleted)` appended if it was deleted or replaced before the
    /// server was found. For display: open `exe_proc_path` instead.
    pub exe: PathBuf,
    /// `/proc/PID/exe`, which opens the executable wherever it is.
    pub exe_proc_path: PathBuf,
    /// TCP port, else path of the Unix socket, else `pid-N`: where it listened when it was found.
    /// It never changes after that. Two servers may have the same name: see `labels`.
    pub name: String,
    /// The container that it was in when it was found.
    pub container: Container,
}

/// A process that looks like a server, but that the agent cannot look into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenServer {
    pub pid: u32,
    pub uid: u32,
    /// Whether it may not be read.
    pub is_denied: bool,
    /// Why not, and what to do about it.
    pub why: String,
}

/// The outcome of looking into a candidate.
#[derive(Debug)]
pub(super) enum Look {
    Server(ServerProcess),
    /// The user wants it to be left alone.
    Excluded {
        handle: ProcessHandle,
        by: Exclusion,
    },
    Starting,
    Hidden(HiddenServer),
}

/// Finds out where a candidate listens, which may take long. The scanner has waited for it since `since`.
pub(super) fn look_into(candidate: &ObservedProcess, since: Instant, exclusions: &[Exclusion]) -> ProcResult<Look> {
    let pid = candidate.identity.pid;
    let mut traits = if exclusions.is_empty() { Traits::default() } else { traits(candidate)? };
    if let Some(by) = exclusions.iter().find(|exclusion| exclusion.names(&traits)) {
        return excluded(candidate, by);
    }
    let exe = match &candidate.exe {
        ExeLink::Path(loader) if candidate.exe.is_loader() => {
            let why = format!(
                "started through {}, so its executable is not the server's: start it by its own path",
                loader.display()
            );
            return hidden(pid, false, why);
        }
        ExeLink::Path(path) => path.clone(),
        ExeLink::Denied => return denied(pid, "exe"),
        ExeLink::Absent => return Err(ProcError::NotFound(None)),
    };
    if let Some(why) = unanswering(pid)? {
        return hidden(pid, false, why);
    }
    if candidate.identity.age() < SETTLE {
        return Ok(Look::Starting);
    }
    let listening = match Listening::of(pid) {
        Err(ProcError::PermissionDenied(_)) => return denied(pid, "fd"),
        listening => listening?,
    };
    let name = match listening.name(candidate.title_port()) {
        Some(name) => name,
        None if since.elapsed() < LISTEN => return Ok(Look::Starting),
        None => format!("pid-{pid}"),
    };
    traits.ports.extend(listening.ports);
    if let Some(by) = exclusions.iter().find(|exclusion| exclusion.names(&traits)) {
        return excluded(candidate, by);
    }
    Ok(Look::Server(ServerProcess {
        identity: candidate.identity,
        handle: Arc::new(ProcessHandle::open(candidate.identity)?),
        command: candidate.comm.clone(),
        exe,
        exe_proc_path: exe_proc_path(pid),
        name,
        // Unreadable groups only leave the labels of its container empty. An exclusion must not be missed.
        container: Cgroups::of(pid).unwrap_or_default().container(),
    }))
}

fn excluded(candidate: &ObservedProcess, by: &Exclusion) -> ProcResult<Look> {
    Ok(Look::Excluded { handle: ProcessHandle::open(candidate.identity)?, by: by.clone() })
}

fn denied(pid: u32, what: &str) -> ProcResult<Look> {
    hidden(pid, true, format!("may not read /proc/{pid}/{what}; {}", Confinement::of_process().lacks_others()))
}

fn hidden(pid: u32, is_denied: bool, why: String) -> ProcResult<Look> {
    Ok(Look::Hidden(HiddenServer { pid, uid: Process::new(pid.cast_signed())?.status()?.euid, is_denied, why }))
}

/// Returns a candidate of which `what` cannot be read in time.
pub(super) fn silent(pid: u32, what: &str) -> Option<HiddenServer> {
    Some(HiddenServer {
        pid,
        uid: user_of(pid)?,
        is_denied: false,
        why: format!(
            "reading /proc/{pid}/{what} does not end: the process holds its own memory lock, waits for a file system that \
             does not answer, or has too much of it. It is watched once that can be read"
        ),
    })
}

/// Reads what exclusions may name of a process, except for ports that are not in its title.
fn traits(candidate: &ObservedProcess) -> ProcResult<Traits> {
    let pid = candidate.identity.pid;
    Ok(Traits {
        ports: candidate.title_port().into_iter().collect(),
        user: Process::new(pid.cast_signed())?.status()?.euid,
        cgroups: Cgroups::of(pid)?,
    })
}
