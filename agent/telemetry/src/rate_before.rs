//! How many commands a second a server executes when it is not in a burst.

use std::collections::VecDeque;
use std::time::Duration;

/// What was seen this long before counts e times less than what was seen just now. A second that is a minute old
/// counts a fiftieth, so this is the rate of the last minute; and when the load changes, it follows within
/// a minute or so, however little of that is between two bursts.
const FADING: Duration = Duration::from_secs(15);
/// What is older says nothing of the present load, even where nothing was seen since.
const OLDEST: Duration = Duration::from_secs(300);
/// The shortest time that gives a rate: a server that was just found, or has just started to work, does not have a
/// usual throughput yet.
const LEAST: Duration = Duration::from_secs(5);
/// How finely the past is kept.
const GRAIN: Duration = Duration::from_secs(1);

/// Commands in some time in `not_saturated`.
#[derive(Clone, Copy, Debug)]
struct Grain {
    end: Duration,
    length: Duration,
    commands: f64,
}

/// The rate of commands in the time that a server spent in `not_saturated` of late. Bursts and reclaims are left
/// out, so that one soon after another is not compared with the one before.
#[derive(Clone, Debug, Default)]
pub(super) struct RateBefore {
    grains: VecDeque<Grain>,
}

impl RateBefore {
    /// Adds the commands that were executed in a time in `not_saturated` up to `end`.
    pub fn add(&mut self, end: Duration, length: Duration, commands: f64) {
        let begin = end.saturating_sub(length);
        match self.grains.back_mut() {
            Some(grain) if grain.length < GRAIN && begin <= grain.end => {
                grain.end = end;
                grain.length += length;
                grain.commands += commands;
            }
            _ => self.grains.push_back(Grain {
                end,
                length,
                commands,
            }),
        }
        let is_old = |grain: &Grain| end.saturating_sub(grain.end) > OLDEST;
        while self.grains.front().is_some_and(is_old) {
            self.grains.pop_front();
        }
    }

    /// Returns commands a second before a burst that began at `at`; `None` if too little was seen.
    pub fn at(&self, at: Duration) -> Option<f64> {
        let (mut seen, mut time, mut commands) = (Duration::ZERO, 0.0, 0.0);
        for grain in &self.grains {
            let age = at.saturating_sub(grain.end);
            if age > OLDEST {
                continue;
            }
            let weight = (-age.div_duration_f64(FADING)).exp();
            seen += grain.length;
            time += weight * grain.length.as_secs_f64();
            commands += weight * grain.commands;
        }
        (seen >= LEAST).then(|| commands / time)
    }
}

/// Returns commands a second since a server started, which executed `commands` in this time; `None` if it was too
/// short.
pub(super) fn since_start(commands: f64, time: Duration) -> Option<f64> {
    (time >= LEAST).then(|| commands / time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{GRAIN, LEAST, OLDEST, RateBefore};

    const STEP: Duration = Duration::from_millis(100);

    /// A server that is in `not_saturated` now and then.
    struct Server {
        rate: RateBefore,
        now: Duration,
    }

    impl Server {
        fn new() -> Self {
            let (rate, now) = (RateBefore::default(), Duration::from_secs(5));
            Self { rate, now }
        }

        /// Is in `not_saturated`.
        fn works(&mut self, seconds: u64, commands_per_second: f64) {
            let until = self.now + Duration::from_secs(seconds);
            while self.now < until {
                self.now += STEP;
                let commands = commands_per_second * STEP.as_secs_f64();
                self.rate.add(self.now, STEP, commands);
            }
        }

        fn assert_near(&self, expected: f64) {
            let rate = self.rate.at(self.now);
            let is_near = rate.is_some_and(|rate| (rate / expected - 1.0).abs() < 0.1);
            assert!(is_near, "{rate:?} is not near {expected}");
        }
    }

    #[test]
    fn it_is_the_rate_of_the_last_minute() {
        let mut server = Server::new();
        server.works(4, 10_000.0);
        assert_eq!(server.rate.at(server.now), None, "too short");
        server.works(600, 10_000.0);
        server.assert_near(10_000.0);
        let most = OLDEST.div_duration_f64(GRAIN) as usize + 2;
        assert!(server.rate.grains.len() <= most);
        server.works(60, 1_000.0);
        // A fiftieth of the weight is on ten times as many.
        server.assert_near(1_160.0);
    }

    /// The case of a cache that is filled, and then has a burst every ten seconds.
    #[test]
    fn it_follows_the_load_though_little_time_is_between_the_bursts() {
        let mut server = Server::new();
        server.works(120, 48_000.0);
        for _ in 0..9 {
            server.now += Duration::from_secs(8);
            server.works(2, 7_000.0);
        }
        server.assert_near(7_500.0);
    }

    #[test]
    fn what_is_some_minutes_old_does_not_count_at_all() {
        let mut server = Server::new();
        server.works(60, 48_000.0);
        server.now += OLDEST - LEAST * 2;
        server.assert_near(48_000.0);
        server.now += LEAST * 2;
        assert_eq!(server.rate.at(server.now), None);
        server.works(4, 7_000.0);
        assert_eq!(server.rate.at(server.now), None);
        server.works(2, 7_000.0);
        server.assert_near(7_000.0);
    }
}
