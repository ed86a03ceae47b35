//! What the bursts of a server add up to.

use std::time::Duration;

use evictscope_abi::Bounds;

use super::{Burst, HistogramTotals};

/// A second, nanoseconds.
const S: u64 = 1_000_000_000;
/// Duration of bursts, nanoseconds: 0.1 to 120 s.
const DURATION_NS: Bounds = Bounds::List(&[
    S / 10,
    S / 5,
    S / 2,
    S,
    2 * S,
    5 * S,
    10 * S,
    20 * S,
    30 * S,
    60 * S,
    120 * S,
]);
/// Duration of reclaims, nanoseconds: 1 to 600 s.
const RECLAIM_NS: Bounds = Bounds::List(&[
    S,
    2 * S,
    5 * S,
    10 * S,
    20 * S,
    30 * S,
    60 * S,
    120 * S,
    300 * S,
    600 * S,
]);
/// Bytes: powers of 4, 64 KiB … 64 GiB.
const BYTES: Bounds = Bounds::Powers {
    first: 16,
    step: 2,
    last: 36,
};
/// Throughput ratio, millionths: 0.05 to 1.0.
const RATIO: Bounds = Bounds::List(&[
    50_000, 100_000, 200_000, 300_000, 400_000, 500_000, 600_000, 700_000, 800_000, 900_000,
    1_000_000,
]);

/// What the finished bursts of a server add up to.
#[derive(Clone, Debug)]
pub struct BurstTotals {
    /// Finished bursts, by [`super::BurstKind`].
    pub finished: [u64; 2],
    /// Duration, nanoseconds.
    pub duration: HistogramTotals,
    /// Duration of the reclaim, nanoseconds; of bursts that had one.
    pub reclaim: HistogramTotals,
    /// By how much client buffers grew, bytes; where that is known.
    pub client_buffer_growth: HistogramTotals,
    /// By how much memory fell after the last evicting call, bytes; where that is known.
    pub reclaimed: HistogramTotals,
    /// Throughput in the burst by that of the minute before, millionths; where that is known.
    pub throughput_ratio: HistogramTotals,
    /// When the last burst began, as time since 1970, be it finished or not.
    pub last_start: Option<Duration>,
}

impl BurstTotals {
    /// Returns the totals before the first burst.
    pub(super) fn new() -> Self {
        Self {
            finished: [0; 2],
            duration: HistogramTotals::new(DURATION_NS),
            reclaim: HistogramTotals::new(RECLAIM_NS),
            client_buffer_growth: HistogramTotals::new(BYTES),
            reclaimed: HistogramTotals::new(BYTES),
            throughput_ratio: HistogramTotals::new(RATIO),
            last_start: None,
        }
    }

    /// Counts a finished burst.
    pub(super) fn count(&mut self, burst: &Burst) {
        self.finished[burst.kind().0 as usize] += 1;
        self.duration.record(nanoseconds(burst.duration));
        if burst.reclaim > Duration::ZERO {
            self.reclaim.record(nanoseconds(burst.reclaim));
        }
        if let Some(growth) = burst.client_buffer_growth() {
            self.client_buffer_growth.record(growth);
        }
        if let Some(reclaimed) = burst.reclaimed() {
            self.reclaimed.record(reclaimed);
        }
        if let Some(ratio) = burst.throughput_ratio() {
            self.throughput_ratio.record((ratio * 1e6).round() as u64);
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::BurstTotals;
    use crate::telemetry::bursts::tests::of_the_article;

    #[test]
    fn each_burst_is_in_every_histogram_it_has_a_value_for() {
        let mut totals = BurstTotals::new();
        let mut burst = of_the_article();
        totals.count(&burst);
        burst.reclaim = std::time::Duration::ZERO;
        burst.client_buffers_before = None;
        totals.count(&burst);
        assert_eq!(totals.finished, [1, 1]);
        assert_eq!(totals.duration.count(), 2);
        assert_eq!(totals.duration.sum(), 14_000_000_000);
        assert_eq!(totals.reclaim.count(), 1);
        assert_eq!(totals.client_buffer_growth.count(), 1);
        assert_eq!(totals.throughput_ratio.sum(), 400_000);
        let up_to_a_fifth = totals.throughput_ratio.cumulative().nth(2);
        assert_eq!(up_to_a_fifth, Some((200_000, 2)));
        assert_eq!(totals.reclaimed.sum(), 800 << 20);
    }
}
