//! A server's counters at one moment, which may be between two observations.

use std::time::Duration;

use super::Observation;

/// Counters that never go back, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counters {
    pub at: Duration,
    pub commands: Option<f64>,
    pub evicted_keys: Option<f64>,
    pub evicting_calls: f64,
    pub failed_calls: f64,
    pub cpu_eviction_ns: Option<f64>,
    pub cpu_other_ns: Option<f64>,
    pub cpu_unobserved_ns: f64,
    /// For how long evicting calls were observed, seconds.
    pub observed: f64,
    pub waiting_ns: Option<f64>,
    pub used_memory: Option<f64>,
    /// Memory at the last evicting call; not known between two observations.
    pub at_last_call: Option<f64>,
    pub client_buffers: Option<f64>,
    /// Connections in which requests waited.
    pub clients_waiting: Option<f64>,
    /// For how long clients were stalled, seconds.
    pub stalled: Option<f64>,
    /// For how long evicting calls stalled them, seconds.
    pub stalled_by_evictions: Option<f64>,
}

impl Counters {
    /// Returns the counters at `at`, on the straight line from `self` to `later`.
    pub fn interpolate(&self, later: &Self, at: Duration) -> Self {
        let way = later.at.saturating_sub(self.at).as_secs_f64();
        let gone = at.saturating_sub(self.at).as_secs_f64();
        let share = match way > 0.0 {
            true => (gone / way).min(1.0),
            false => 1.0,
        };
        let line = |from: f64, to: f64| from + (to - from) * share;
        let known = |from: Option<f64>, to: Option<f64>| Some(line(from?, to?));
        Self {
            at,
            commands: known(self.commands, later.commands),
            evicted_keys: known(self.evicted_keys, later.evicted_keys),
            evicting_calls: line(self.evicting_calls, later.evicting_calls),
            failed_calls: line(self.failed_calls, later.failed_calls),
            cpu_eviction_ns: known(self.cpu_eviction_ns, later.cpu_eviction_ns),
            cpu_other_ns: known(self.cpu_other_ns, later.cpu_other_ns),
            cpu_unobserved_ns: line(self.cpu_unobserved_ns, later.cpu_unobserved_ns),
            observed: line(self.observed, later.observed),
            waiting_ns: known(self.waiting_ns, later.waiting_ns),
            used_memory: known(self.used_memory, later.used_memory),
            at_last_call: None,
            client_buffers: known(self.client_buffers, later.client_buffers),
            clients_waiting: known(self.clients_waiting, later.clients_waiting),
            stalled: known(self.stalled, later.stalled),
            stalled_by_evictions: known(self.stalled_by_evictions, later.stalled_by_evictions),
        }
    }
}

/// Makes a counter of the server's own, which `CONFIG RESETSTAT` sets back to 0, one that only grows.
#[derive(Clone, Copy, Debug, Default)]
struct Unreset {
    last: Option<u64>,
    total: f64,
}

impl Unreset {
    /// Takes in the counter's value. One that is lower than before has been reset, and has counted
    /// from 0 since.
    fn advance(&mut self, counter: Option<u64>) -> Option<f64> {
        let counter = counter?;
        if let Some(last) = self.last {
            self.total += counter.checked_sub(last).unwrap_or(counter) as f64;
        }
        self.last = Some(counter);
        Some(self.total)
    }
}

/// Reads the counters from observations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CounterReader {
    commands: Unreset,
    evicted_keys: Unreset,
}

impl CounterReader {
    pub fn read(&mut self, seen: &Observation) -> Counters {
        let number = |value: Option<u64>| value.map(|value| value as f64);
        Counters {
            at: seen.at,
            commands: self.commands.advance(seen.commands),
            evicted_keys: self.evicted_keys.advance(seen.evicted_keys),
            evicting_calls: seen.evicting_calls as f64,
            failed_calls: seen.failed_calls as f64,
            cpu_eviction_ns: number(seen.cpu_eviction_ns),
            cpu_other_ns: number(seen.cpu_other_ns),
            cpu_unobserved_ns: seen.cpu_unobserved_ns as f64,
            observed: seen.observed.as_secs_f64(),
            waiting_ns: number(seen.waiting_ns),
            used_memory: number(seen.used_memory),
            at_last_call: number(seen.last_reported),
            client_buffers: number(seen.client_buffers),
            clients_waiting: number(seen.clients_waiting),
            stalled: seen.stalled.map(|time| time.as_secs_f64()),
            stalled_by_evictions: seen.stalled_by_evictions.map(|time| time.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CounterReader, Counters, Unreset};
    use crate::Observation;

    #[test]
    fn a_reset_counter_goes_on() {
        let mut counter = Unreset::default();
        let values = [Some(100), Some(110), None, Some(5), Some(7)];
        let expected = [Some(0.0), Some(10.0), None, Some(15.0), Some(17.0)];
        assert_eq!(values.map(|value| counter.advance(value)), expected);
    }

    #[test]
    fn between_two_observations_the_counters_rise_evenly() {
        let mut reader = CounterReader::default();
        let mut seen = Observation {
            at: Duration::from_millis(100),
            commands: Some(50),
            ..Observation::default()
        };
        let before = reader.read(&seen);
        seen.at = Duration::from_millis(200);
        seen.commands = Some(150);
        seen.used_memory = Some(9);
        let after = reader.read(&seen);
        let at = |milliseconds| before.interpolate(&after, Duration::from_millis(milliseconds));
        let commands = [100, 125, 300].map(|milliseconds| at(milliseconds).commands);
        assert_eq!(commands, [Some(0.0), Some(25.0), Some(100.0)]);
        assert_eq!(at(200).used_memory, None, "known at one end only");
        let nothing = Counters::default();
        let between = nothing.interpolate(&nothing, Duration::ZERO);
        assert_eq!(between.commands, None);
    }
}
