//! How long requests of clients wait: from when they come until their answers leave.
//!
//! A look at a server's sockets tells which connections have data that the server has not read, which are owed an
//! answer to what it has read, and when data last came. A request that a look finds is as old as the first look that
//! found the server at the same place of that connection, or older if the kernel says so. So a client that keeps
//! sending does not look young forever, and a client whose requests are being read one after another does not look old.
//!
//! A wait ends when the answer left, if the kernel still knows when that was: the next request of the connection makes
//! it forget. Otherwise it ended between two looks, and before the main thread was at rest or the next request came:
//! halfway, or after as long again as it had lasted.
//!
//! Two kinds of clients wait on purpose, and are left out: clients that were still owed an answer when the main thread
//! came to rest, because it had then read and answered what it could; and clients that are owed an answer while
//! requests are answered that came after theirs was read, because they are blocked (BLPOP, WAIT). Nor does a client
//! wait that sends more although it never had an answer: a replica's link.
//!
//! The sum over connections of the time that their requests waited, divided by commands, is the mean wait of a command
//! (Little's law). Each reading of the main thread is a sample: if it is at rest, nothing waits; otherwise a look is
//! made. A wait that lasts from one sample to the next is seen, and counts for what it lasted. Of shorter ones, a part
//! is seen, and each of these counts for the time since the sample before, which makes up for those that are not seen:
//! unless others waited for so long meanwhile that none was missed. The shortest are over when a look follows on a
//! reading. As somebody waits whenever the thread is busy, each of them that a look finds counts for the time for which
//! it has been busy since one was last found.
//!
//! What contradicts these numbers is the latency that clients measure themselves; nothing watches that.

use std::collections::HashMap;
use std::time::Duration;

use super::rest::TICK;
use crate::totals::RecentMaximum;
use crate::{Owed, SocketLook, Unread, nanoseconds};

/// Requests that waited for longer than these are counted: what a person notices, and what GitLab counted.
pub const OVER: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// The longest time over which busy time is kept for short waits that may be found.
const BUSY_SPAN: Duration = Duration::from_secs(10);
/// From here on, each wait that is known counts for what it lasted, even if no sample saw it.
const LONG: Duration = OVER[0];
/// If the server has answered somebody that much later than it read a request, it has gone on without answering it.
/// More than the error of [`SocketLook::sent`].
const SENT_LATER: Duration = Duration::from_millis(64);

/// The waits of one server's clients.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// The requests that the last look found, by socket.
    requests: HashMap<u64, Request>,
    /// When the last look was made.
    last: Option<Duration>,
    /// When short waits were last found or ruled out, and for how long the main thread had been busy until then.
    busy: Option<(Duration, Duration)>,
    /// How many connections there were at the last look.
    pub connected: u64,
    /// How many there were by a protocol that is not understood.
    pub not_seen: u64,
    waited: Duration,
    /// How often a request waited for longer than each of [`OVER`].
    pub over: [u64; OVER.len()],
    longest: RecentMaximum,
    /// When the latest request came that was seen to be answered.
    answered: Duration,
    /// The connections that the last look found closed by their clients, how far they had been answered, and whether a
    /// request of theirs waited.
    gave_up: HashMap<(u64, u32), bool>,
    /// How many connections a client has closed while a request of it waited.
    pub given_up: u64,
    /// When an answer was last known to leave, or the main thread to be at rest.
    alive: Duration,
    /// For how long no answer has left although requests waited, until the last look; zero if none did. It is not known
    /// whether an answer leaves on a Unix socket.
    pub unanswered: Duration,
}

/// A reading of the main thread, right before a look.
pub(crate) struct ThreadSample<'a> {
    pub at: Duration,
    /// For how long the thread had been busy until then: ran, or waited for a CPU; `None` if that is not known.
    pub busy: Option<Duration>,
    /// The last readings at which it was at rest, oldest first.
    pub rests: &'a [Duration],
}

