//! The moments of the last ten minutes of a server, within a bound.

use std::collections::VecDeque;
use std::time::Duration;

use super::moment::microseconds;
use super::{Moment, Observation};

/// For how long moments are kept.
const SPAN: Duration = Duration::from_secs(600);
/// For how long all of them are kept. With ten a second before that, a server that evicts all the time takes 4 MB at most.
const DETAILED: Duration = Duration::from_secs(180);
/// Closer ones are left out: while a server is sampled, it is read at odd times too.
const CLOSEST: Duration = Duration::from_millis(10);
/// Least time between two samples: ten a second, give or take what a reading comes early.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(90);

/// A moment, and what only its timeline needs of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    at: Duration,
    moment: Moment,
    /// For how long evictions have stalled the server.
    stalled: Option<Duration>,
    is_sample: bool,
}

impl Kept {
    /// Returns what is kept of an observation, and of the same as a moment.
    pub fn new(seen: &Observation, moment: Moment) -> Self {
        Self {
            at: seen.at,
            moment,
            stalled: seen.stalled,
            is_sample: false,
        }
    }

    /// Returns the moment, as the clock that tells the time since 1970 has it now.
    fn moment(&self, since_1970: Duration) -> Moment {
        Moment {
            unix_us: microseconds(since_1970.saturating_add(self.at)),
            ..self.moment
        }
    }
}

/// The moments of the last ten minutes, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Moments {
    /// Samples only.
    older: VecDeque<Kept>,
    recent: VecDeque<Kept>,
    last_sample: Option<Duration>,
}

impl Moments {
    /// Adds a moment that is later than the last one, unless it is very close to it.
    pub fn push(&mut self, mut kept: Kept) {
        let at = kept.at;
        let is_close = |last: &Kept| at.saturating_sub(last.at) < CLOSEST;
        if self.recent.back().is_some_and(is_close) {
            return;
        }
        let is_due = |last| at.saturating_sub(last) >= SAMPLE_INTERVAL;
        if self.last_sample.is_none_or(is_due) {
            self.last_sample = Some(at);
            kept.is_sample = true;
        }
        self.recent.push_back(kept);
        let is_older = |kept: &mut Kept| at.saturating_sub(kept.at) > DETAILED;
        while let Some(kept) = self.recent.pop_front_if(is_older) {
            if kept.is_sample {
                self.older.push_back(kept);
            }
        }
        let is_over = |kept: &mut Kept| at.saturating_sub(kept.at) > SPAN;
        while self.older.pop_front_if(is_over).is_some() {}
    }

    fn all(&self) -> impl Iterator<Item = &Kept> {
        self.older.iter().chain(&self.recent)
    }

    /// Returns those between two monotonic times.
    pub fn between(&self, from: Duration, to: Duration, since_1970: Duration) -> Vec<Moment> {
        let within = self
            .all()
            .filter(|kept| (from..=to).contains(&kept.at))
            .map(|kept| kept.moment(since_1970));
        within.collect()
    }

    /// Returns ten a second, each with the time for which evictions have stalled the server.
    pub fn samples(
        &self,
        since_1970: Duration,
    ) -> impl Iterator<Item = (Moment, Option<Duration>)> + '_ {
        let samples = self.all().filter(|kept| kept.is_sample);
        samples.map(move |kept| (kept.moment(since_1970), kept.stalled))
    }

    /// Forgets what was measured of expire cycles.
    pub fn forget_cycles(&mut self) {
        for kept in self.older.iter_mut().chain(&mut self.recent) {
            kept.moment.expiring_us = None;
            kept.moment.stalled_us = kept.stalled.map(microseconds);
        }
    }
}
