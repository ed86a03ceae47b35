//! What can go wrong with the kernel, and what to do about it.

use std::io::{self, ErrorKind};

use aya::programs::ProgramError;
use evictscope_abi::MOST_MAPPINGS;
use evictscope_host::{Confinement, LINKS, MORE_FILES};
use evictscope_telemetry::Unrun;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

/// How the packaged service gets the capability that perf events need.
pub const OLDER_KERNELS: &str = "To give the service CAP_SYS_ADMIN: `cd /etc/systemd/system && mkdir -p evictscope.service.d && cp /usr/share/evictscope/older-kernels.conf evictscope.service.d/ && systemctl daemon-reload && systemctl restart evictscope`";

/// What can go wrong with the kernel.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error(
        "the kernel does not allow this process to load BPF programs or attach probes: {0}; {advice}", advice = Confinement::of_process().lacks_links(LINKS)
    )]
    NotPermitted(String),
    #[error(
        "this kernel has no uprobe_multi links (Linux 6.6), and does not allow this process to attach probes by perf events: {0}; {advice}. {OLDER_KERNELS}", advice = Confinement::of_process().lacks_links(LINKS | CapabilitySet::SYS_ADMIN)
    )]
    PerfEventNotPermitted(String),
    #[error(
        "this process is in a pid namespace of its own, as in a container, and does not see the kernel's process ids, so nothing would be counted: add --pid=host (podman, Docker) or hostPID: true (Kubernetes)"
    )]
    OtherPidNamespace,
    #[error(
        "this process is in a time namespace of its own, whose monotonic clock differs from the kernel's ({0}), so all times would be wrong: start it in that of the host (`nsenter --time --target 1`)"
    )]
    OtherTimeNamespace(String),
    /// Each probe takes a file descriptor.
    #[error("too many open files ({0}): {MORE_FILES}")]
    TooManyFiles(String),
    #[error("the BPF programs cannot be loaded: {0}; `evictscope check` says what this kernel lacks")]
    Load(String),
    #[error("the kernel refused a BPF program: {0}")]
    Program(ProgramError),
    #[error("cannot attach {program} to process {pid}: {reason}")]
    Attach {
        program: &'static str,
        pid: u32,
        /// Every error of the chain.
        reason: String,
    },
    #[error("no probe is placed in process {0}: {1}. This is tried again")]
    Obstructed(u32, Obstacle),
    #[error("process {0} has ended")]
    Gone(u32),
    #[error(
        "process {0} does not run the code that its executable leads to: {missing} of {placed} probes do not appear in its memory. \
         Restart it. On an overlay, its executable must not be touched while it runs; code that it has moved to memory of its own cannot be probed",
        missing = .1.missing, placed = .1.placed
    )]
    NotRun(u32, Unrun),
    #[error("{0} servers are watched already, the most that one agent can watch; narrow --process-match")]
    TooManyServers(u32),
    #[error("the BPF object has no {0}: build evictscope again")]
    Object(&'static str),
    #[error(
        "this kernel does not describe its own types ({0}): boot one built with CONFIG_DEBUG_INFO_BTF, as distributions' kernels are"
    )]
    NoBtf(String),
    #[error("this kernel cannot walk over the files of one process: boot Linux 6.1 or newer")]
    NoTaskFilter,
    #[error("this kernel has no {0}, which evictscope reads: please report this, with `uname -r`")]
    NoMember(String),
    /// The agent's own executable, on which the cost of a hit is measured, cannot be opened, or its code cannot be
    /// found in it.
    #[error("cannot find evictscope's own code: {0}")]
    OwnExecutable(io::Error),
    #[error("a BPF map cannot be mapped into memory: {0}")]
    Mapping(io::Error),
    #[error("cannot start `evictscope-keeper`, which holds the probes: {0}")]
    NoKeeper(io::Error),
    #[error(
        "`evictscope-keeper`, which holds the probes, has ended, so they are gone: something killed it; the next start removes what is left"
    )]
    KeeperEnded,
    #[error(
        "this kernel has no perf events for probes ({0}): boot one built with CONFIG_UPROBE_EVENTS, as distributions' kernels are"
    )]
    NoUprobeEvents(io::Error),
    #[error(
        "the threads that watch {0} servers have not ended after a minute, though no probe is left: something blocks them; please report this"
    )]
    Stuck(usize),
    #[error("evictscope is about to end")]
    Ending,
}

