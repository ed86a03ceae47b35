//! The rates of a server between two readings.

use super::reading::{Cumulative, ServerReading};

/// The rates of a server between two readings, per second; `None` if unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    pub commands: Option<f64>,
    pub evicting_calls: Option<f64>,
    /// Share of the time that was spent in evicting calls.
    pub evicting_share: Option<f64>,
    /// Evicting calls by duration, seconds: not cumulative.
    pub durations: Cumulative,
    /// Evicting calls by goal, bytes: not cumulative.
    pub goals: Cumulative,
}

impl Rates {
    /// Returns the rates between two readings that are `seconds` apart.
    pub fn between(before: &ServerReading, now: &ServerReading, seconds: f64) -> Self {
        // A counter that went back has been reset, and has counted from 0 since.
        let rise = |before: f64, now: f64| if now < before { now } else { now - before };
        let rate = |before: Option<f64>, now: Option<f64>| Some(rise(before?, now?) / seconds);
        let by_bound = |before: &Cumulative, now: &Cumulative| {
            let mut below = 0.0;
            let rates = before.iter().zip(now).map(|(before, now)| {
                let up_to = rise(before.1, now.1) / seconds;
                let within = (now.0, (up_to - below).max(0.0));
                below = up_to;
                within
            });
            rates.collect()
        };
        Self {
            commands: rate(before.commands, now.commands),
            evicting_calls: rate(before.evicting_calls, now.evicting_calls),
            evicting_share: rate(before.evicting_seconds, now.evicting_seconds),
            durations: by_bound(&before.durations, &now.durations),
            goals: by_bound(&before.goals, &now.goals),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rates;
    use crate::live::reading::ServerReading;

    #[test]
    fn rates_are_by_the_second_and_by_bucket() {
        let before = ServerReading {
            commands: Some(100.0),
            evicting_seconds: Some(1.0),
            durations: vec![(0.001, 10.0), (0.002, 20.0), (f64::INFINITY, 20.0)],
            ..ServerReading::default()
        };
        let now = ServerReading {
            commands: Some(40.0),
            evicting_seconds: Some(1.5),
            durations: vec![(0.001, 14.0), (0.002, 30.0), (f64::INFINITY, 32.0)],
            ..ServerReading::default()
        };
        let rates = Rates::between(&before, &now, 2.0);
        assert_eq!(rates.commands, Some(20.0), "reset in between");
        assert_eq!(rates.evicting_share, Some(0.25));
        assert_eq!(rates.evicting_calls, None);
        assert_eq!(
            rates.durations,
            [(0.001, 2.0), (0.002, 3.0), (f64::INFINITY, 1.0)]
        );
    }
}
