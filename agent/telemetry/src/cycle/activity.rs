//! When evicting calls were made, from the kernel's times and the server's own counter.

use std::time::Duration;

use evictscope_abi::QUIET_NS;

use crate::snapshots::is_observed;
use crate::{EvictionTimes, Moment};

/// Evicting calls that are further apart belong to two bursts.
pub(super) const QUIET: Duration = Duration::from_nanos(QUIET_NS);

/// Follows evictions even while calls are not observed: then evicted keys show them, as exactly as readings are close.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EvictionActivity {
    at: Duration,
    probed: Duration,
    evicted_keys: Option<u64>,
    times: EvictionTimes,
    /// The beginning of the last burst that was taken in, as the kernel timed it.
    begun: Duration,
}

impl EvictionActivity {
    /// Takes in an observation, and returns the times until then.
    pub fn follow(&mut self, seen: &Moment) -> EvictionTimes {
        let kernel = seen.evictions;
        let is_blind = !is_observed(seen.at.saturating_sub(self.at), seen.probed.saturating_sub(self.probed));
        let evicted = self.evicted_keys.zip(seen.evicted_keys);
        let by_keys = is_blind && evicted.is_some_and(|(before, now)| now > before);
        let mut before = self.times.last;
        let mut began = by_keys.then_some(self.at);
        if kernel.burst_began > self.begun {
            self.begun = kernel.burst_began;
            before = before.max(kernel.burst_before_ended);
            began = Some(kernel.burst_began);
        }
        // To the kernel, any time in which it saw no call was quiet.
        if let Some(began) = began.filter(|began| *began >= before + QUIET) {
            self.times.burst_began = began;
            self.times.burst_before_ended = before;
        }
        let newest = if by_keys { seen.at } else { Duration::ZERO };
        self.times.last = self.times.last.max(kernel.last).max(newest);
        self.times.since = kernel.since;
        self.at = seen.at;
        self.probed = seen.probed;
        self.evicted_keys = seen.evicted_keys.or(self.evicted_keys);
        self.times
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{EvictionActivity, EvictionTimes};
    use crate::Moment;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn seen(at: u64, probed: u64, keys: u64, last: u64, began: u64) -> Moment {
        Moment {
            at: ms(at),
            probed: ms(probed),
            evicted_keys: Some(keys),
            evictions: EvictionTimes { last: ms(last), burst_began: ms(began), ..EvictionTimes::default() },
            ..Moment::default()
        }
    }

    #[test]
    fn while_calls_are_observed_the_kernels_times_count() {
        let mut activity = EvictionActivity::default();
        activity.follow(&seen(10_000, 0, 0, 0, 0));
        let times = activity.follow(&seen(10_100, 100, 50, 10_070, 10_030));
        assert_eq!((times.burst_began, times.last), (ms(10_030), ms(10_070)));
    }

    #[test]
    fn while_they_are_not_keys_tell() {
        let mut activity = EvictionActivity::default();
        activity.follow(&seen(10_000, 100, 0, 0, 0));
        let times = activity.follow(&seen(10_020, 100, 50, 0, 0));
        assert_eq!((times.burst_began, times.last), (ms(10_000), ms(10_020)));
        // No key was evicted since.
        let times = activity.follow(&seen(10_040, 100, 50, 0, 0));
        assert_eq!(times.last, ms(10_020));
        // The kernel sees a call after a time without probes, which was not quiet.
        activity.follow(&seen(11_500, 100, 900, 0, 0));
        let times = activity.follow(&seen(11_600, 190, 950, 11_590, 11_550));
        assert_eq!((times.burst_began, times.last), (ms(10_000), ms(11_600)));
    }

    #[test]
    fn after_a_quiet_time_another_burst_begins() {
        let mut activity = EvictionActivity::default();
        activity.follow(&seen(10_000, 100, 0, 0, 0));
        activity.follow(&seen(10_020, 100, 50, 0, 0));
        for at in [10_500, 11_000, 11_500] {
            activity.follow(&seen(at, 100, 50, 0, 0));
        }
        let times = activity.follow(&seen(11_520, 100, 60, 0, 0));
        assert_eq!((times.burst_before_ended, times.burst_began), (ms(10_020), ms(11_500)));
    }
}