/// What keeps a probe from being placed or taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// This process maps the file and holds its own lock; 0 if the kernel does not tell which.
    #[error(
        "process {0} maps its executable and holds its own memory lock; until it lets go, a probe would stop the whole host: look at \
         it (`ps -fp {0}`), or let only the server's user read the executable"
    )]
    Locked(u32),
    #[error(
        "its executable is mapped {MOST_MAPPINGS} times, so a probe would stop the whole host for too long: let only the server's \
         user read the executable"
    )]
    Crowded,
    #[error(
        "its executable is on a file system in user space, which could stop the whole host while a probe is placed: start it from \
         another"
    )]
    InUserSpace,
}

impl From<Obstacle> for io::Error {
    fn from(obstacle: Obstacle) -> Self {
        Self::new(ErrorKind::ResourceBusy, obstacle)
    }
}

impl ProbeError {
    pub(super) fn load(error: aya::EbpfError) -> Self {
        let reason = chain(&error);
        if is_permission(&error) {
            Self::NotPermitted(reason)
        } else if is_too_many_files(&error) {
            Self::TooManyFiles(reason)
        } else {
            Self::Load(reason)
        }
    }

    pub(super) fn program(error: ProgramError) -> Self {
        if is_too_many_files(&error) {
            return Self::TooManyFiles("loading the programs".to_owned());
        }
        // The verifier refuses with "permission denied", too, but says why.
        let refused =
            matches!(&error, ProgramError::LoadError { verifier_log, .. } if !verifier_log.to_string().is_empty());
        if is_permission(&error) && !refused { Self::NotPermitted(chain(&error)) } else { Self::Program(error) }
    }

    pub(super) fn attach_by_perf_event(program: &'static str, pid: u32, error: &AnyError) -> Self {
        match Self::attach(program, pid, error) {
            Self::NotPermitted(reason) => Self::PerfEventNotPermitted(reason),
            other => other,
        }
    }

    pub(super) fn attach(program: &'static str, pid: u32, error: &AnyError) -> Self {
        let obstacle = io_error(error).and_then(|error| error.get_ref()?.downcast_ref());
        let is_gone = |error: &io::Error| error.kind() == ErrorKind::NotFound || has_number(error, Errno::SRCH);
        if let Some(obstacle) = obstacle {
            Self::Obstructed(pid, *obstacle)
        } else if is_permission(error) {
            Self::NotPermitted(chain(error))
        } else if is_too_many_files(error) {
            Self::TooManyFiles(format!("attaching to process {pid}"))
        } else if io_error(error).is_some_and(is_gone) {
            Self::Gone(pid)
        } else {
            Self::Attach { program, pid, reason: chain(error) }
        }
    }
}

type AnyError = dyn std::error::Error + 'static;

fn is_permission(error: &AnyError) -> bool {
    io_error(error).is_some_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

fn is_too_many_files(error: &AnyError) -> bool {
    io_error(error).is_some_and(|error| has_number(error, Errno::MFILE))
}

fn has_number(error: &io::Error, number: Errno) -> bool {
    error.raw_os_error() == Some(number.raw_os_error())
}

fn io_error(error: &AnyError) -> Option<&io::Error> {
    std::iter::successors(Some(error), |error| error.source()).find_map(|error| error.downcast_ref())
}

/// Joins the error and all its causes.
fn chain(error: &AnyError) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in std::iter::successors(Some(error), |error| error.source()) {
        let text = part.to_string();
        // Many errors repeat what caused them.
        if !parts.last().is_some_and(|last| last.contains(&text)) {
            parts.push(text);
        }
    }
    parts.join(": ")
}