/// A request that has not been answered.
#[derive(Clone, Copy, Debug, Default)]
struct Request {
    read_to: u32,
    answered_to: u32,
    /// Which look first found it read, if the server has read it.
    read: Option<Duration>,
    came: Option<Duration>,
    /// Since when it has been waiting, as far as is known.
    since: Duration,
    /// The time between the sample that found it and the one before.
    sampled_over: Duration,
    /// The time for which the main thread had been busy since the last short wait, when it was found.
    busy_over: Duration,
    /// How much of its wait has been counted.
    counted: Duration,
    /// How many of [`OVER`] it has passed.
    passed: usize,
    /// Whether its client waits on purpose.
    is_blocked: bool,
}

impl Waits {
    /// Takes in a look that is later than the one before, and was made right after a reading of the main thread.
    /// Returns since when and until when requests waited, as far as this look tells.
    pub(crate) fn take_in(&mut self, look: &SocketLook, thread: &ThreadSample<'_>) -> Vec<(Duration, Duration)> {
        let at = look.at;
        let last = self.last.replace(at);
        let rests = thread.rests;
        let rested = rests.last().copied().unwrap_or_default();
        let earlier = rests.iter().rfind(|rest| **rest < thread.at).copied();
        let sampled_over = earlier.max(last).map_or(Duration::ZERO, |sample| at.saturating_sub(sample));
        let busy_over = self.busy.map_or(Duration::ZERO, |(since, busy)| {
            let elapsed = at.saturating_sub(since);
            let busy = (thread.busy).map_or(elapsed, |now| now.saturating_sub(busy).min(elapsed));
            busy.mul_f64((BUSY_SPAN.as_secs_f64() / elapsed.as_secs_f64()).min(1.0))
        });
        let mut before = std::mem::take(&mut self.requests);
        let mut waits = Vec::new();
        let mut newest = self.answered;
        for (socket, is_certain, new) in found(look) {
            // A Unix socket does not say when: since the sample before, on average halfway.
            let since = new.came.map_or(at - sampled_over / 2, |came| came.min(at));
            let new = Request { since, sampled_over, busy_over, ..new };
            let old = before.get(&socket).copied();
            let goes_on = old.is_some_and(|old| new.continues(&old));
            if !is_certain && !goes_on {
                continue;
            }
            let request = match old.zip(last) {
                Some((old, _)) if goes_on => {
                    before.remove(&socket);
                    Request {
                        read_to: new.read_to,
                        answered_to: new.answered_to,
                        read: new.read.map(|new| old.read.unwrap_or(new)),
                        ..old
                    }
                }
                Some((old, last)) => new.after(&old, last, at),
                None => new,
            };
            self.requests.insert(socket, request);
        }
        let exact: HashMap<_, _> = look.answered.iter().map(|answer| (answer.socket, answer)).collect();
        let found_before = || before.iter().filter(|(_, old)| !old.is_blocked);
        // When the last of those was answered that the last look found, as far as the kernel says.
        let answered = found_before().filter_map(|(socket, old)| {
            let answer = exact.get(socket).filter(|answer| old.has_come_with(answer.came));
            answer.map(|answer| answer.left)
        });
        let answered = answered.max().unwrap_or_default();
        // If one of them has waited from sample to sample, or for long, so has every other: none can have been missed.
        let is_sure = found_before().any(|(_, old)| !old.counted.is_zero() || answered >= old.since + LONG);
        for (socket, old) in &before {
            newest = newest.max(old.came.filter(|_| old.read.is_some()).unwrap_or_default());
            let last = last.unwrap_or(at);
            let answer = exact.get(socket).filter(|answer| old.has_come_with(answer.came));
            let next = self.requests.get(socket).and_then(|next| next.came);
            let rest = rests.iter().find(|rest| **rest > last).copied();
            let latest = [next, rest, Some(at)].into_iter().flatten().min().unwrap_or(at).max(last);
            let end = match answer {
                Some(answer) => answer.left.clamp(last, latest),
                // Most short waits end much sooner than the next look: on average after as long again.
                None => last + ((latest - last) / 2).min(last.saturating_sub(old.since)),
            };
            if old.is_blocked {
                continue;
            }
            self.end(*old, end, answer.is_some(), is_sure);
            waits.push((old.since, end));
        }
        // Those that came and were answered since the last look.
        for answer in &look.answered {
            newest = newest.max(answer.came);
            let is_new = last.is_some_and(|last| answer.came >= last)
                && !before.get(&answer.socket).is_some_and(|old| old.has_come_with(answer.came));
            let has_rested = rests.iter().any(|rest| *rest > answer.came + TICK && *rest < answer.left);
            let wait = answer.left.saturating_sub(answer.came);
            // As long as they waited, so did what came meanwhile.
            let is_known = wait >= LONG || is_sure && answer.came < answered;
            if is_new && !has_rested && is_known {
                self.end(Request { since: answer.came, ..Request::default() }, answer.left, true, true);
                waits.push((answer.came, answer.left));
            }
        }
        self.answered = newest;
        let sent = look.sent.unwrap_or_default();
        for request in self.requests.values_mut() {
            if rested > request.since {
                request.since = rested;
                request.counted = Duration::ZERO;
            }
            // Requests that the event loop reads in one turn are answered at its end, those that came first not
            // always first.
            let is_passed_over = request.read.is_some_and(|read| {
                let has_rested = request.came.is_some_and(|came| rested > came + TICK);
                has_rested || newest > read + TICK || sent > read + SENT_LATER
            });
            request.is_blocked |= is_passed_over;
            // Whether it was passed over shows a little later.
            let is_open = request.read.is_some_and(|read| at < read + LONG);
            if request.is_blocked || is_open {
                continue;
            }
            let waited = at.saturating_sub(request.since);
            request.passes(waited, &mut self.over);
            if waited >= request.sampled_over {
                self.waited += waited.saturating_sub(request.counted);
                request.counted = waited;
            }
            waits.push((request.since, at));
        }
        if self.busy.is_none() || self.waiting() > 0 || is_sure {
            self.busy = Some((at, thread.busy.unwrap_or_default()));
        }
        self.connected = look.connected.into();
        self.not_seen = look.not_seen.into();
        self.longest.take_in(at, nanoseconds(self.oldest_wait()));
        self.longest.forget(at);
        let closed = std::mem::take(&mut self.gave_up);
        let mut given_up = None;
        for closed_by_client in &look.gave_up {
            let key = (closed_by_client.socket, closed_by_client.answered_to);
            let old = before.get(&closed_by_client.socket);
            let owed = old.filter(|old| old.answered_to == closed_by_client.answered_to);
            let has_waited = owed.map_or(closed_by_client.is_certain, |owed| !owed.is_blocked);
            let was_closed = closed.get(&key).copied();
            let has_waited = was_closed.unwrap_or(has_waited);
            self.given_up += u64::from(has_waited && was_closed.is_none());
            self.gave_up.insert(key, has_waited);
            given_up = [given_up, closed_by_client.came.filter(|_| has_waited)].into_iter().flatten().min();
        }
        self.alive = self.alive.max(rested).max(sent);
        let oldest = [self.oldest(), given_up].into_iter().flatten().min();
        self.unanswered = oldest.map_or(Duration::ZERO, |oldest| at.saturating_sub(oldest.max(self.alive)));
        waits
    }

