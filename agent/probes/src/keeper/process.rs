//! The keeper's own process: it makes links, has them released, and ends when the agent has ended.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::SendFlags;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_name, set_no_new_privs,
};

use super::hands::{Hands, MOST};
use super::links::{Kept, create};
use super::request::{Kind, receive};

/// What making links needs. Perf events need CAP_SYS_ADMIN too, which includes both.
const LINKS: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);

#[derive(Default)]
struct Keeper {
    links: Vec<Kept>,
    hands: Hands,
}

/// Keeps links for the agent that started this process, until the agent's end of the socket on standard input is
/// closed. Then releases all.
///
/// # Errors
///
/// Fails if it was not started by the agent.
pub fn keep() -> io::Result<()> {
    // A service manager or a terminal sends its signals to the agent's children, too, before the agent has ended.
    block_signals();
    set_name(c"evictscope-keep")?;
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    limit_to(LINKS | CapabilitySet::SYS_ADMIN)?;
    serve(rustix::stdio::stdin())
}

/// Does what the agent asks for until the other end of the socket is closed, and then releases all links.
///
/// # Errors
///
/// Fails if `socket` is not a socket, or what it receives is not a request.
pub fn serve(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut keeper = Keeper::default();
    let served = loop {
        match keeper.turn(socket) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    while !keeper.links.is_empty() {
        let some = keeper.links.len().saturating_sub(MOST);
        keeper.hands.release(keeper.links.split_off(some));
        // Dropping them waits.
        keeper.hands = Hands::default();
    }
    served
}

impl Keeper {
    /// Waits for something to do, and does it. Returns whether there may be more.
    fn turn(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let hands: Vec<BorrowedFd<'_>> = self.hands.processes().collect();
        // No more links are released until one of the hands is free.
        let links = if hands.len() < MOST {
            &*self.links
        } else {
            &[]
        };
        let links = links.iter().map(|kept| kept.agent.as_fd());
        let waited = [socket].into_iter().chain(hands.iter().copied());
        let mut waited: Vec<PollFd<'_>> = waited
            .chain(links)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        rustix::io::retry_on_intr(|| poll(&mut waited, None))?;
        let mut is_ready = waited.iter().map(|fd| !fd.revents().is_empty());
        let is_asked = is_ready.next() == Some(true);
        let unwanted: Vec<bool> = is_ready.skip(hands.len()).collect();

        self.hands.drop_ended();
        let mut unwanted = unwanted.into_iter();
        let unwanted = self.links.extract_if(.., |_| unwanted.next() == Some(true));
        let unwanted = unwanted.take(MOST).collect();
        self.hands.release(unwanted);
        match is_asked {
            true => self.attach(socket),
            false => Ok(true),
        }
    }

    /// Receives a request, and makes the link. Returns `false` if the other end is closed.
    fn attach(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let Some((attach, descriptors)) = receive(socket)? else {
            return Ok(false);
        };
        let mut descriptors = descriptors.into_iter();
        // If the descriptor to answer on is missing, the agent sees it closed.
        let Some(agent) = descriptors.next() else {
            return Ok(true);
        };
        let made = match (descriptors.next(), descriptors.next()) {
            (Some(program), Some(exe)) => create(program.as_fd(), exe.as_fd(), &attach),
            _ => Err(io::Error::from_raw_os_error(libc::EMFILE)),
        };
        let error = made.as_ref().err();
        let error = error.map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
        // If the agent has just ended, nobody receives it.
        let _ = rustix::net::send(&agent, &error.to_ne_bytes(), SendFlags::NOSIGNAL);
        if let Ok(link) = made {
            self.links.push(Kept { link, agent });
            if attach.kind == Kind::Multi {
                // Only perf events need more.
                limit_to(LINKS)?;
            }
        }
        Ok(true)
    }
}

/// Gives up all other capabilities. CAP_SYS_ADMIN stays if one of [`LINKS`] is missing.
fn limit_to(wanted: CapabilitySet) -> io::Result<()> {
    let held = capabilities(None)?.permitted;
    let wanted = match held.contains(LINKS) {
        true => wanted,
        false => LINKS | CapabilitySet::SYS_ADMIN,
    };
    let kept = CapabilitySets {
        effective: held & wanted,
        permitted: held & wanted,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, kept)?)
}

/// Blocks all signals that can be blocked: those that end a process would interrupt the kernel's work for it.
fn block_signals() {
    // SAFETY: the set is filled before it is read, and belongs to this function. Signals are blocked in this thread, the only
    // one.
    unsafe {
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
    }
}
