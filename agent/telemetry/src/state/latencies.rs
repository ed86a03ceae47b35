//! The durations of evicting calls, second by second.

use std::collections::VecDeque;
use std::time::Duration;

use evictscope_abi::Histogram;
use serde::{Deserialize, Serialize};

/// How many seconds are kept: ten minutes.
const KEPT: u64 = 600;

/// The evicting calls that ended in one second, give or take the time between two readings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencySecond {
    /// The second, since 1970.
    pub unix_s: u64,
    /// Calls by bucket: the index of the bucket (`evictscope_abi::bounds`, the exported ones) and how many calls fell
    /// into it; buckets without calls are left out.
    pub counts: Vec<(u16, u64)>,
}

/// The durations of the evicting calls of the last ten minutes.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// The calls up to the last reading, by bucket.
    last: Vec<u64>,
    /// Seconds with calls, the oldest first; monotonic.
    seconds: VecDeque<LatencySecond>,
}

impl Latencies {
    /// Takes in all calls until `at`, monotonic: the new ones ended in its second.
    pub fn take_in<const BUCKETS: usize>(&mut self, at: Duration, calls: &Histogram<BUCKETS>) {
        self.last.resize(BUCKETS, 0);
        let new = (0..).zip(calls.counts.iter().zip(&self.last));
        let new: Vec<(u16, u64)> = new
            .map(|(bucket, (now, last))| (bucket, now.saturating_sub(*last)))
            .filter(|(_, calls)| *calls > 0)
            .collect();
        self.last.copy_from_slice(&calls.counts);
        let unix_s = at.as_secs();
        if !new.is_empty() {
            self.add(unix_s, &new);
        }
        let is_over = |second: &mut LatencySecond| second.unix_s + KEPT < unix_s;
        while self.seconds.pop_front_if(is_over).is_some() {}
    }

    fn add(&mut self, unix_s: u64, new: &[(u16, u64)]) {
        if self.seconds.back().is_none_or(|last| last.unix_s < unix_s) {
            self.seconds.push_back(LatencySecond { unix_s, counts: Vec::new() });
        }
        let Some(LatencySecond { counts, .. }) = self.seconds.back_mut() else { return };
        for (bucket, calls) in new {
            match counts.binary_search_by_key(bucket, |(bucket, _)| *bucket) {
                Ok(place) => counts[place].1 += calls,
                Err(place) => counts.insert(place, (*bucket, *calls)),
            }
        }
    }

    /// Returns the seconds between two monotonic times in which calls ended, the oldest first, each dated as the
    /// nearest second since 1970.
    pub fn between(&self, from: Duration, to: Duration, since_1970: Duration) -> Vec<LatencySecond> {
        let seconds = from.as_secs()..=to.as_secs();
        let within = (self.seconds.iter()).filter(|second| seconds.contains(&second.unix_s));
        let half = Duration::from_millis(500);
        let dated = within.map(|second| LatencySecond {
            unix_s: (since_1970 + half).as_secs() + second.unix_s,
            counts: second.counts.clone(),
        });
        dated.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evictscope_abi::{Histogram, bounds};
    use proptest::prelude::*;

    use super::{KEPT, Latencies};

    type Counted = Histogram<{ bounds::INNER_NS.buckets() }>;

    proptest! {
        #[test]
        fn the_seconds_add_up_to_the_totals(
            readings in prop::collection::vec((0..2_500_u64, prop::collection::vec(0..40_u64, 0..5)), 1..300),
            since_1970 in 0..10_000_000_000_u64,
        ) {
            let mut latencies = Latencies::default();
            let (mut counted, mut now) = (Counted::ZERO, Duration::from_secs(3_600));
            // The calls until each reading.
            let mut expected = Vec::new();
            for (later, calls) in &readings {
                now += Duration::from_millis(*later);
                for bucket in calls {
                    counted.record(*bucket as usize, 1);
                }
                latencies.take_in(now, &counted);
                expected.push((now, counted.count()));
            }
            let since_1970 = Duration::from_millis(since_1970);
            let seconds = latencies.between(Duration::ZERO, Duration::MAX, since_1970);
            let newest = seconds.last().map(|second| Duration::from_secs(second.unix_s));
            let apart = newest.map(|newest| newest.abs_diff(since_1970 + Duration::from_secs(now.as_secs())));
            prop_assert!(apart.is_none_or(|apart| apart.as_secs() <= KEPT));
            prop_assert!(seconds.is_sorted_by(|second, next| second.unix_s < next.unix_s));
            let sum: u64 = seconds.iter().flat_map(|second| &second.counts).map(|(_, calls)| calls).sum();
            // All of the last ten minutes, and none twice.
            let newest = expected.iter().map(|(at, _)| at.as_secs()).max().unwrap_or(0);
            let dropped = expected.iter().take_while(|(at, _)| at.as_secs() + KEPT < newest);
            let dropped = dropped.last().map_or(0, |(_, calls)| *calls);
            prop_assert_eq!(sum, counted.count() - dropped);
            prop_assert!(seconds.len() as u64 <= KEPT + 1);
        }
    }
}
