//! The last ten minutes of a server: its state at each reading, and what its main thread did in each 20 ms.

use std::collections::VecDeque;
use std::time::Duration;

use super::moments::Moments;
use super::stall_times::{StallTime, stall_times};
use crate::snapshots::snapshot::is_observed;
use crate::{EvictionTimes, Moment, Observation};

/// Length of a bin, nanoseconds.
pub const BIN_NS: u64 = 20_000_000;
/// How many bins are kept: ten minutes.
const KEPT: usize = 30_000;
/// If two observations are further apart, it is not known what happened when.
const LONGEST_INTERVAL: Duration = Duration::from_secs(2);

/// What happened in 20 ms, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeBin {
    /// Wall time in evicting calls.
    pub evicting: u32,
    /// CPU time of the main thread in evicting calls.
    pub cpu_eviction: u32,
    /// CPU time of the main thread elsewhere.
    pub cpu_other: u32,
}

/// The last ten minutes of a server.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Index of the first bin.
    first: u64,
    /// The bins up to that of the last observation, which is not full yet; `None` where evicting calls were not
    /// observed.
    bins: VecDeque<Option<TimeBin>>,
    moments: Moments,
    /// The last observation, and the wall time in evicting calls until then, nanoseconds.
    last: Option<(Observation, u64)>,
}

impl Timeline {
    /// Begins with a server that was found at the monotonic time `at`.
    pub fn new(at: Duration) -> Self {
        Self {
            first: index(at),
            bins: VecDeque::from([Some(TimeBin::default())]),
            moments: Moments::default(),
            last: None,
        }
    }

    /// Returns a timeline with the bins of kept moments. CPU time beyond the wall time in evicting calls is taken for
    /// time elsewhere.
    pub fn of(moments: &[Moment]) -> Self {
        let mut timeline = Self::new(moments.first().map_or(Duration::ZERO, Moment::unix_time));
        for moment in moments {
            let at = moment.unix_time();
            let evicting_ns = moment.evicting_us.saturating_mul(1_000);
            let cpu_ns = moment.cpu_us.map(|us| us.saturating_mul(1_000));
            let seen = Observation {
                at,
                // Where in the interval evicting calls were made was not kept.
                evictions: EvictionTimes { since: at, ..EvictionTimes::default() },
                observed: Duration::from_micros(moment.observed_us),
                cpu_other_ns: cpu_ns.map(|ns| ns.saturating_sub(evicting_ns)),
                ..Observation::default()
            };
            // A foreign file may hold any time.
            if timeline.last.is_none_or(|(last, _)| last.at < at) {
                timeline.fill(&seen, evicting_ns);
            }
        }
        timeline
    }

    /// Takes in an observation, before which evicting calls had taken `evicting_ns` of wall time, and the moment of the
    /// same reading.
    pub fn take_in(&mut self, seen: &Observation, evicting_ns: u64, moment: Moment) {
        self.moments.push(seen.at, moment);
        self.fill(seen, evicting_ns);
    }

    /// Fills the bins up to an observation.
    fn fill(&mut self, seen: &Observation, evicting_ns: u64) {
        let last = self.last.replace((*seen, evicting_ns));
        self.extend_to(index(seen.at));
        let Some((last, evicting_before)) = last else {
            return;
        };
        let elapsed = seen.at.saturating_sub(last.at);
        let observed = seen.observed.saturating_sub(last.observed);
        if elapsed > LONGEST_INTERVAL || !is_observed(elapsed, observed) {
            self.forget(last.at, seen.at);
            return;
        }
        // If a burst begins or ends in the interval, evicting calls were made on only one side of that.
        let ended = match seen.evictions.since.is_zero() {
            true => seen.evictions.last.clamp(last.at, seen.at),
            false => seen.at,
        };
        let began = seen.evictions.burst_began.clamp(last.at, ended);
        let grown = |of: fn(&Observation) -> Option<u64>| {
            let before = of(&last).unwrap_or(0);
            of(seen).unwrap_or(0).saturating_sub(before)
        };
        let evicting = evicting_ns.saturating_sub(evicting_before);
        let cpu_eviction = grown(|seen| seen.cpu_eviction_ns);
        let cpu_other = grown(|seen| seen.cpu_other_ns);
        self.spread(began, ended, evicting, |bin| &mut bin.evicting);
        self.spread(began, ended, cpu_eviction, |bin| &mut bin.cpu_eviction);
        self.spread(last.at, seen.at, cpu_other, |bin| &mut bin.cpu_other);
    }

