//! The last ten minutes of a server: its state at each reading, and what its main thread did in each 20 ms.

mod moments;

use std::collections::VecDeque;
use std::time::Duration;

use self::moments::Moments;
use crate::snapshots::is_observed;
use crate::{EvictionTimes, Moment, StallTime, nanoseconds, stall_times};

/// Length of a bin, nanoseconds.
pub const BIN_NS: u64 = 20_000_000;
/// How many bins are kept: ten minutes.
const KEPT: usize = 30_000;
/// If two readings are further apart, it is not known what happened when.
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
    /// The bins up to that of the last reading, which is not full yet; `None` where evicting calls were not observed.
    bins: VecDeque<Option<TimeBin>>,
    moments: Moments,
    last: Option<Moment>,
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
        let mut timeline = Self::new(moments.first().map_or(Duration::ZERO, |moment| moment.at));
        for moment in moments {
            // A foreign file may hold any time.
            if timeline.last.is_none_or(|last| last.at < moment.at) {
                timeline.fill(&Moment {
                    // Where in the interval evicting calls were made was not kept.
                    evictions: EvictionTimes { since: moment.at, ..EvictionTimes::default() },
                    probed: moment.observed,
                    cpu_other: moment.cpu.map(|cpu| cpu.saturating_sub(moment.evicting)),
                    ..*moment
                });
            }
        }
        timeline
    }

    pub fn take_in(&mut self, now: &Moment) {
        self.moments.push(*now);
        self.fill(now);
    }

    fn fill(&mut self, now: &Moment) {
        let last = self.last.replace(*now);
        self.extend_to(index(now.at));
        let Some(last) = last else { return };
        let elapsed = now.at.saturating_sub(last.at);
        if elapsed > LONGEST_INTERVAL || !is_observed(elapsed, now.probed.saturating_sub(last.probed)) {
            self.forget(last.at, now.at);
            return;
        }
        // If a burst begins or ends in the interval, evicting calls were made on only one side of that.
        let is_under_way = !now.evictions.since.is_zero();
        let ended = if is_under_way { now.at } else { now.evictions.last.clamp(last.at, now.at) };
        let began = now.evictions.burst_began.clamp(last.at, ended);
        let grown = |of: fn(&Moment) -> Option<Duration>| {
            nanoseconds(of(now).unwrap_or_default().saturating_sub(of(&last).unwrap_or_default()))
        };
        self.spread(began, ended, grown(|moment| Some(moment.evicting)), |bin| &mut bin.evicting);
        self.spread(began, ended, grown(|moment| moment.cpu_eviction), |bin| &mut bin.cpu_eviction);
        self.spread(last.at, now.at, grown(|moment| moment.cpu_other), |bin| &mut bin.cpu_other);
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

    fn spread(&mut self, from: Duration, to: Duration, ns: u64, part: fn(&mut TimeBin) -> &mut u32) {
        let (begin, end) = (monotonic_ns(from), monotonic_ns(to).max(monotonic_ns(from) + 1));
        let mut left = ns;
        for bin in begin / BIN_NS..=(end - 1) / BIN_NS {
            let within = end.min((bin + 1) * BIN_NS) - begin.max(bin * BIN_NS);
            // The last bin takes what rounding left over.
            let share = if bin == (end - 1) / BIN_NS {
                left
            } else {
                (u128::from(ns) * u128::from(within) / u128::from(end - begin)) as u64
            };
            left -= share;
            if let Some(Some(bin)) = self.bin(bin) {
                let part = part(bin);
                // CPU time is counted up to a tick late, so it can exceed the bin's length.
                *part = u32::try_from((u64::from(*part) + share).min(BIN_NS)).unwrap_or(u32::MAX);
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
        self.bins.get_mut(usize::try_from(index.checked_sub(self.first)?).ok()?)
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

    /// Returns from when on a record of what began at `began` tells what was usual: a minute before it, or before the
    /// server began to evict, if it had not been calm for long since.
    pub fn calm_before(&self, began: Duration) -> Duration {
        let earlier = self.moments.between(Duration::ZERO, began, Duration::ZERO);
        let calm = last_calm(&earlier).and_then(|calm| Some(calm.last()?.at)).unwrap_or(began);
        calm.min(began).saturating_sub(RECORDED_BEFORE)
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

/// How much of the time before what it is about a record has.
pub const RECORDED_BEFORE: Duration = Duration::from_secs(60);
/// A shorter calm says too little about what is usual.
const LEAST_CALM: Duration = Duration::from_secs(5);

/// Returns the last of these moments between which a server was calm for long enough to say what is usual.
pub fn last_calm(moments: &[Moment]) -> Option<&[Moment]> {
    let is_long = |first: &Moment, last: &Moment| last.at.saturating_sub(first.at) >= LEAST_CALM;
    moments
        .rsplit(Moment::is_busy)
        .find(|calm| calm.first().zip(calm.last()).is_some_and(|(first, last)| is_long(first, last)))
}

fn monotonic_ns(at: Duration) -> u64 {
    nanoseconds(at).min(u64::MAX - BIN_NS)
}

fn index(at: Duration) -> u64 {
    monotonic_ns(at) / BIN_NS
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BIN_NS, KEPT, TimeBin, Timeline};
    use crate::{EvictionTimes, Moment, Phase};

    const UNIX: Duration = Duration::from_secs(1_700_000_000);

    fn bin(index: u64) -> Duration {
        Duration::from_nanos(index * BIN_NS)
    }

    /// Returns a reading of a server that is observed all the time.
    fn seen(at: Duration) -> Moment {
        let zero = Some(Duration::ZERO);
        Moment { at, probed: at, cpu_eviction: zero, cpu_other: zero, ..Moment::default() }
    }

    #[test]
    fn kept_moments_have_bins() {
        let moment = |index: u64, evicting_us, cpu_us| Moment {
            at: bin(index),
            observed: bin(index),
            evicting: Duration::from_micros(evicting_us),
            cpu: Some(Duration::from_micros(cpu_us)),
            ..Moment::default()
        };
        // The third one comes from a clock that was set back.
        let kept = [moment(100, 0, 0), moment(101, 5_000, 7_000), moment(99, 0, 0), moment(103, 5_000, 17_000)];
        let bins: Vec<_> = Timeline::of(&kept).bins().collect();
        let parts = |evicting, cpu_other| Some(TimeBin { evicting, cpu_eviction: 0, cpu_other });
        let half = parts(0, 5_000_000);
        assert_eq!(bins, [parts(5_000_000, 2_000_000), half, half]);
        assert_eq!(Timeline::of(&[]).bins().count(), 0);
    }

    #[test]
    fn each_bin_has_what_happened_in_it() {
        let mut timeline = Timeline::new(bin(100));
        timeline.take_in(&seen(bin(100)));
        // A burst begins in the middle of the second bin.
        let burst = EvictionTimes {
            burst_began: bin(101) + Duration::from_nanos(BIN_NS / 2),
            since: bin(102),
            ..EvictionTimes::default()
        };
        timeline.take_in(&Moment {
            evictions: burst,
            evicting: Duration::from_nanos(BIN_NS * 3 / 2),
            cpu_eviction: Some(bin(1)),
            cpu_other: Some(Duration::from_nanos(300)),
            ..seen(bin(103))
        });
        let full = BIN_NS as u32;
        let expected = [(0, 0, 100), (full / 2, full / 3, 100), (full, full - full / 3, 100)];
        let parts = |bin: TimeBin| (bin.evicting, bin.cpu_eviction, bin.cpu_other);
        let found: Vec<_> = timeline.bins().map(|bin| bin.map(parts)).collect();
        assert_eq!(found, expected.map(Some));
        assert_eq!(timeline.start(), bin(100));
    }

    #[test]
    fn what_was_not_observed_is_not_known() {
        let mut timeline = Timeline::new(bin(0));
        timeline.take_in(&seen(bin(0)));
        timeline.take_in(&seen(bin(5)));
        timeline.take_in(&Moment { probed: bin(5), ..seen(bin(10)) });
        timeline.take_in(&Moment { probed: bin(10), ..seen(bin(15)) });
        // Nor is what happened between two readings that are far apart.
        timeline.take_in(&seen(bin(120)));
        let unknown: Vec<_> = timeline.bins().map(|bin| bin.is_none()).collect();
        let expected: Vec<_> = (0..120).map(|bin| (5..=10).contains(&bin) || bin >= 15).collect();
        assert_eq!(unknown, expected);
    }

    #[test]
    fn what_was_usual_is_looked_for_before_the_burst() {
        let mut timeline = Timeline::new(bin(0));
        let second = Duration::from_secs(1);
        for at in 0..300 {
            // It pauses for a moment.
            let phase = if at < 100 || (200..204).contains(&at) { Phase::NotSaturated } else { Phase::Saturated };
            timeline.take_in(&Moment { phase: Some(phase), ..seen(second * at) });
        }
        let from = [90, 150, 250].map(|began| timeline.calm_before(second * began).as_secs());
        assert_eq!(from, [30, 39, 39]);
        assert_eq!(Timeline::new(bin(0)).calm_before(second * 90), second * 30);
    }

    #[test]
    fn it_stays_bounded() {
        let mut timeline = Timeline::new(bin(0));
        for tenth in 0..14_000_u64 {
            timeline.take_in(&seen(Duration::from_millis(50 * tenth)));
        }
        assert_eq!(timeline.bins().count(), KEPT);
        let last = Duration::from_millis(50 * 13_999);
        assert_eq!(timeline.start(), bin(last.as_nanos() as u64 / BIN_NS - KEPT as u64));
        assert!(timeline.samples(UNIX).count() <= 6_140);
        assert!(timeline.moments(Duration::ZERO, Duration::MAX, UNIX).len() <= 8_000);
        timeline.take_in(&seen(Duration::MAX));
        assert_eq!(timeline.bins().count(), KEPT);
    }
}
