//! The ticks by which the kernel says when data came.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

/// How long a tick is, and when the last one was. The coarse clock advances with the same ticks as `jiffies`, even when
/// they are late, and its resolution is their length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticks {
    pub(super) length: Duration,
    /// Monotonic time of the last one.
    pub(super) last: Duration,
}

impl Ticks {
    /// Returns the last tick.
    pub(super) fn now() -> Self {
        Self {
            length: duration(clock_getres(ClockId::MonotonicCoarse)),
            last: duration(clock_gettime(ClockId::MonotonicCoarse)),
        }
    }

    /// Returns how many there are in a second.
    pub(super) fn per_second(self) -> u32 {
        let per_second = 1_000_000_000 / self.length.as_nanos().max(1);
        u32::try_from(per_second).unwrap_or(u32::MAX)
    }

    /// Returns the time of the tick that came `ticks` ticks before the last one at `at`.
    pub(super) fn before(self, at: Duration, ticks: u32) -> Duration {
        let later = self.last.saturating_sub(at).as_nanos();
        let later = later.div_ceil(self.length.as_nanos().max(1));
        let later = u32::try_from(later).unwrap_or(u32::MAX);
        let all = self.length.saturating_mul(ticks.saturating_add(later));
        self.last.saturating_sub(all)
    }
}

fn duration(time: Timespec) -> Duration {
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(time.tv_sec.cast_unsigned(), nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_counted_from_the_last_one_before_the_look() {
        let ms = Duration::from_millis;
        let ticks = Ticks { length: ms(4), last: ms(1000) };
        assert_eq!(ticks.before(ms(1001), 0), ms(1000));
        assert_eq!(ticks.before(ms(1009), 0), ms(1000), "ticks are late");
        assert_eq!(ticks.before(ms(1001), 25), ms(900));
        assert_eq!(ticks.before(ms(1000), 1), ms(996));
        assert_eq!(ticks.before(ms(999), 1), ms(992), "one has come since the look");
        assert_eq!(ticks.before(ms(991), 1), ms(984));
        assert_eq!(ticks.before(ms(991), u32::MAX), Duration::ZERO);
    }

    #[test]
    fn this_kernel_has_ticks() {
        let ticks = Ticks::now();
        assert!(Duration::from_micros(100) <= ticks.length, "{ticks:?}");
        assert!(ticks.length <= Duration::from_millis(20), "{ticks:?}");
        let now = duration(clock_gettime(ClockId::Monotonic));
        assert!(ticks.last <= now, "{ticks:?}");
    }
}
