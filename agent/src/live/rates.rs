//! The rates of a server between two readings.

use super::reading::{Cumulative, Metric, OBSERVED, Reading, ServerReading};

/// The last two readings of an agent.
#[derive(Default)]
pub struct Readings {
    before: Reading,
    pub now: Reading,
    /// How far apart they are.
    seconds: f64,
}

/// Two readings of a server, from which its rates follow; `None` if one is not known.
#[derive(Clone, Copy)]
pub struct Rates<'a> {
    before: &'a ServerReading,
    pub now: &'a ServerReading,
    seconds: f64,
}

impl Readings {
    /// Begins with a reading, from which no rates follow yet.
    pub fn new(now: Reading) -> Self {
        Self {
            now,
            ..Self::default()
        }
    }

    /// Takes in the next reading.
    pub fn add(&mut self, now: Reading, seconds: f64) {
        self.before = std::mem::replace(&mut self.now, now);
        self.seconds = seconds;
    }

    /// Returns the rates of a server that is in both readings.
    pub fn rates(&self, server: &str) -> Option<Rates<'_>> {
        let before = self.before.servers.get(server)?;
        let now = self.now.servers.get(server)?;
        Some(Rates::new(before, now, self.seconds))
    }
}

impl<'a> Rates<'a> {
    /// Takes two readings that are `seconds` apart.
    pub fn new(before: &'a ServerReading, now: &'a ServerReading, seconds: f64) -> Self {
        Self {
            before,
            now,
            seconds,
        }
    }

    fn risen(self, metric: Metric) -> Option<f64> {
        Some(rise(self.before.get(metric)?, self.now.get(metric)?))
    }

    /// Returns how much a counter rises per second.
    pub fn a_second(self, metric: Metric) -> Option<f64> {
        self.risen(metric).map(|risen| risen / self.seconds)
    }

    /// Returns the share of the time that a counter of seconds counts.
    pub fn share(self, metric: Metric) -> Option<f64> {
        self.a_second(metric).map(|share| share.min(1.0))
    }

    /// Returns how much a counter of evicting calls rises per second in which they are observed.
    pub fn an_observed_second(self, metric: Metric) -> Option<f64> {
        Some(self.risen(metric)? / self.observed()?)
    }

    fn observed(self) -> Option<f64> {
        self.risen(OBSERVED).filter(|seconds| *seconds > 0.0)
    }

    /// Returns the same for a histogram of evicting calls: not cumulative, and empty if none were observed.
    pub fn histogram(self, metric: Metric) -> Cumulative {
        let Some(observed) = self.observed() else {
            return Vec::new();
        };
        let (before, now) = (self.before.histogram(metric), self.now.histogram(metric));
        let mut below = 0.0;
        let rates = before.iter().zip(now).map(|((_, before), (bound, now))| {
            let up_to = rise(*before, now) / observed;
            let within = (up_to - below).max(0.0);
            below = up_to;
            (bound, within)
        });
        rates.collect()
    }
}

/// Returns how much a counter has risen. A counter that went back was reset, and has counted from 0 since.
fn rise(before: f64, now: f64) -> f64 {
    if now < before { now } else { now - before }
}

#[cfg(test)]
mod tests {
    use super::Rates;
    use crate::live::reading::{CALL_SECONDS, CALLS, COMMANDS, CYCLES, DURATIONS, OBSERVED};
    use crate::live::reading::{Reading, ServerReading};

    /// Returns a reading with these numbers of commands, evicting calls, their seconds, expire cycles, and seconds observed,
    /// and calls up to each bound.
    fn reading(values: [f64; 5], calls: [u64; 3]) -> anyhow::Result<ServerReading> {
        let metrics = [COMMANDS, CALLS, CALL_SECONDS, CYCLES, OBSERVED];
        let (histogram, labels) = (DURATIONS.0, "server=\"6379\",kind=\"evicting\"");
        let mut text = format!("# TYPE {histogram} histogram\n");
        for (bound, calls) in ["0.001", "0.002", "+Inf"].iter().zip(calls) {
            text += &format!("{histogram}_bucket{{{labels},le=\"{bound}\"}} {calls}\n");
        }
        for ((name, _), value) in metrics.iter().zip(values) {
            text += &format!("{name}{{{labels}}} {value}\n");
        }
        let mut reading = Reading::parse(&text)?;
        Ok(reading.servers.remove("6379").unwrap_or_default())
    }

    #[test]
    fn rates_are_by_the_second_and_those_of_evicting_calls_by_one_that_was_observed()
    -> anyhow::Result<()> {
        let before = &reading([100.0, 20.0, 1.0, 10.0, 5.0], [10, 20, 20])?;
        for (until, seen, calls, buckets) in [
            (7.0, 1.0, [Some(6.0), Some(0.125)], &[2.0, 3.0, 1.0][..]),
            (5.5, 0.25, [Some(24.0), Some(0.5)], &[8.0, 12.0, 4.0]),
            (5.0, 0.0, [None, None], &[]),
        ] {
            let now = &reading([40.0, 32.0, 1.25, 34.0, until], [14, 30, 32])?;
            let rates = Rates::new(before, now, 2.0);
            assert_eq!(rates.a_second(COMMANDS), Some(20.0), "reset in between");
            assert_eq!(rates.a_second(CYCLES), Some(12.0), "always observed");
            assert_eq!(rates.share(OBSERVED), Some(seen));
            let found = [CALLS, CALL_SECONDS].map(|metric| rates.an_observed_second(metric));
            assert_eq!(found, calls);
            let histogram = rates.histogram(DURATIONS);
            let within: Vec<_> = histogram.iter().map(|(_, calls)| *calls).collect();
            assert_eq!(within, buckets);
        }
        Ok(())
    }
}
