//! The keeper: a process that makes and holds all links, so that the agent can be killed at any moment.
//!
//! What a process does for the kernel while it is killed (SIGKILL) ends half-way: a breakpoint that it was placing or taking out
//! stays in the server (`failed to unregister, leaking uprobe`). So the agent asks the keeper for each link ([`wire`]), which makes it
//! ([`links`]) and has it released ([`hands`]); when the agent ends, however it ends, the socket between them is closed, and
//! the keeper releases all links and follows ([`process`]).

mod hands;
mod links;
mod process;
mod wire;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};

pub(crate) use links::perf_event;
pub use process::keep;
use wire::{Answer, Request};
pub(crate) use wire::{Attach, Kind};

use crate::error::ProbeError;

/// The subcommand that runs [`keep`].
const SUBCOMMAND: &str = "keeper";

/// The agent's end of the socket to its keeper. Clones share it. When the last one is dropped, all links are released, for
/// which it waits.
#[derive(Clone)]
pub struct LinkKeeper(Arc<Owner>);

struct Owner {
    shared: Arc<Shared>,
    /// `None` where a thread keeps the links, or the process was waited for.
    process: Mutex<Option<Child>>,
}

/// What the thread shares that reads the answers.
struct Shared {
    socket: OwnedFd,
    /// Who waits for an answer about which link; `None` once the keeper has ended.
    waiting: Mutex<Option<HashMap<u64, Sender<io::Result<()>>>>>,
    next: AtomicU64,
    /// The agent wants no more of it.
    is_ending: AtomicBool,
}

/// One or several attached sites of a program. Dropping it takes them off, for which it waits.
pub struct Link {
    /// `None` once it is being taken off.
    number: Option<u64>,
    sites: usize,
    keeper: LinkKeeper,
}

/// Links that are being taken off.
pub struct Leaving(Receiver<io::Result<()>>);