    /// Counts a wait that has ended. `is_exact` is whether the kernel says when, and `is_sure` whether it would have
    /// been seen whenever the samples were.
    fn end(&mut self, mut request: Request, end: Duration, is_exact: bool, is_sure: bool) {
        let waited = end.saturating_sub(request.since);
        let counts = match is_sure || is_exact && waited >= LONG {
            true => waited,
            false if waited < TICK => request.busy_over,
            false => waited.max(request.sampled_over),
        };
        self.waited += counts.saturating_sub(request.counted);
        request.passes(waited, &mut self.over);
        if is_exact {
            self.longest.take_in(end, nanoseconds(waited));
        }
    }

    fn all_waiting(&self) -> impl Iterator<Item = &Request> {
        self.requests.values().filter(|request| !request.is_blocked)
    }

    /// Returns since when a request of this connection has been waiting, if the last look found one.
    pub(crate) fn since(&self, socket: u64) -> Option<Duration> {
        self.requests.get(&socket).filter(|request| !request.is_blocked).map(|request| request.since)
    }

    /// Returns since when the oldest request that the last look found has been waiting.
    pub fn oldest(&self) -> Option<Duration> {
        self.all_waiting().map(|request| request.since).min()
    }

    /// Returns how long that request had waited then; zero if there was none.
    pub fn oldest_wait(&self) -> Duration {
        self.last.zip(self.oldest()).map_or(Duration::ZERO, |(at, since)| at.saturating_sub(since))
    }

