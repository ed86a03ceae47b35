//! Whether the lab had what its runs need: a CPU for the server's main thread, and a load that keeps its pace.
//!
//! Without it a burst is of another kind, or there is none, and that is no fault of the agent's.

use anyhow::Result;
use evictscope_testkit::{clock::unix_time, schedstat, text::percent};
use serde::Serialize;

use crate::counts::Load;

/// The most of a span that may be without it. On two idle cores the main thread waited for 1 to 3 % of a phase.
const MOST: f64 = 0.05;

/// The main thread's times until one moment, by the kernel's scheduler, in seconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Times {
    /// When, in seconds since 1970.
    pub at: f64,
    /// On a CPU.
    pub running: f64,
    /// Waiting for a CPU.
    pub waiting: f64,
}

impl Times {
    /// Takes those of now, of the server that is this process.
    pub fn of(pid: u32) -> Result<Self> {
        let times = schedstat::of_thread(pid, pid)?;
        Ok(Self {
            at: unix_time()?,
            running: times.running.as_secs_f64(),
            waiting: times.waiting.as_secs_f64(),
        })
    }
}

/// What was missing in a span of time, in shares of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Premise {
    /// Seconds.
    pub seconds: f64,
    /// The main thread waited for a CPU.
    pub waiting: f64,
    /// Requests were due, and the generator did not come to them.
    pub behind: f64,
}

impl Premise {
    /// Returns what was missing from one time to another. Both lists are in the order of time.
    pub fn between(from: f64, to: f64, times: &[Times], loads: &[Load]) -> Self {
        let seconds = to - from;
        let share = |of: &dyn Fn(f64) -> f64| match seconds > 0.0 {
            true => (of(to) - of(from)) / seconds,
            false => 0.0,
        };
        Self {
            seconds,
            waiting: share(&|at| until(at, times, |times| (times.at, times.waiting))),
            behind: share(&|at| until(at, loads, |load| (load.at, load.behind))),
        }
    }

    /// Says what was missing, where that was too much.
    pub fn disturbance(&self) -> Option<String> {
        let mut what = Vec::new();
        let mut add = |share: f64, text: &str| {
            if share > MOST {
                what.push(format!("{text} for {}", percent(share)));
            }
        };
        add(self.waiting, "the server's main thread waited for a CPU");
        add(self.behind, "the load was behind its pace");
        (!what.is_empty()).then(|| format!("{} of {:.1} s", what.join(", and "), self.seconds))
    }
}

/// Returns how much there was until a time, of what was counted at some.
fn until<T>(at: f64, counts: &[T], count: impl Fn(&T) -> (f64, f64)) -> f64 {
    let next = counts.partition_point(|counted| count(counted).0 < at);
    match (
        next.checked_sub(1).and_then(|last| counts.get(last)),
        counts.get(next),
    ) {
        (Some(last), Some(next)) => {
            let ((from, before), (to, after)) = (count(last), count(next));
            before + (after - before) * (at - from) / (to - from)
        }
        (one, other) => one.or(other).map_or(0.0, |counted| count(counted).1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn premise(waiting: f64, behind: f64, from: f64, to: f64) -> Premise {
        let tenths = || (0..100).map(|tenth| f64::from(tenth) / 10.0);
        // Nothing was missing until 5.
        let since = |at: f64| (at - 5.0).max(0.0);
        let times: Vec<_> = tenths()
            .map(|at| Times {
                at,
                running: 0.0,
                waiting: waiting * since(at),
            })
            .collect();
        let loads: Vec<_> = tenths()
            .map(|at| Load {
                at,
                behind: behind * since(at),
                ..Load::default()
            })
            .collect();
        Premise::between(from, to, &times, &loads)
    }

    #[test]
    fn shares_are_those_of_the_span_alone() {
        let near = |share: f64, expected: f64| (share - expected).abs() < 1e-9;
        let late = premise(0.2, 0.1, 6.03, 6.08);
        assert!(
            near(late.waiting, 0.2) && near(late.behind, 0.1),
            "{late:?}"
        );
        let half = premise(0.2, 0.1, 4.0, 6.0);
        assert!(near(half.waiting, 0.1) && near(half.behind, 0.05));
        assert!(near(premise(0.2, 0.1, 0.0, 5.0).waiting, 0.0));
        // A span without length, and one that nothing is known of.
        assert_eq!(premise(0.2, 0.1, 6.0, 6.0).waiting, 0.0);
        assert_eq!(Premise::between(1.0, 2.0, &[], &[]).behind, 0.0);
    }

    #[test]
    fn more_than_a_twentieth_of_either_is_a_disturbance() {
        let says = |waiting, behind| premise(waiting, behind, 5.0, 9.0).disturbance();
        assert_eq!(says(0.04, 0.04), None);
        assert_eq!(
            says(0.12, 0.04).as_deref(),
            Some("the server's main thread waited for a CPU for 12 % of 4.0 s")
        );
        assert_eq!(
            says(0.12, 0.3).as_deref(),
            Some(
                "the server's main thread waited for a CPU for 12 %, and the load was behind its pace for 30 % of 4.0 s"
            )
        );
    }
}