impl LinkKeeper {
    /// Starts the keeper's process: this very program with another subcommand. It gets the capabilities that this process has.
    ///
    /// # Errors
    ///
    /// Where no process or thread can be started.
    pub fn start() -> Result<Self, ProbeError> {
        Self::connected(|other| {
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

    /// Does the same with a thread of this process, which cannot outlive it: for tests, whose programs have no subcommands.
    ///
    /// # Errors
    ///
    /// Where no thread can be started.
    pub fn in_thread() -> Result<Self, ProbeError> {
        Self::connected(|other| {
            let serve = move || process::serve(other.as_fd());
            std::thread::Builder::new().spawn(serve).map(|_| None)
        })
    }

    fn connected(
        start: impl FnOnce(OwnedFd) -> io::Result<Option<Child>>,
    ) -> Result<Self, ProbeError> {
        let connect = || {
            let (own, other) = socketpair(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC,
                None,
            )?;
            let shared = Arc::new(Shared {
                socket: own,
                waiting: Mutex::new(Some(HashMap::new())),
                next: AtomicU64::new(0),
                is_ending: AtomicBool::new(false),
            });
            let process = Mutex::new(start(other)?);
            let owner = Owner {
                shared: shared.clone(),
                process,
            };
            std::thread::Builder::new()
                .name("keeper".to_owned())
                .spawn(move || shared.read_answers())?;
            io::Result::Ok(Self(Arc::new(owner)))
        };
        connect().map_err(ProbeError::NoKeeper)
    }

    /// Attaches a program to a process, which runs this open executable.
    ///
    /// # Errors
    ///
    /// What the kernel says: `EINVAL` where it has no such links; `EPIPE` where the keeper has ended.
    pub(crate) fn attach(
        &self,
        program: BorrowedFd<'_>,
        exe: BorrowedFd<'_>,
        attach: Attach,
    ) -> io::Result<Link> {
        let shared = &self.0.shared;
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        let sites = attach.sites.len();
        let told = shared.wait_for(&[number]);
        let request = Request::Attach(number, attach).words();
        let sent = wire::send(shared.socket.as_fd(), &request, &[program, exe]);
        if let Err(error) = sent {
            shared.told(number);
            return Err(error);
        }
        let ended = |_| Err(io::ErrorKind::BrokenPipe.into());
        told.recv().unwrap_or_else(ended)?;
        Ok(Link {
            number: Some(number),
            sites,
            keeper: self.clone(),
        })
    }

    /// Begins to take links off: all at once, as the kernel waits for each.
    pub(crate) fn take_off(&self, links: impl IntoIterator<Item = Link>) -> Leaving {
        let links = links.into_iter();
        self.release(links.filter_map(|mut link| link.number.take()).collect())
    }

    fn release(&self, links: Vec<u64>) -> Leaving {
        let shared = &self.0.shared;
        let told = shared.wait_for(&links);
        let request = Request::TakeOff(links);
        // Where it cannot be sent, the keeper has ended, and with it the links: the channel is closed soon.
        let _ = wire::send(shared.socket.as_fd(), &request.words(), &[]);
        Leaving(told)
    }

    /// Has all links released, and waits until they are. No more can be made.
    pub(crate) fn end(&self) {
        self.0.end();
    }

    /// Tells whether the keeper has ended, though the agent wants more of it.
    pub(crate) fn has_failed(&self) -> bool {
        let shared = &self.0.shared;
        !shared.is_ending.load(Ordering::SeqCst) && shared.waiting().is_none()
    }

    /// Returns why nothing can be attached any more once the keeper has ended.
    pub(crate) fn why_ended(&self) -> ProbeError {
        match self.0.shared.is_ending.load(Ordering::SeqCst) {
            true => ProbeError::Ending,
            false => ProbeError::KeeperEnded,
        }
    }
}

impl Owner {
    fn end(&self) {
        self.shared.is_ending.store(true, Ordering::SeqCst);
        // Where it is closed already, the keeper has ended.
        let _ = shutdown(&self.shared.socket, Shutdown::Write);
        let process = self.process.lock();
        let process = process.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut process) = process {
            // Where it is no child any more, it has ended.
            let _ = process.wait();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Option<HashMap<u64, Sender<io::Result<()>>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns where the answers about links will come, which is closed after the last one, or when the keeper has ended.
    fn wait_for(&self, links: &[u64]) -> Receiver<io::Result<()>> {
        let (tell, told) = channel();
        if let Some(waiting) = &mut *self.waiting() {
            waiting.extend(links.iter().map(|link| (*link, tell.clone())));
        }
        told
    }

    /// Forgets who waits for an answer, and returns it.
    fn told(&self, link: u64) -> Option<Sender<io::Result<()>>> {
        self.waiting().as_mut()?.remove(&link)
    }

    /// Hands the keeper's answers on until it has ended.
    fn read_answers(&self) {
        while let Ok(Some((words, _))) = wire::receive(self.socket.as_fd()) {
            let Some(Answer { link, error }) = Answer::parse(&words) else {
                break;
            };
            if let Some(tell) = self.told(link) {
                let error = error.map(io::Error::from_raw_os_error);
                // Nobody waits any more where a thread has panicked.
                let _ = tell.send(error.map_or(Ok(()), Err));
            }
        }
        *self.waiting() = None;
    }
}

impl Link {
    /// Returns how many sites are attached.
    pub fn sites(&self) -> usize {
        self.sites
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(number) = self.number.take() {
            self.keeper.release(vec![number]).wait();
        }
    }
}

impl Leaving {
    /// Tells whether all are off.
    pub fn is_over(&self) -> bool {
        let mut answers = self.0.try_iter();
        while answers.next().is_some() {}
        matches!(self.0.try_recv(), Err(TryRecvError::Disconnected))
    }

    /// Waits until all are off.
    pub fn wait(self) {
        while self.0.recv().is_ok() {}
    }
}
