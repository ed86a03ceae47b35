//! The keeper's own process: it makes links, has them released, and ends when the agent has ended.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_name, set_no_new_privs,
};

use super::hands::{Hands, close};
use super::links::create;
use super::wire::{Answer, Attach, Kind, Request, receive, send};

/// What making links takes.
const LINKS: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);

/// The links that are kept, by number.
#[derive(Default)]
struct Kept {
    links: HashMap<u64, OwnedFd>,
    hands: Hands,
}

/// Keeps links for the agent that has started this process, whose standard input is a socket of that one, until the other end
/// is closed. Then releases all.
///
/// # Errors
///
/// Where it was not the agent that has started it.
pub fn keep() -> io::Result<()> {
    // A service manager and a terminal send their signals to the agent's children, too, and before the agent has ended.
    block_signals();
    // What the agent has inherited; standard error stays, for what must not happen.
    close(3, RawFd::MAX);
    set_name(c"evictscope-keep")?;
    set_no_new_privs(true)?;
    let held = capabilities(None)?.permitted;
    limit_to(held & (LINKS | CapabilitySet::SYS_ADMIN))?;
    serve(rustix::stdio::stdin())
}

/// Answers requests until the other end of the socket is closed, and then releases all links.
///
/// # Errors
///
/// Where the socket is none.
pub fn serve(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut kept = Kept::default();
    let served = loop {
        match kept.next(socket) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    let all = kept.links.drain().collect();
    kept.hands.release(all);
    served
}

impl Kept {
    /// Waits for something to do, and does it. Returns whether there may be more.
    fn next(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let is_asked = {
            let hands = self.hands.processes();
            let waited = [socket].into_iter().chain(hands);
            let mut waited: Vec<PollFd<'_>> = waited
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            rustix::io::retry_on_intr(|| poll(&mut waited, None))?;
            !waited[0].revents().is_empty()
        };
        for link in self.hands.released() {
            answer(socket, link, Ok(()));
        }
        if !is_asked {
            return Ok(true);
        }
        let Some((words, descriptors)) = receive(socket)? else {
            return Ok(false);
        };
        match Request::parse(&words) {
            Some(Request::Attach(link, attach)) => {
                let made = self.attach(link, &attach, &descriptors);
                answer(socket, link, made);
            }
            Some(Request::TakeOff(links)) => {
                let known = |link| Some((link, self.links.remove(&link)?));
                let known = links.into_iter().filter_map(known).collect();
                for link in self.hands.release(known) {
                    answer(socket, link, Ok(()));
                }
            }
            None => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(true)
    }

    fn attach(&mut self, link: u64, attach: &Attach, with: &[OwnedFd]) -> io::Result<()> {
        let [program, exe] = with else {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        };
        let made = create(program.as_fd(), exe.as_fd(), attach)?;
        if attach.kind == Kind::Multi {
            // Only perf events may take more.
            limit_to(LINKS)?;
        }
        self.links.insert(link, made);
        Ok(())
    }
}

/// Says what became of a link. Where the agent has just ended, nobody hears it.
fn answer(socket: BorrowedFd<'_>, link: u64, result: io::Result<()>) {
    let error = result.err();
    let error = error.map(|error| error.raw_os_error().unwrap_or(libc::EIO));
    let _ = send(socket, &Answer { link, error }.words(), &[]);
}

/// Gives up all other capabilities, where these suffice: without both of [`LINKS`], all that are held stay.
fn limit_to(wanted: CapabilitySet) -> io::Result<()> {
    let held = capabilities(None)?.permitted;
    if held == wanted || !held.contains(LINKS) {
        return Ok(());
    }
    clear_ambient_capability_set()?;
    let kept = CapabilitySets {
        effective: held & wanted,
        permitted: held & wanted,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, kept)?)
}

/// Blocks all signals that can be blocked: those that end a process would interrupt what it does for the kernel.
fn block_signals() {
    // SAFETY: the set is filled before it is read, and belongs to this function. Signals are blocked in this thread, the only
    // one.
    unsafe {
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
    }
}
