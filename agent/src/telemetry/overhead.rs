//! What the probes cost a server.

use std::time::Duration;

use evictscope_ebpf::ProgramKind;

use super::ServerState;

/// How long the hits are counted of which the ratio is made.
const INTERVAL: Duration = Duration::from_secs(1);

/// What hits cost on this machine, nanoseconds of the traced thread's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HitCosts {
    /// A hit of the entry probe, on an instruction that the kernel emulates.
    pub enter_ns: f64,
    /// A hit of the return probe, on top of the entry probe.
    pub return_ns: f64,
    /// A hit at the goal site and one at a done site together, both emulated.
    pub goal_and_done_ns: f64,
    /// What any hit costs more where the kernel single-steps the instruction.
    pub single_step_ns: f64,
}

/// Which of a server's sites the kernel single-steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SingleStepped {
    /// The entry.
    pub entry: bool,
    /// The goal site.
    pub goal: bool,
    /// Any of the done sites.
    pub done: bool,
}

/// What the probes of one server cost, as a share of its main thread.
#[derive(Clone, Copy, Debug)]
pub struct Overhead {
    costs: HitCosts,
    stepped: SingleStepped,
    /// When the interval began, and what all hits had cost until then, nanoseconds.
    since: Option<(Duration, f64)>,
    ratio: Option<f64>,
}

impl Overhead {
    /// Of a server whose probes have not been hit yet.
    pub fn new(costs: HitCosts, stepped: SingleStepped) -> Self {
        Self {
            costs,
            stepped,
            since: None,
            ratio: None,
        }
    }

    /// Takes in what was counted until `at` (monotonic time).
    pub fn update(&mut self, at: Duration, state: &ServerState) {
        let total = self.total_ns(state);
        match self.since {
            Some((begun, before)) if at >= begun + INTERVAL => {
                let elapsed = (at - begun).as_secs_f64() * 1e9;
                self.ratio = Some((total - before) / elapsed);
                self.since = Some((at, total));
            }
            Some(_) => {}
            None => self.since = Some((at, total)),
        }
    }

    /// Probe cost as a share of the main thread's wall time in the last full second; `None` in the
    /// first. What `main_thread_sample` costs is not in it: it could not be measured.
    pub fn ratio(&self) -> Option<f64> {
        self.ratio
    }

    fn total_ns(&self, state: &ServerState) -> f64 {
        let HitCosts {
            enter_ns,
            return_ns,
            goal_and_done_ns,
            single_step_ns,
        } = self.costs;
        let step = |stepped: bool| if stepped { single_step_ns } else { 0.0 };
        [
            (
                ProgramKind::EvictionEnter,
                enter_ns + step(self.stepped.entry),
            ),
            (ProgramKind::EvictionReturn, return_ns),
            (
                ProgramKind::EvictionGoal,
                goal_and_done_ns / 2.0 + step(self.stepped.goal),
            ),
            (
                ProgramKind::EvictionDone,
                goal_and_done_ns / 2.0 + step(self.stepped.done),
            ),
        ]
        .into_iter()
        .map(|(program, cost)| state.hits(program) as f64 * cost)
        .sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{HitCosts, Overhead, SingleStepped};
    use crate::telemetry::{ServerState, fixture};

    const COSTS: HitCosts = HitCosts {
        enter_ns: 700.0,
        return_ns: 500.0,
        goal_and_done_ns: 2_000.0,
        single_step_ns: 6_000.0,
    };

    fn ratio_after_hits(hits: [u64; 4], stepped: SingleStepped) -> Option<f64> {
        let mut overhead = Overhead::new(COSTS, stepped);
        let mut state = ServerState::new();
        overhead.update(Duration::from_secs(10), &state);
        assert_eq!(overhead.ratio(), None);
        let mut snapshot = fixture::empty_snapshot();
        snapshot.evictions.hits = hits;
        state.apply(&snapshot);
        overhead.update(Duration::from_secs(12), &state);
        overhead.ratio()
    }

    #[test]
    fn the_ratio_is_cost_by_time() {
        // 1,000 calls at 700 + 500 ns, 100 of them evicting at 2,000 ns more, in 2 s.
        let ratio = ratio_after_hits([1_000, 1_000, 100, 100], SingleStepped::default());
        assert_eq!(ratio, Some(1_400_000.0 / 2e9));
    }

    #[test]
    fn a_single_stepped_site_costs_more() {
        let stepped = SingleStepped {
            entry: true,
            ..SingleStepped::default()
        };
        let ratio = ratio_after_hits([1_000, 0, 0, 0], stepped);
        assert_eq!(ratio, Some(6_700_000.0 / 2e9));
    }
}
