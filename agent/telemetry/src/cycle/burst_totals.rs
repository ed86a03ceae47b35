//! What the bursts of a server add up to.

use std::time::Duration;

use evictscope_abi::Bounds;

use crate::{Burst, BurstKind, HistogramTotals, nanoseconds};

/// A second, nanoseconds.
const S: u64 = 1_000_000_000;
/// Duration of bursts, nanoseconds: around the lab's 2 to 5 s and GitLab's 6 to 8 s; the last is an outage.
const DURATION_NS: Bounds = Bounds::List(&[S, 2 * S, 5 * S, 10 * S, 30 * S, 120 * S]);
/// Duration of reclaims, nanoseconds: around the lab's 1 to 5 s and GitLab's 30 to 60 s.
const RECLAIM_NS: Bounds = Bounds::List(&[2 * S, 5 * S, 10 * S, 30 * S, 60 * S, 300 * S]);

/// Shorter bursts whose evictions stalled nobody are in no mean: a calm cache may have one every second, and the means
/// would be theirs.
const SHORT: Duration = Duration::from_millis(500);

/// What the finished bursts of a server add up to. Short ones whose evictions stalled nobody are only in `finished`.
#[derive(Clone, Debug)]
pub struct BurstTotals {
    /// Finished bursts, by [`crate::BurstKind`].
    pub finished: [u64; BurstKind::ALL.len()],
    /// Duration, nanoseconds.
    pub duration: HistogramTotals,
    /// Duration of the reclaim, nanoseconds; of bursts that had one.
    pub reclaim: HistogramTotals,
    /// By how much client buffers grew, bytes; if known.
    pub client_buffer_growth: u64,
    /// By how much memory fell after the last evicting call, bytes; if known.
    pub reclaimed: u64,
    /// When the last burst, finished or not, began, as time since 1970.
    pub last_start: Option<Duration>,
}

impl BurstTotals {
    pub(super) fn new() -> Self {
        Self {
            finished: [0; BurstKind::ALL.len()],
            duration: HistogramTotals::new(DURATION_NS),
            reclaim: HistogramTotals::new(RECLAIM_NS),
            client_buffer_growth: 0,
            reclaimed: 0,
            last_start: None,
        }
    }

    pub(super) fn count(&mut self, burst: &Burst) {
        let kind = burst.kind().0;
        self.finished[kind as usize] += 1;
        if kind == BurstKind::Plain && burst.duration < SHORT {
            return;
        }
        self.duration.record(nanoseconds(burst.duration));
        if burst.reclaim > Duration::ZERO {
            self.reclaim.record(nanoseconds(burst.reclaim));
        }
        let add = |total: &mut u64, amount: Option<u64>| *total = total.saturating_add(amount.unwrap_or(0));
        add(&mut self.client_buffer_growth, burst.client_buffer_growth());
        add(&mut self.reclaimed, burst.reclaimed());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::BurstTotals;
    use crate::Burst;

    #[test]
    fn each_burst_is_in_all_that_it_has_a_value_for() {
        let mut totals = BurstTotals::new();
        let mut burst = Burst {
            duration: Duration::from_secs(7),
            reclaim: Duration::from_secs(40),
            stalled: Some(Duration::from_secs(8)),
            stalled_by_evictions: Some(Duration::from_secs(6)),
            clients_waiting_before: Some(2),
            clients_waiting_peak: Some(2_900),
            client_buffers_before: Some(300 << 20),
            client_buffers_peak: Some(900 << 20),
            memory_end: Some(60 << 30),
            memory_after: Some((60 << 30) - (400 << 20)),
            cpu_share: Some(0.98),
            waiting_share: Some(0.0),
            eviction_cpu_share: Some(0.8),
            ..Burst::default()
        };
        totals.count(&burst);
        burst.reclaim = Duration::ZERO;
        burst.client_buffers_before = None;
        totals.count(&burst);
        assert_eq!(totals.finished, [1, 1, 0, 0]);
        assert_eq!(totals.duration.view().count(), 2);
        assert_eq!(totals.duration.view().sum(), 14_000_000_000);
        assert_eq!(totals.reclaim.view().count(), 1);
        assert_eq!(totals.client_buffer_growth, 600 << 20);
        assert_eq!(totals.reclaimed, 800 << 20);
        // A short one that stalled nobody is in no mean.
        burst.duration = Duration::from_micros(90);
        burst.stalled = Some(Duration::ZERO);
        totals.count(&burst);
        assert_eq!(totals.finished, [1, 1, 1, 0]);
        assert_eq!([&totals.duration, &totals.reclaim].map(|histogram| histogram.view().count()), [2, 1]);
        assert_eq!(totals.reclaimed, 800 << 20);
    }
}
