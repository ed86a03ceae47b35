//! How busy the server's main thread was, and whether the lab had what its runs need: a CPU for that thread, and a load that keeps
//! its pace.
//!
//! Without these, a burst is of another kind, or there is none, and that is not the agent's fault.

use evictscope_testkit::text::percent;
use serde::Serialize;

use crate::counts::Load;

/// The largest share of a span that may lack one of these. On two idle cores the main thread waited for 1 to 3 % of a phase.
const MOST: f64 = 0.05;

/// Shares of a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Premise {
    /// The main thread was on a CPU.
    pub running: f64,
    /// It waited for one.
    pub waiting: f64,
    /// Requests were due, and the generator did not come to them.
    pub behind: f64,
}

impl Premise {
    /// Returns the shares from one time to another, from the counts around them, which are in order of time.
    pub fn between(from: f64, to: f64, loads: &[Load]) -> Self {
        let begin = loads.partition_point(|load| load.at <= from);
        let end = loads.partition_point(|load| load.at < to);
        let (begin, end) = (begin.saturating_sub(1), end.min(loads.len().max(1) - 1));
        let share = |seconds: fn(&Load) -> f64| match (loads.get(begin), loads.get(end)) {
            (Some(begin), Some(end)) if end.at > begin.at => {
                (seconds(end) - seconds(begin)) / (end.at - begin.at)
            }
            _ => 0.0,
        };
        Self {
            running: share(|load| load.running),
            waiting: share(|load| load.waiting),
            behind: share(|load| load.behind),
        }
    }

    /// Says what was missing, if that was too much. A server that is to share its core has to wait.
    pub fn disturbance(&self, shares_core: bool) -> Option<String> {
        let mut what = Vec::new();
        for (share, text) in [
            (
                self.waiting * f64::from(!shares_core),
                "the server's main thread waited for a CPU",
            ),
            (self.behind, "the load was behind its pace"),
        ] {
            if share > MOST {
                what.push(format!("{text} for {} of the time", percent(share)));
            }
        }
        (!what.is_empty()).then(|| what.join(", and "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_span_alone() {
        // Nothing was missing until 5.
        let loads = (0..100)
            .map(|tenth| f64::from(tenth) / 10.0)
            .map(|at| Load {
                at,
                running: at / 2.0,
                waiting: 0.2 * (at - 5.0).max(0.0),
                behind: 0.04 * (at - 5.0).max(0.0),
                ..Load::default()
            });
        let loads: Vec<_> = loads.collect();
        let near = |share: f64, expected: f64| (share - expected).abs() < 1e-9;
        let late = Premise::between(6.03, 6.08, &loads);
        assert!(near(late.waiting, 0.2) && near(late.behind, 0.04));
        assert_eq!(
            late.disturbance(false).as_deref(),
            Some("the server's main thread waited for a CPU for 20 % of the time")
        );
        assert_eq!(late.disturbance(true), None);
        assert!(near(Premise::between(4.0, 6.0, &loads).waiting, 0.1));
        let early = Premise::between(-1.0, 5.0, &loads);
        assert!(near(early.running, 0.5) && early.disturbance(false).is_none());
        // A span about which nothing is known.
        assert_eq!(Premise::between(1.0, 2.0, &[]), Premise::default());
    }
}
