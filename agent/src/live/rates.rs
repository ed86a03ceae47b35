//! The rates of a server between two readings.

use super::reading::{Cumulative, ServerReading};

/// The rates of a server between two readings; `None` if unknown. Those of evicting calls are per second in which
/// these were observed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    pub commands: Option<f64>,
    pub evicted_keys: Option<f64>,
    pub evicting_calls: Option<f64>,
    /// Share of the time that was spent in evicting calls.
    pub evicting_share: Option<f64>,
    /// Evicting calls that failed.
    pub failing_calls: Option<f64>,
    /// Requests that waited for longer than a second.
    pub waited_second: Option<f64>,
    /// Share of the time in which clients were stalled.
    pub stalled_share: Option<f64>,
    /// Share of the time in which evicting calls were observed.
    pub observed_share: Option<f64>,
    /// Evicting calls by duration, seconds: not cumulative. Empty if none was observed.
    pub durations: Cumulative,
    /// Evicting calls by goal, bytes: not cumulative. Empty if none was observed.
    pub goals: Cumulative,
    pub expire_cycles: Option<f64>,
    /// Share of the time that was spent in expire cycles.
    pub expiring_share: Option<f64>,
    /// Keys that expire cycles looked at.
    pub sampled_keys: Option<f64>,
    /// Expire cycles that ended at their time limit.
    pub time_limit_hits: Option<f64>,
}

impl Rates {
    /// Returns the rates between two readings that are `seconds` apart.
    pub fn between(before: &ServerReading, now: &ServerReading, seconds: f64) -> Self {
        // A counter that went back has been reset, and has counted from 0 since.
        let rise = |before: f64, now: f64| if now < before { now } else { now - before };
        let risen = |before: Option<f64>, now: Option<f64>| Some(rise(before?, now?));
        let observed = risen(before.observed_seconds, now.observed_seconds);
        let a_second = |before, now| risen(before, now).map(|risen| risen / seconds);
        let rate = |before, now| Some(risen(before, now)? / observed.filter(|it| *it > 0.0)?);
        let by_bound = |before: &Cumulative, now: &Cumulative| {
            let mut below = 0.0;
            let rates = before.iter().zip(now).map_while(|(before, now)| {
                let up_to = rate(Some(before.1), Some(now.1))?;
                let within = (now.0, (up_to - below).max(0.0));
                below = up_to;
                Some(within)
            });
            rates.collect()
        };
        Self {
            commands: a_second(before.commands, now.commands),
            evicted_keys: a_second(before.evicted_keys, now.evicted_keys),
            evicting_calls: rate(before.evicting_calls, now.evicting_calls),
            evicting_share: rate(before.evicting_seconds, now.evicting_seconds),
            failing_calls: rate(before.failed_calls, now.failed_calls),
            waited_second: a_second(before.waited_second, now.waited_second),
            stalled_share: a_second(before.stalled_seconds, now.stalled_seconds)
                .map(|stalled| stalled.min(1.0)),
            observed_share: observed.map(|observed| (observed / seconds).min(1.0)),
            durations: by_bound(&before.durations, &now.durations),
            goals: by_bound(&before.goals, &now.goals),
            expire_cycles: a_second(before.expire_cycles, now.expire_cycles),
            expiring_share: a_second(before.expiring_seconds, now.expiring_seconds),
            sampled_keys: a_second(before.sampled_keys, now.sampled_keys),
            time_limit_hits: a_second(before.time_limit_hits, now.time_limit_hits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rates;
    use crate::live::reading::ServerReading;

    fn before() -> ServerReading {
        ServerReading {
            commands: Some(100.0),
            evicting_calls: Some(20.0),
            evicting_seconds: Some(1.0),
            observed_seconds: Some(5.0),
            failed_calls: Some(2.0),
            stalled_seconds: Some(1.0),
            waited_second: Some(3.0),
            evicted_keys: Some(50.0),
            durations: vec![(0.001, 10.0), (0.002, 20.0), (f64::INFINITY, 20.0)],
            expire_cycles: Some(10.0),
            expiring_seconds: Some(1.0),
            ..ServerReading::default()
        }
    }

    fn now(observed_seconds: f64) -> ServerReading {
        ServerReading {
            commands: Some(40.0),
            evicting_calls: Some(32.0),
            evicting_seconds: Some(1.25),
            observed_seconds: Some(observed_seconds),
            failed_calls: Some(4.0),
            stalled_seconds: Some(1.5),
            waited_second: Some(11.0),
            evicted_keys: Some(90.0),
            durations: vec![(0.001, 14.0), (0.002, 30.0), (f64::INFINITY, 32.0)],
            expire_cycles: Some(34.0),
            expiring_seconds: Some(1.5),
            ..ServerReading::default()
        }
    }

    #[test]
    fn rates_are_by_the_second_and_by_bucket() {
        let rates = Rates::between(&before(), &now(7.0), 2.0);
        assert_eq!(rates.commands, Some(20.0), "reset in between");
        assert_eq!(rates.evicting_calls, Some(6.0));
        assert_eq!(rates.evicting_share, Some(0.125));
        assert_eq!(rates.failing_calls, Some(1.0));
        assert_eq!(rates.stalled_share, Some(0.25));
        assert_eq!(
            (rates.waited_second, rates.evicted_keys),
            (Some(4.0), Some(20.0))
        );
        assert_eq!(rates.observed_share, Some(1.0));
        assert_eq!(
            rates.durations,
            [(0.001, 2.0), (0.002, 3.0), (f64::INFINITY, 1.0)]
        );
    }

    #[test]
    fn those_of_evicting_calls_are_by_the_second_in_which_they_were_observed() {
        let rates = Rates::between(&before(), &now(5.5), 2.0);
        assert_eq!(rates.commands, Some(20.0));
        assert_eq!(rates.evicting_calls, Some(24.0));
        assert_eq!(rates.evicting_share, Some(0.5));
        assert_eq!(rates.observed_share, Some(0.25));
        assert_eq!(rates.expire_cycles, Some(12.0), "always observed");
        assert_eq!(rates.expiring_share, Some(0.25));
        assert_eq!(
            rates.durations,
            [(0.001, 8.0), (0.002, 12.0), (f64::INFINITY, 4.0)]
        );
        let blind = Rates::between(&before(), &now(5.0), 2.0);
        assert_eq!((blind.evicting_calls, blind.evicting_share), (None, None));
        assert_eq!(blind.observed_share, Some(0.0));
        assert_eq!(blind.durations, []);
    }
}
