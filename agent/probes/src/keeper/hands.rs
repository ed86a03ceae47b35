//! Processes that release links by ending: the *hands*.
//!
//! A process that is killed (SIGKILL) while it closes the last descriptor of a link leaves breakpoints, as the kernel's look-up
//! of the page is interrupted. A process that ends cannot be killed any more. So a link is given to a new process, which shares
//! the memory of this one but not its descriptors, this one closes its own, and the other ends. The kernel waits for each link,
//! so several of them release them side by side.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, set_parent_process_death_signal, waitid,
};
use rustix::thread::{Timespec, nanosleep};

/// The most hands that are started together. More than one for each link does not help, and a control group may not
/// allow many.
const MOST: usize = 64;
/// The stack of a hand, bytes: it makes a few system calls.
const STACK: usize = 32 << 10;
/// How long one side waits before it looks again whether the other is ready.
const TURN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000,
};
/// After so many turns a hand that is not ready has been killed.
const TURNS: usize = 100_000;

/// The hands at work. Dropping them waits until they have ended.
#[derive(Default)]
pub struct Hands(Vec<Hand>);

struct Hand {
    process: OwnedFd,
    /// The links that it releases.
    links: Vec<u64>,
    _grip: Box<Grip>,
    _stack: Box<[MaybeUninit<u8>]>,
}

/// What a hand is told. It outlives the hand.
struct Grip {
    parent: Pid,
    /// The descriptors of its links, ascending.
    links: Vec<RawFd>,
    stage: Arc<Stage>,
}

/// How far hands that were started together are.
#[derive(Default)]
struct Stage {
    /// Hands that have closed all descriptors but those of their links.
    ready: AtomicUsize,
    /// The keeper has closed its own.
    let_go: AtomicBool,
}

impl Hands {
    /// Begins to release links. Returns those that are released already, as no process could be started for them.
    pub fn release(&mut self, mut links: Vec<(u64, OwnedFd)>) -> Vec<u64> {
        let stage = Arc::new(Stage::default());
        let share = links.len().div_ceil(MOST).max(1);
        let (mut started, mut left) = (Vec::new(), Vec::new());
        while !links.is_empty() {
            let own = links.split_off(links.len().saturating_sub(share));
            match Hand::start(&own, &stage) {
                Ok(hand) => started.push((hand, own)),
                Err(_) => left.extend(own),
            }
        }
        for _ in 0..TURNS {
            if stage.ready.load(Ordering::SeqCst) == started.len() {
                break;
            }
            turn();
        }
        for (hand, own) in started {
            drop(own);
            self.0.push(hand);
        }
        stage.let_go.store(true, Ordering::SeqCst);
        left.into_iter().map(|(link, _)| link).collect()
    }

    /// Returns what can be read once a hand has ended.
    pub fn processes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|hand| hand.process.as_fd())
    }

    /// Returns the links that hands have released since the last time.
    pub fn released(&mut self) -> Vec<u64> {
        let ended = |hand: &mut Hand| hand.has_ended(WaitIdOptions::NOHANG);
        let ended = self.0.extract_if(.., ended);
        ended
            .flat_map(|mut hand| std::mem::take(&mut hand.links))
            .collect()
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        // It has the stack and the grip until then.
        self.has_ended(WaitIdOptions::empty());
    }
}

impl Hand {
    fn start(links: &[(u64, OwnedFd)], stage: &Arc<Stage>) -> io::Result<Self> {
        let mut descriptors: Vec<RawFd> = links.iter().map(|(_, fd)| fd.as_raw_fd()).collect();
        descriptors.sort_unstable();
        let grip = Box::new(Grip {
            parent: getpid(),
            links: descriptors,
            stage: stage.clone(),
        });
        let mut stack = Box::new_uninit_slice(STACK);
        let end = stack.as_mut_ptr_range().end;
        let told = (&raw const *grip).cast_mut().cast();
        let flags = libc::CLONE_VM | libc::CLONE_PIDFD | libc::SIGCHLD;
        let mut process: c_int = -1;
        // SAFETY: the stack and what the function is told live until the process has ended, as `Hand` has both and
        // is dropped after that. The function uses nothing of this thread: see there.
        let pid = unsafe { libc::clone(hold, end.cast(), flags, told, &raw mut process) };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            // SAFETY: the kernel has just opened it for this caller.
            process: unsafe { OwnedFd::from_raw_fd(process) },
            links: links.iter().map(|(link, _)| *link).collect(),
            _grip: grip,
            _stack: stack,
        })
    }

    fn has_ended(&self, options: WaitIdOptions) -> bool {
        let process = WaitId::PidFd(self.process.as_fd());
        let ended =
            rustix::io::retry_on_intr(|| waitid(process.clone(), options | WaitIdOptions::EXITED));
        // That it is no child any more says the same.
        !matches!(ended, Ok(None))
    }
}

/// Waits a moment.
fn turn() {
    // One that is interrupted is only shorter.
    let _ = nanosleep(&TURN);
}

/// What a hand does. It runs with the memory and the thread-local variables of the thread that has started it, while that one
/// goes on: so it allocates nothing, changes nothing but `stage`, and makes system calls that do not fail.
extern "C" fn hold(told: *mut c_void) -> c_int {
    // SAFETY: it lives until this process has ended.
    let grip = unsafe { &*told.cast::<Grip>() };
    // Should the keeper be killed, nobody lets go.
    let is_tied = set_parent_process_death_signal(Some(Signal::KILL)).is_ok();
    let mut next = 0;
    for own in &grip.links {
        if next < *own {
            close(next, *own - 1);
        }
        next = *own + 1;
    }
    close(next, RawFd::MAX);
    grip.stage.ready.fetch_add(1, Ordering::SeqCst);
    while is_tied && getppid() == Some(grip.parent) && !grip.stage.let_go.load(Ordering::SeqCst) {
        turn();
    }
    // SAFETY: it ends this process, and touches no memory.
    unsafe { libc::_exit(0) }
}

/// Closes the descriptors from one to another, which nobody may use any more.
pub fn close(first: RawFd, last: RawFd) {
    // SAFETY: nobody uses them, says the caller; that they are open or not changes no memory.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}
