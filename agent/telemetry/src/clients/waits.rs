//! How long requests of clients wait: from when they come until their answers leave.
//!
//! A look at a server's sockets tells which connections have data that the server has not read, which are owed an answer to what
//! it has read, and when data last came. A request that a look finds is as old as the first look that found the server at the
//! same place of that connection, or older if the kernel says so. So a client that keeps sending does not look young forever, and
//! a client whose requests are being read one after another does not look old.
//!
//! Two kinds of clients wait on purpose, and are left out: clients that were still owed an answer when the main thread came to
//! rest, because it had then read and answered what it could; and clients that are owed an answer while later requests are
//! answered, because they are blocked (BLPOP, WAIT).
//!
//! The sum over connections of the time that their requests waited, divided by commands, is the mean wait of a command (Little's
//! law). Between two looks, the number of waiting connections is assumed to change evenly.

use std::collections::HashMap;
use std::time::Duration;

use super::rest::TICK;
use crate::SocketLook;
use crate::recent_maximum::RecentMaximum;
use crate::units::nanoseconds;

/// Requests that waited for longer than these are counted: what a person notices, and what GitLab counted.
pub const OVER: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// The waits of one server's clients.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// The requests that the last look found, by socket.
    requests: HashMap<u64, Request>,
    /// When the last look was made.
    last: Option<Duration>,
    connected: u32,
    seconds: f64,
    over: [u64; OVER.len()],
    longest: RecentMaximum,
    /// When the latest request came that was seen to be answered.
    answered: Duration,
}

/// A request that has not been answered.
#[derive(Clone, Copy, Debug)]
struct Request {
    read_to: u32,
    answered_to: u32,
    /// Whether the server has read it.
    is_read: bool,
    came: Option<Duration>,
    /// Since when it has been waiting, as far as is known.
    since: Duration,
    /// How many of [`OVER`] it has passed.
    passed: usize,
    /// Whether its client waits on purpose.
    is_blocked: bool,
}

impl Waits {
    /// Takes in a look that is later than the one before. `rested` is when the main thread last came to rest, as far as is
    /// known.
    pub(crate) fn take_in(&mut self, look: &SocketLook, rested: Option<Duration>) {
        let at = look.at;
        let last = self.last.replace(at);
        let waited = self.waiting();
        let before = std::mem::take(&mut self.requests);
        let unread = look.unread.iter();
        let unread = unread.map(|one| (one.socket, one.read_to, one.answered_to, one.came, false));
        let owed = look.owed.iter();
        let owed = owed.map(|one| {
            (
                one.socket,
                one.read_to,
                one.answered_to,
                Some(one.came),
                true,
            )
        });
        for (socket, read_to, answered_to, came, is_read) in unread.chain(owed) {
            let new = Request {
                read_to,
                answered_to,
                is_read,
                came,
                since: came.map_or(at, |came| came.min(at)),
                passed: 0,
                is_blocked: false,
            };
            let request = new.follow(before.get(&socket).zip(last), at);
            self.requests.insert(socket, request);
        }
        let answered = before.iter().filter(|(socket, request)| {
            let now = self.requests.get(socket);
            request.is_read && now.is_none_or(|now| !now.is_behind(request))
        });
        let newest = answered.filter_map(|(_, request)| request.came).max();
        self.answered = self.answered.max(newest.unwrap_or_default());
        for request in self.requests.values_mut() {
            request.since = request.since.max(rested.unwrap_or_default());
            // It came before others that have been answered, or before the main thread rested.
            let is_passed_over = request.came.is_some_and(|came| {
                self.answered > came + TICK || rested.is_some_and(|rested| rested > came + TICK)
            });
            request.is_blocked |= request.is_read && is_passed_over;
            let waited = at.saturating_sub(request.since);
            while !request.is_blocked
                && OVER.get(request.passed).is_some_and(|over| waited >= *over)
            {
                self.over[request.passed] += 1;
                request.passed += 1;
            }
        }
        let elapsed = last.map_or(0.0, |last| at.saturating_sub(last).as_secs_f64());
        self.seconds += (waited + self.waiting()) as f64 / 2.0 * elapsed;
        self.connected = look.connected;
        self.longest.take_in(at, nanoseconds(self.oldest_wait()));
        self.longest.forget(at);
    }

    fn all_waiting(&self) -> impl Iterator<Item = &Request> {
        self.requests.values().filter(|request| !request.is_blocked)
    }

    /// Returns since when the oldest request that the last look found has been waiting.
    pub fn oldest(&self) -> Option<Duration> {
        self.all_waiting().map(|request| request.since).min()
    }

    /// Returns how long that request had waited then; zero if there was none.
    pub fn oldest_wait(&self) -> Duration {
        let wait = self.last.zip(self.oldest());
        wait.map_or(Duration::ZERO, |(at, since)| at.saturating_sub(since))
    }

    /// Returns the number of connections in which requests waited at the last look.
    pub fn waiting(&self) -> u64 {
        self.all_waiting().count() as u64
    }

    /// Returns how many connections there were at the last look.
    pub fn connected(&self) -> u64 {
        self.connected.into()
    }

    /// Returns the sum over connections of the time that their requests waited, seconds.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Returns how often a request waited for longer than each of [`OVER`].
    pub fn over(&self) -> [u64; OVER.len()] {
        self.over
    }

    /// Returns the longest wait of a request in the last five minutes.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.get())
    }

    /// Returns whether a look was ever made.
    pub fn is_known(&self) -> bool {
        self.last.is_some()
    }
}

impl Request {
    /// Returns whether the server has got no further in that connection since `before`: it has read no more, and has not answered
    /// what it had read.
    fn is_behind(&self, before: &Self) -> bool {
        let is_answered = before.is_read && before.answered_to != self.answered_to;
        before.read_to == self.read_to && !is_answered
    }

    /// Returns what is known about it at a look. `before` is the request that the last look found in the same connection, and
    /// when that was.
    fn follow(self, before: Option<(&Self, Duration)>, at: Duration) -> Self {
        let Some((before, last)) = before else {
            return self;
        };
        let is_unanswered_still = self.is_behind(before);
        let came_together = before.came.zip(self.came);
        let came_together = came_together.is_some_and(|(before, now)| now.abs_diff(before) <= TICK);
        if is_unanswered_still || self.is_read && !before.is_read && came_together {
            // The same request, which the server may have read by now.
            return Self {
                read_to: self.read_to,
                answered_to: self.answered_to,
                is_read: self.is_read,
                ..*before
            };
        }
        // The server has read since, at an unknown time. What it left had come by then, or came later.
        let since = match self.is_read || before.is_read {
            true => self.since,
            false => self.since.max(last + at.saturating_sub(last) / 2),
        };
        Self { since, ..self }
    }
}

#[cfg(test)]
mod tests;
