//! The rate at which the server's main thread is as busy as it is to be.
//!
//! What a command costs depends on the machine, on what runs beside it, on the rate itself (a round of the event loop
//! with more requests takes less time for each) and on how full the server is. So the rate follows from the CPU time
//! that it takes, look after look.

use crate::{counts::Load, premise::Times};

/// Sets a rate look after look.
pub struct Pacer {
    /// The share of the time that the main thread is to be busy.
    busy: f64,
    /// Seconds from one look to the next.
    interval: f64,
    /// By how much the rate changes in one look, at most.
    most: f64,
    last: Option<(Load, Times)>,
}

impl Pacer {
    /// Finds a rate from a guess, so it may change much in each look.
    pub fn finds(busy: f64) -> Self {
        Self {
            busy,
            interval: 0.5,
            most: 2.0,
            last: None,
        }
    }

    /// Corrects a rate that was found. A look is longer here, so that it takes in everything that happens once a second.
    pub fn corrects(busy: f64) -> Self {
        Self {
            busy,
            interval: 2.0,
            most: 1.1,
            last: None,
        }
    }

    /// Returns the rate after one of `rate`, where it is time for a look.
    pub fn look(&mut self, rate: f64, load: &Load, times: &Times) -> Option<f64> {
        let Some((load_before, times_before)) = &self.last else {
            self.last = Some((*load, *times));
            return None;
        };
        let seconds = times.at - times_before.at;
        if seconds < self.interval {
            return None;
        }
        let count = |count: fn(&Load) -> u64| (count(load) - count(load_before)) as f64;
        let (due, answered) = (
            count(|load| load.totals.due),
            count(|load| load.totals.answered),
        );
        // What all that was due needs, also where it was not all answered because the thread waited for a CPU.
        let needed = (times.running - times_before.running) / seconds * due / answered;
        self.last = Some((*load, *times));
        let change = (self.busy / needed).clamp(1.0 / self.most, self.most);
        change.is_finite().then_some(rate * change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Totals;

    /// Looks ten times a second for some seconds at a server on which a request takes `cost` seconds and that has the
    /// CPU for `share` of the time.
    fn after(mut pacer: Pacer, mut rate: f64, seconds: u32, cost: f64, share: f64) -> f64 {
        let (mut due, mut answered, mut running) = (0.0, 0.0, 0.0);
        for tenth in 0..=10 * seconds {
            let at = f64::from(tenth) / 10.0;
            let totals = Totals {
                due: due as u64,
                answered: answered as u64,
                ..Totals::default()
            };
            let load = Load {
                at,
                totals,
                ..Load::default()
            };
            let times = Times {
                at,
                running,
                waiting: 0.0,
            };
            rate = pacer.look(rate, &load, &times).unwrap_or(rate);
            let now = (rate * 0.1 * cost).min(0.1 * share);
            due += rate * 0.1;
            answered += now / cost;
            running += now;
        }
        rate
    }

    fn near(value: f64, expected: f64) -> bool {
        (value / expected - 1.0).abs() < 0.01
    }

    #[test]
    fn a_rate_is_found_from_a_guess_that_is_far_off() {
        for guess in [100.0, 5_000.0, 100_000.0] {
            assert!(near(
                after(Pacer::finds(0.45), guess, 10, 1e-4, 1.0),
                4_500.0
            ));
        }
    }

    #[test]
    fn a_server_that_waits_for_a_cpu_is_not_asked_for_more() {
        let rate = after(Pacer::corrects(0.45), 4_500.0, 20, 1e-4, 0.3);
        assert!(near(rate, 4_500.0), "{rate}");
    }

    #[test]
    fn a_correction_is_small() {
        let one_look = after(Pacer::corrects(0.45), 1_000.0, 3, 1e-4, 1.0);
        assert!(near(one_look, 1_100.0), "{one_look}");
    }

    #[test]
    fn nothing_answered_changes_nothing() {
        let rate = after(Pacer::corrects(0.45), 1_000.0, 10, 1e-4, 0.0);
        assert_eq!(rate, 1_000.0);
    }
}