    /// Adds bins up to `newest`, and drops those that are too old.
    fn extend_to(&mut self, newest: u64) {
        if newest.saturating_sub(self.end()) > KEPT as u64 {
            self.bins.clear();
            self.first = newest - KEPT as u64;
        }
        while self.end() <= newest {
            self.bins.push_back(Some(TimeBin::default()));
        }
        // One more, which is not full yet.
        while self.bins.len() > KEPT + 1 {
            self.bins.pop_front();
            self.first += 1;
        }
    }

    /// Spreads nanoseconds evenly over the time between two moments.
    fn spread(&mut self, from: Duration, to: Duration, ns: u64, part: fn(&mut TimeBin) -> &mut u32) {
        let (begin, end) = (nanoseconds(from), nanoseconds(to).max(nanoseconds(from) + 1));
        let mut left = ns;
        for bin in begin / BIN_NS..=(end - 1) / BIN_NS {
            let within = end.min((bin + 1) * BIN_NS) - begin.max(bin * BIN_NS);
            let share = u128::from(ns) * u128::from(within) / u128::from(end - begin);
            // The last bin takes what rounding left over.
            let share = match bin == (end - 1) / BIN_NS {
                true => left,
                false => share as u64,
            };
            left -= share;
            if let Some(Some(bin)) = self.bin(bin) {
                let part = part(bin);
                // CPU time is counted up to a tick late, so it can exceed the bin's length.
                let sum = (u64::from(*part) + share).min(BIN_NS);
                *part = u32::try_from(sum).unwrap_or(u32::MAX);
            }
        }
    }

    fn forget(&mut self, from: Duration, to: Duration) {
        for index in index(from).max(self.first)..=index(to) {
            if let Some(bin) = self.bin(index) {
                *bin = None;
            }
        }
    }

    fn bin(&mut self, index: u64) -> Option<&mut Option<TimeBin>> {
        let offset = usize::try_from(index.checked_sub(self.first)?).ok()?;
        self.bins.get_mut(offset)
    }

    fn end(&self) -> u64 {
        self.first + self.bins.len() as u64
    }

    /// Returns when the first bin begins, monotonic.
    pub fn start(&self) -> Duration {
        Duration::from_nanos(self.first * BIN_NS)
    }

    /// Returns the full bins from [`Self::start`] on without a gap; `None` for a bin that is not known.
    pub fn bins(&self) -> impl Iterator<Item = Option<TimeBin>> + '_ {
        self.bins.iter().take(self.bins.len() - 1).copied()
    }

    /// Returns the moments between two monotonic times, the oldest first: all that were read in the last three minutes,
    /// and ten a second before that. `since_1970` is added to a monotonic time to date it.
    pub fn moments(&self, from: Duration, to: Duration, since_1970: Duration) -> Vec<Moment> {
        self.moments.between(from, to, since_1970)
    }

    /// Returns when clients were stalled, the earliest first, dated likewise.
    pub fn stall_times(&self, since_1970: Duration) -> impl Iterator<Item = StallTime> + '_ {
        stall_times(self.moments.all(since_1970))
    }

    /// Returns ten moments a second, the oldest first, dated likewise.
    pub fn samples(&self, since_1970: Duration) -> impl Iterator<Item = Moment> + '_ {
        self.moments.samples(since_1970)
    }

    /// Forgets the measurements of expire cycles, because their plan was found wrong.
    pub fn forget_cycles(&mut self) {
        self.moments.forget_cycles();
    }
}

fn nanoseconds(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX - BIN_NS)
}

fn index(at: Duration) -> u64 {
    nanoseconds(at) / BIN_NS
}

#[cfg(test)]
mod tests;
