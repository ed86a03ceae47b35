//! How many commands a second a server executes when it is not in a burst.

use std::collections::VecDeque;
use std::time::Duration;

/// The time over which the mean is taken: the minute before a burst.
const WINDOW: Duration = Duration::from_secs(60);
/// The shortest time that gives a mean: a server that was just found, or has just started to work,
/// does not have a usual throughput yet.
const LEAST: Duration = Duration::from_secs(5);
/// The grain of the window.
const GRAIN: Duration = Duration::from_secs(1);

/// Commands in the last minute that a server spent in `not_saturated`. Bursts and reclaims are left
/// out, so that one soon after another is not compared with the one before.
#[derive(Clone, Debug, Default)]
pub(super) struct Baseline {
    grains: VecDeque<(Duration, f64)>,
}

impl Baseline {
    /// Adds the commands that were executed in a time in `not_saturated`.
    pub fn add(&mut self, time: Duration, commands: f64) {
        match self.grains.back_mut() {
            Some((length, sum)) if *length < GRAIN => {
                *length += time;
                *sum += commands;
            }
            _ => self.grains.push_back((time, commands)),
        }
        let whole = |grains: &VecDeque<(Duration, f64)>| {
            grains.iter().skip(1).map(|grain| grain.0).sum::<Duration>()
        };
        while self.grains.len() > 1 && whole(&self.grains) >= WINDOW {
            self.grains.pop_front();
        }
    }

    /// Returns commands a second; `None` if too little was seen.
    pub fn rate(&self) -> Option<f64> {
        let time: Duration = self.grains.iter().map(|grain| grain.0).sum();
        let commands: f64 = self.grains.iter().map(|grain| grain.1).sum();
        (time >= LEAST).then(|| commands / time.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Baseline;

    #[test]
    fn the_mean_is_of_the_last_minute() {
        let mut baseline = Baseline::default();
        for _ in 0..49 {
            baseline.add(Duration::from_millis(100), 1_000.0);
        }
        assert_eq!(baseline.rate(), None, "less than five seconds");
        for _ in 0..1_000 {
            baseline.add(Duration::from_millis(100), 1_000.0);
        }
        let near = |baseline: &Baseline, expected: f64| {
            let rate = baseline.rate();
            rate.is_some_and(|rate| (rate - expected).abs() < 1.0)
        };
        assert!(near(&baseline, 10_000.0));
        for _ in 0..700 {
            baseline.add(Duration::from_millis(100), 100.0);
        }
        assert!(near(&baseline, 1_000.0));
        assert!(baseline.grains.len() < 70);
    }
}
