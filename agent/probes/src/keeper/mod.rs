//! The keeper: a process that makes and holds all links, so that the agent can be killed at any moment.
//!
//! What the kernel does for a process that is killed (SIGKILL) ends half-way: a breakpoint that was being placed or
//! taken out stays in the server (`failed to unregister, leaking uprobe`). So the agent sends the keeper a [`request`]
//! for each link, and the keeper makes it ([`links`]). Each link has a pair of sockets: when the agent's end is closed,
//! however the agent ends, the keeper has the link released, and then closes its own end. The keeper ends after the
//! agent ([`process`]).
//!
//! It makes one link at a time, as the kernel does (`dup_mmap_sem`, kernel/events/uprobes.c).

mod links;
mod process;
mod request;

use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, shutdown, socketpair};
use rustix::process::{Pid, Signal, kill_process};

pub use process::keep;
pub(crate) use request::{Attach, LinkKind};

use crate::error::ProbeError;
use crate::mappers;

/// The subcommand that runs [`keep`].
const SUBCOMMAND: &str = "keeper";
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// How often to look whether the keeper has ended, and how many looks at one that is stopped are enough.
const LOOK: Duration = Duration::from_millis(5);
const MOST_STOPPED: u32 = 400;

/// The agent's end of the socket to its keeper. Clones share it. Dropping the last one releases all links and waits
/// until they are released.
#[derive(Clone)]
pub struct LinkKeeper(Arc<Owner>);

struct Owner {
    socket: OwnedFd,
    /// The program with which the keeper looks who maps an executable, if the kernel has what that needs.
    look: Option<OwnedFd>,
    /// `None` if a thread keeps the links, or the process has been waited for.
    process: Mutex<Option<Child>>,
    /// The agent no longer needs it.
    is_ending: AtomicBool,
}

/// One or several attached sites of a program. Dropping it takes them off and waits until they are.
pub struct Link {
    sites: usize,
    leaving: Leaving,
}

/// A link that is being taken off. Dropping it waits until it is.
pub struct Leaving(UnixStream);

impl LinkKeeper {
    /// Starts the keeper's process: this very program with another subcommand. It gets the capabilities that this
    /// process has. Fails if no process can be started.
    pub fn start() -> Result<Self, ProbeError> {
        let look = mappers::load().inspect_err(|error| {
            tracing::warn!(
                "cannot see who maps an executable and holds its lock while a probe is placed, which stops the host for \
                 as long: {error}"
            );
        });
        Self::connected(look.ok(), |other| {
            let mut command = Command::new("/proc/self/exe");
            command
                .arg0("evictscope-keeper")
                .arg(SUBCOMMAND)
                .env_clear()
                .current_dir("/")
                .stdin(Stdio::from(other))
                .stdout(Stdio::null());
            command.spawn().map(Some)
        })
    }

    /// Does the same with a thread of this process, which cannot outlive it: for tests, whose programs have no
    /// subcommands. Fails if no thread can be started.
    pub fn in_thread() -> Result<Self, ProbeError> {
        // It would map the executable in this process, where several keepers may be.
        Self::connected(None, |other| {
            let serve = move || process::serve(other.as_fd());
            std::thread::Builder::new().spawn(serve).map(|_| None)
        })
    }

    fn connected(
        look: Option<OwnedFd>,
        start: impl FnOnce(OwnedFd) -> io::Result<Option<Child>>,
    ) -> Result<Self, ProbeError> {
        let connect = || {
            let (socket, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
            let process = Mutex::new(start(other)?);
            io::Result::Ok(Self(Arc::new(Owner { socket, look, process, is_ending: AtomicBool::new(false) })))
        };
        connect().map_err(ProbeError::NoKeeper)
    }

    /// Attaches a program to a process that runs this open executable. Fails with the kernel's error: `EINVAL` if it
    /// has no such links; `EPIPE` if the keeper has ended; an [`Obstacle`] if there is one.
    pub(crate) fn attach(&self, program: BorrowedFd<'_>, exe: BorrowedFd<'_>, attach: &Attach) -> io::Result<Link> {
        let (mut socket, keepers) = UnixStream::pair()?;
        let mut descriptors = vec![keepers.as_fd(), program, exe];
        descriptors.extend(self.0.look.as_ref().map(OwnedFd::as_fd));
        request::send(&self.0.socket, attach, &descriptors)?;
        drop(keepers);
        let mut answer = [0; request::ANSWER];
        socket.read_exact(&mut answer).map_err(|_| io::ErrorKind::BrokenPipe)?;
        request::decode(answer)?;
        Ok(Link { sites: attach.sites.len(), leaving: Leaving(socket) })
    }

    /// Has all links released, and waits until they are. No more can be made.
    pub(crate) fn end(&self) {
        self.0.end();
    }

    /// Returns whether the keeper has ended although the agent still needs it.
    pub(crate) fn has_failed(&self) -> bool {
        // In this order: the agent sets the flag before it closes the socket.
        is_closed(&self.0.socket, Some(&AT_ONCE)) && !self.0.is_ending.load(Ordering::SeqCst)
    }

    /// Has the keeper go on if something has stopped it (SIGSTOP). Returns whether it is stopped all the same, as by a
    /// debugger.
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.process.lock().as_ref().is_some_and(is_stopped)
    }

    /// Returns why nothing can be attached any more once the keeper has ended.
    pub(crate) fn why_ended(&self) -> ProbeError {
        if self.0.is_ending.load(Ordering::SeqCst) { ProbeError::Ending } else { ProbeError::KeeperEnded }
    }
}

impl Owner {
    fn end(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        // If it is closed already, the keeper has ended.
        let _ = shutdown(&self.socket, rustix::net::Shutdown::Write);
        let process = self.process.lock().take();
        let Some(mut process) = process else { return };
        let mut stopped = 0;
        // If it is no longer a child, it has ended.
        while let Ok(None) = process.try_wait() {
            stopped = if is_stopped(&process) { stopped + 1 } else { 0 };
            if stopped > MOST_STOPPED {
                tracing::error!(
                    "`evictscope-keeper` is stopped, as by a debugger, and takes its probes off when it goes on"
                );
                return;
            }
            sleep(LOOK);
        }
    }
}

/// Has a process go on if something has stopped it. Returns whether it is stopped all the same.
fn is_stopped(process: &Child) -> bool {
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    };
    if state() == Some('T') {
        // If that is not allowed, it stays stopped.
        let _ = kill_process(Pid::from_child(process), Signal::CONT);
    }
    matches!(state(), Some('T' | 't'))
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.end();
    }
}

impl Link {
    pub fn sites(&self) -> usize {
        self.sites
    }

    /// Begins to take it off. The kernel waits for each link, and does so for several at once.
    pub fn take_off(self) -> Leaving {
        self.leaving.begin();
        self.leaving
    }
}

impl Leaving {
    fn begin(&self) {
        // If it is closed already, the keeper has ended.
        let _ = self.0.shutdown(Shutdown::Write);
    }

    pub fn is_over(&self) -> bool {
        is_closed(&self.0, Some(&AT_ONCE))
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.begin();
        is_closed(&self.0, None);
    }
}

/// Waits up to `patience`, or without limit, for the other end of a socket to be closed, and returns whether it is.
fn is_closed(socket: &impl AsFd, patience: Option<&Timespec>) -> bool {
    let mut waited = [PollFd::new(socket, PollFlags::empty())];
    rustix::io::retry_on_intr(|| poll(&mut waited, patience)).is_ok_and(|closed| closed > 0)
}
