//! For how long the server evicted and executed less than half of what it can.
//!
//! Half of what is asked of it would be another measure. A server that is busy for half of its time still answers half of
//! what it is asked for when evictions take three quarters of its time; its backlog grows long before. Of the capacity, half
//! is left when they take the other half.

use crate::sample::Sample;

/// Less than this share of its capacity is slow.
const SLOW: f64 = 0.5;
/// The shortest span of which a throughput is made, in seconds. A shorter one may lie between two rounds of the
/// event loop.
const SPAN: f64 = 0.1;

/// Returns the seconds since `begin` in which the server evicted and executed less than half as many commands as its
/// `capacity` a second. Each span begins and ends at a sample.
pub fn seconds(begin: f64, capacity: f64, samples: &[Sample]) -> f64 {
    let mut slow = 0.0;
    let mut since: Option<&Sample> = None;
    for sample in samples.iter().filter(|sample| sample.at >= begin) {
        let Some(from) = since else {
            since = Some(sample);
            continue;
        };
        let span = sample.at - from.at;
        if span < SPAN {
            continue;
        }
        let executed = (sample.commands - from.commands) as f64;
        let evicts = sample.evicted_keys > from.evicted_keys;
        if evicts && executed < SLOW * capacity * span {
            slow += span;
        }
        since = Some(sample);
    }
    slow
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_slow_counts() {
        let mut samples = Vec::new();
        let (mut at, mut commands, mut evicted_keys) = (9.0, 0, 0);
        let course = [
            (0, 20, 9),
            (400, 100, 0),
            (200, 60, 9),
            (800, 20, 9),
            (400, 50, 0),
        ];
        for (rate, samples_of_it, evictions) in course {
            for _ in 0..samples_of_it {
                at += 0.05;
                commands += rate / 20;
                evicted_keys += evictions;
                samples.push(Sample {
                    at,
                    commands,
                    evicted_keys,
                    ..Sample::default()
                });
            }
        }
        let slow = seconds(10.01, 1000.0, &samples);
        assert!((slow - 3.0).abs() < 0.11, "{slow}");
    }
}
