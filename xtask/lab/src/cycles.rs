//! The bursts of a run, as the samples show them: they come from the server's own `INFO`, so that the agent can be
//! judged against them.

use crate::client::Sample;

/// How long without an eviction ends a burst, in seconds: by the definition of a burst, and as known from samples,
/// which are 0.1 s apart or less.
const QUIET: f64 = 1.0;

/// From the first eviction after a quiet time until the last one before a quiet time. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub struct Cycle {
    /// The middle between the samples before and after the first eviction.
    pub start: f64,
    /// The same of the last one.
    pub end: f64,
    pub evicted_keys: u64,
}

/// Finds the bursts in samples that are in the order of time.
pub fn find(samples: &[Sample]) -> Vec<Cycle> {
    let mut cycles: Vec<Cycle> = Vec::new();
    let mut evicted_at = f64::NEG_INFINITY;
    for pair in samples.windows(2) {
        let evicted_keys = pair[1].evicted_keys.saturating_sub(pair[0].evicted_keys);
        if evicted_keys == 0 {
            continue;
        }
        let at = f64::midpoint(pair[0].at, pair[1].at);
        match cycles.last_mut() {
            Some(cycle) if pair[0].at - evicted_at < QUIET => {
                cycle.end = at;
                cycle.evicted_keys += evicted_keys;
            }
            _ => cycles.push(Cycle { start: at, end: at, evicted_keys }),
        }
        evicted_at = pair[1].at;
    }
    cycles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_quiet_time_ends_a_burst() {
        let found = |pause: f64| {
            let evicted = [(0.0, 9), (0.5, 10), (1.0, 11), (1.0 + pause, 11), (2.0 + pause, 13)];
            let samples = evicted.map(|(at, evicted_keys)| Sample { at, evicted_keys, ..Sample::default() });
            let cycles = find(&samples).into_iter();
            Vec::from_iter(cycles.map(|cycle| (cycle.start, cycle.end, cycle.evicted_keys)))
        };
        assert_eq!(found(0.5), [(0.25, 2.0, 4)]);
        assert_eq!(found(1.5), [(0.25, 0.75, 2), (3.0, 3.0, 2)]);
    }
}
