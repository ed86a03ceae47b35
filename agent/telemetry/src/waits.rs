//! How long requests of clients lie unread.
//!
//! A look at a server's sockets tells in which connections data lies that the server has not read, and when data last came. A request
//! that a look finds is as old as the first look that found the server at the same place of that connection, or older by what the
//! kernel says. So a client that goes on sending does not look young for ever, and one whose requests are being
//! read, one after the other, does not look old.
//!
//! The sum over connections of the time that their requests lay unread, divided by commands, is the mean wait of a
//! command (Little's law). Between two looks, the number of connections is taken to change evenly.

use std::collections::HashMap;
use std::time::Duration;

use super::recent_maximum::RecentMaximum;
use super::{SocketLook, Unread};

/// Requests that lay unread for longer than these are counted: what a person notices, and what GitLab counted.
pub const OVER: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// The waits of one server's clients.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// The connections with unread data, at the last look.
    waiting: HashMap<u64, Waiting>,
    /// When the last look was made.
    last: Option<Duration>,
    connected: u32,
    seconds: f64,
    over: [u64; OVER.len()],
    longest: RecentMaximum,
}

/// A request that lies unread.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    read_to: u32,
    since: Duration,
    /// How many of [`OVER`] it has passed.
    passed: usize,
}

impl Waits {
    /// Takes in a look that is later than the one before.
    pub(super) fn take_in(&mut self, look: &SocketLook) {
        let before = std::mem::take(&mut self.waiting);
        let at = look.at;
        let last = self.last.replace(at);
        for unread in &look.unread {
            let known = before.get(&unread.socket).zip(last);
            let mut waiting = follow(unread, known, at);
            let waited = at.saturating_sub(waiting.since);
            while OVER.get(waiting.passed).is_some_and(|over| waited >= *over) {
                self.over[waiting.passed] += 1;
                waiting.passed += 1;
            }
            self.waiting.insert(unread.socket, waiting);
        }
        let elapsed = last.map_or(0.0, |last| at.saturating_sub(last).as_secs_f64());
        self.seconds += (before.len() + self.waiting.len()) as f64 / 2.0 * elapsed;
        self.connected = look.connected;
        let longest = u64::try_from(self.oldest_wait().as_nanos());
        self.longest.take_in(at, longest.unwrap_or(u64::MAX));
        self.longest.forget(at);
    }

    /// Returns since when the oldest request has lain unread that the last look found.
    pub fn oldest(&self) -> Option<Duration> {
        self.waiting.values().map(|waiting| waiting.since).min()
    }

    /// Returns how long that had lain unread then; zero where there was none.
    pub fn oldest_wait(&self) -> Duration {
        let wait = self.last.zip(self.oldest());
        wait.map_or(Duration::ZERO, |(at, since)| at.saturating_sub(since))
    }

    /// Returns in how many connections requests lay unread at the last look.
    pub fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Returns how many connections there were at the last look.
    pub fn connected(&self) -> u64 {
        self.connected.into()
    }

    /// Returns connections times the time that their requests lay unread, seconds.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Returns how often a request lay unread for longer than each of [`OVER`].
    pub fn over(&self) -> [u64; OVER.len()] {
        self.over
    }

    /// Returns how long the request lay unread that waited longest in the last five minutes.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.get())
    }

    /// Tells whether a look was ever made.
    pub fn is_known(&self) -> bool {
        self.last.is_some()
    }
}

/// Returns the request that a look at `at` found in a connection, of which `known` was found at the last look, and when.
fn follow(unread: &Unread, known: Option<(&Waiting, Duration)>, at: Duration) -> Waiting {
    let came = unread.came.map_or(at, |came| came.min(at));
    let since = match known {
        Some((waiting, _)) if waiting.read_to == unread.read_to => return *waiting,
        // The server has read since; when, is not known. What it left had come by then, or came later.
        Some((_, last)) => came.max(last + at.saturating_sub(last) / 2),
        None => came,
    };
    Waiting {
        read_to: unread.read_to,
        since,
        passed: 0,
    }
}

#[cfg(test)]
mod tests;