    /// Returns the number of connections in which requests waited at the last look.
    pub fn waiting(&self) -> u64 {
        self.all_waiting().count() as u64
    }

    /// Returns the sum over connections of the time that their requests waited, seconds.
    pub fn seconds(&self) -> f64 {
        self.waited.as_secs_f64()
    }

    /// Returns the longest wait of a request in the last five minutes.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.get())
    }

    pub fn is_known(&self) -> bool {
        self.last.is_some()
    }
}

/// Returns the requests that a look found: the socket, whether it is certain, and what is known of it.
fn found(look: &SocketLook) -> impl Iterator<Item = (u64, bool, Request)> {
    let unread = look.unread.iter().map(|&Unread { socket, read_to, answered_to, came, .. }| {
        (socket, true, Request { read_to, answered_to, came, ..Request::default() })
    });
    let owed = look.owed.iter().map(|&Owed { socket, read_to, answered_to, came, is_certain }| {
        let (read, came) = (Some(look.at), Some(came));
        (socket, is_certain, Request { read_to, answered_to, read, came, ..Request::default() })
    });
    unread.chain(owed)
}

impl Request {
    /// Returns whether its data came at `came`, to a tick.
    fn has_come_with(&self, came: Duration) -> bool {
        self.came.is_some_and(|known| known.abs_diff(came) <= TICK)
    }

    /// Returns whether it is the request `before` of the same connection: the server has read no more, and has not
    /// answered what it had read; or it has only read it.
    fn continues(&self, before: &Self) -> bool {
        let is_answered = before.read.is_some() && before.answered_to != self.answered_to;
        let is_behind = before.read_to == self.read_to && !is_answered;
        let is_now_read = self.read.is_some() && before.read.is_none();
        is_behind || is_now_read && before.came.is_some_and(|came| self.has_come_with(came))
    }

    /// Returns what is known about it at a look, after another request of the same connection.
    fn after(self, before: &Self, last: Duration, at: Duration) -> Self {
        // The server has read since, at an unknown time. What it left had come by then, or came later.
        let since = if self.read.or(before.read).is_some() {
            self.since
        } else {
            self.since.max(last + at.saturating_sub(last) / 2)
        };
        // Whoever sends more without having had an answer needs none.
        Self { since, is_blocked: before.is_blocked && before.answered_to == self.answered_to, ..self }
    }

    /// Counts the lengths that it has passed by having waited for so long.
    fn passes(&mut self, waited: Duration, over: &mut [u64; OVER.len()]) {
        while OVER.get(self.passed).is_some_and(|over| waited >= *over) {
            over[self.passed] += 1;
            self.passed += 1;
        }
    }
}

#[cfg(test)]
mod tests;
