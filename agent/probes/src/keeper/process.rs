//! The keeper's own process: it makes links, has them released, and ends when the agent has ended.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use evictscope_host::LINKS;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities, set_name,
    set_no_new_privs,
};

use super::links::{CodeRange, KeptLink, MOST_RELEASERS, Releasers, create};
use super::request::{LinkKind, encode, receive};
use crate::system::block_signals;

/// When to look again whether a link can be released that would have held up the host.
const AGAIN: Duration = Duration::from_millis(100);
/// How long to keep links for that reason after the agent has ended: the unit gives it three minutes to end by itself.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Default)]
struct Keeper {
    links: Vec<KeptLink>,
    releasers: Releasers,
    /// The program that looks who maps an executable, once it has come.
    look: Option<Rc<OwnedFd>>,
}

/// Keeps links for the agent that started this process, until the agent's end of the socket on standard input is
/// closed. Then releases all. Fails if it was not started by the agent.
pub fn keep() -> io::Result<()> {
    // A service manager or a terminal sends its signals to the agent's children, too, before the agent has ended.
    block_signals();
    set_name(c"evictscope-keep")?;
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    limit_to(LINKS | CapabilitySet::SYS_ADMIN)?;
    serve(rustix::stdio::stdin())
}

/// Does what the agent asks for until the other end of the socket is closed, and then releases all links. Fails if
/// `socket` is not a socket, or what it receives is not a request.
pub fn serve(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut keeper = Keeper::default();
    let served = loop {
        match keeper.turn(socket) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    let until = Instant::now() + PATIENCE;
    while !keeper.links.is_empty() {
        let links = std::mem::take(&mut keeper.links);
        let mut free = if Instant::now() < until { keeper.without_obstacle(links) } else { links };
        if free.is_empty() {
            sleep(AGAIN);
        }
        while !free.is_empty() {
            keeper.releasers.release(free.split_off(free.len().saturating_sub(MOST_RELEASERS)));
            // Dropping them waits.
            keeper.releasers = Releasers::default();
        }
    }
    served
}

impl Keeper {
    /// Waits for something to do, and does it. Returns whether there may be more.
    fn turn(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let releasers: Vec<BorrowedFd<'_>> = self.releasers.processes().collect();
        // No more links are released until one of the releasers is free.
        let room = MOST_RELEASERS.saturating_sub(releasers.len());
        let now = Instant::now();
        let is_due = |kept: &KeptLink| room > 0 && kept.again.is_none_or(|again| again <= now);
        let later = self.links.iter().filter_map(|kept| kept.again).min();
        let later = later.and_then(|again| Timespec::try_from(again.saturating_duration_since(now)).ok());
        let due = self.links.iter().filter(|kept| is_due(kept)).map(|kept| kept.agent.as_fd());
        let mut waited: Vec<PollFd<'_>> = std::iter::once(socket)
            .chain(releasers.iter().copied())
            .chain(due)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        rustix::io::retry_on_intr(|| poll(&mut waited, later.as_ref()))?;
        let mut is_ready = waited.iter().map(|fd| !fd.revents().is_empty());
        let is_asked = is_ready.next() == Some(true);
        let unwanted: Vec<bool> = is_ready.skip(releasers.len()).collect();

        self.releasers.drop_ended();
        let mut unwanted = unwanted.into_iter();
        let is_unwanted = |kept: &mut KeptLink| is_due(kept) && unwanted.next() == Some(true);
        let unwanted = self.links.extract_if(.., is_unwanted).take(room).collect();
        let free = self.without_obstacle(unwanted);
        self.releasers.release(free);
        if is_asked { self.attach(socket) } else { Ok(true) }
    }

    /// Returns those of these links that can be released without holding up the host, and keeps the others until later.
    fn without_obstacle(&mut self, links: Vec<KeptLink>) -> Vec<KeptLink> {
        let mut looked: Vec<(CodeRange, bool)> = Vec::new();
        let ranges: Vec<CodeRange> = links.iter().filter_map(|kept| kept.range.clone()).collect();
        let mut has_obstacle = |range: &CodeRange| {
            if let Some((_, has_obstacle)) = looked.iter().find(|(other, _)| other.shares(range)) {
                return *has_obstacle;
            }
            let has_obstacle = range.around(&ranges).obstacle().is_some();
            looked.push((range.clone(), has_obstacle));
            has_obstacle
        };
        let (kept, free): (Vec<KeptLink>, _) =
            links.into_iter().partition(|kept| kept.range.as_ref().is_some_and(&mut has_obstacle));
        let again = Some(Instant::now() + AGAIN);
        self.links.extend(kept.into_iter().map(|kept| KeptLink { again, ..kept }));
        free
    }

    /// Receives a request, and makes the link. Returns `false` if the other end is closed.
    fn attach(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let Some((attach, descriptors)) = receive(socket)? else { return Ok(false) };
        let mut descriptors = descriptors.into_iter();
        // If the descriptor to answer on is missing, the agent sees it closed.
        let Some(agent) = descriptors.next() else { return Ok(true) };
        let (program, exe) = (descriptors.next(), descriptors.next());
        if self.look.is_none() {
            self.look = descriptors.next().map(Rc::new);
        }
        let (made, range) = match (program, exe) {
            (Some(program), Some(exe)) => {
                let exe = Rc::new(exe);
                let range = self.look.clone().and_then(|look| CodeRange::of(look, exe.clone(), &attach, &self.links));
                let made = match range.as_ref().and_then(CodeRange::obstacle) {
                    Some(obstacle) => Err(obstacle.into()),
                    None => create(program.as_fd(), exe.as_fd(), &attach),
                };
                (made, range)
            }
            _ => (Err(io::Error::from_raw_os_error(libc::EMFILE)), None),
        };
        // If the agent has just ended, nobody receives it.
        let _ = rustix::net::send(&agent, &encode(made.as_ref().err()), SendFlags::NOSIGNAL);
        if let Ok(link) = made {
            self.links.push(KeptLink { link, agent, range, again: None });
            if attach.kind == LinkKind::Multi {
                // Only perf events need CAP_SYS_ADMIN, too.
                limit_to(LINKS)?;
            }
        }
        Ok(true)
    }
}

/// Gives up all other capabilities. CAP_SYS_ADMIN stays if one of [`LINKS`] is missing.
fn limit_to(wanted: CapabilitySet) -> io::Result<()> {
    let held = capabilities(None)?.permitted;
    let kept = held & if held.contains(LINKS) { wanted } else { LINKS | CapabilitySet::SYS_ADMIN };
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: none })?)
}
