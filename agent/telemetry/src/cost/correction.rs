//! What hits cost in one server, judged by its own CPU time.
//!
//! While a server is sampled, evicting calls are probed for some milliseconds and then not, twice a second, under the
//! same load. So its CPU time can be explained by the commands that it executed and the cost of hits as measured
//! elsewhere: least squares tell how much of each there is.

use std::time::Duration;

/// The time constant at which readings are forgotten, seconds.
const SEEN_OVER: f64 = 120.0;
/// Fewer readings than this decide nothing.
const FEWEST: f64 = 20.0;
/// The result is believed if its standard error is below this share of it.
const CERTAIN: f64 = 0.1;
/// If the probes are on most of the time, the time of evicting calls themselves would pass for that of hits.
const OFF: f64 = 0.2;
/// Factors outside this range are not believed, however certain they look.
const LIKELY: std::ops::RangeInclusive<f64> = 0.5..=3.0;

/// What happened between two readings of a server that evicted all the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Between {
    pub(super) time: Duration,
    pub(super) commands: f64,
    /// What hits cost, as measured elsewhere, nanoseconds.
    pub(super) hits_ns: f64,
    /// CPU time of the main thread, nanoseconds.
    pub(super) cpu_ns: f64,
}

/// How much more hits cost in a server than where their cost was measured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Correction {
    /// By what to multiply the cost of hits, once that is certain.
    fitted: Option<f64>,
    /// Sums over readings: their number, squares, and products.
    readings: f64,
    commands2: f64,
    hits2: f64,
    cpu2: f64,
    commands_hits: f64,
    commands_cpu: f64,
    hits_cpu: f64,
}

impl Correction {
    pub(super) fn take_in(&mut self, between: Between) {
        let Between { time, commands, hits_ns, cpu_ns } = between;
        let kept = (-time.as_secs_f64() / SEEN_OVER).exp();
        for (sum, more) in [
            (&mut self.readings, 1.0),
            (&mut self.commands2, commands * commands),
            (&mut self.hits2, hits_ns * hits_ns),
            (&mut self.cpu2, cpu_ns * cpu_ns),
            (&mut self.commands_hits, commands * hits_ns),
            (&mut self.commands_cpu, commands * cpu_ns),
            (&mut self.hits_cpu, hits_ns * cpu_ns),
        ] {
            *sum = *sum * kept + more;
        }
        self.fitted = self.fit().or(self.fitted);
    }

    pub(super) fn factor(&self) -> f64 {
        self.fitted.unwrap_or(1.0)
    }

    /// Returns the least-squares factor, if it is certain.
    fn fit(&self) -> Option<f64> {
        let determinant = self.commands2 * self.hits2 - self.commands_hits.powi(2);
        if self.readings < FEWEST || determinant <= OFF * self.commands2 * self.hits2 {
            return None;
        }
        let factor = (self.commands2 * self.hits_cpu - self.commands_hits * self.commands_cpu) / determinant;
        let command = (self.hits2 * self.commands_cpu - self.commands_hits * self.hits_cpu) / determinant;
        let unexplained = self.cpu2 - command * self.commands_cpu - factor * self.hits_cpu;
        let variance = unexplained.max(0.0) / (self.readings - 2.0) * self.commands2 / determinant;
        let is_certain = variance.sqrt() < CERTAIN * factor;
        (is_certain && LIKELY.contains(&factor)).then_some(factor)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Between, Correction};

    /// Returns the factor found in readings of 20 ms. In one of 25, probes cost 200 ns a command as measured, and
    /// `factor` times that in truth. The kernel updates CPU time at ticks, 4 ms apart.
    fn corrected(factor: f64, readings: u32) -> f64 {
        let mut correction = Correction::default();
        let (mut truth, mut shown) = (0.0, 0.0);
        for reading in 0..readings {
            let commands = 20_000.0 - f64::from(reading % 7) * 500.0;
            let hits_ns = if reading % 25 == 0 { commands * 200.0 } else { 0.0 };
            truth += commands * 900.0 + factor * hits_ns;
            let since_tick = f64::from(reading.wrapping_mul(2_654_435_761) >> 16) / f64::from(u16::MAX);
            let seen = truth - since_tick * 4e6;
            correction.take_in(Between { time: Duration::from_millis(20), commands, hits_ns, cpu_ns: seen - shown });
            shown = seen;
        }
        correction.factor()
    }

    #[test]
    fn the_factor_is_that_of_the_cpu_time() {
        for factor in [0.8, 1.2, 1.7, 2.5] {
            let found = corrected(factor, 3_000);
            assert!((found / factor - 1.0).abs() < 0.1, "{found} of {factor}");
        }
    }

    #[test]
    fn what_is_uncertain_or_unlikely_is_not_believed() {
        assert_eq!(corrected(1.7, 19), 1.0);
        assert_eq!(corrected(6.0, 3_000), 1.0);
        let mut always_on = Correction::default();
        for reading in 0..3_000 {
            let commands = 20_000.0 - f64::from(reading % 7) * 500.0;
            always_on.take_in(Between {
                time: Duration::from_millis(20),
                commands,
                hits_ns: commands * 200.0,
                cpu_ns: commands * 2_000.0 + f64::from(reading % 11) * 1e5,
            });
        }
        assert_eq!(always_on.factor(), 1.0);
    }
}
