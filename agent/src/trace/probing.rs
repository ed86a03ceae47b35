//! The probes of a trace: when they are on, what they have counted, and what that has cost.

use std::time::Duration;

use evictscope_probes::{ProbeError, TraceCosts, TraceCounts, Tracing};
use evictscope_telemetry::HitCosts;

use crate::clock::monotonic;

/// How long to wait for calls under way before taking the probes off, while others begin. If none begins, waiting costs
/// nothing, and slow calls are what is looked for.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often to check whether they have returned.
const LOOK: Duration = Duration::from_millis(1);

pub struct TraceProbes {
    pub tracing: Tracing,
    pub costs: TraceCosts,
    /// Whether calls that begin now are counted.
    pub is_on: bool,
    /// For how long they were counted, and until when that was added up.
    pub observed: Duration,
    pub observed_until: Duration,
    pub counts: TraceCounts,
    /// Calls that had not returned when the probes were taken off.
    pub abandoned: u64,
    /// At how many sites probes were placed.
    placed: u64,
    /// What all of it had cost at the last look, in nanoseconds.
    pub paid_ns: f64,
}

impl TraceProbes {
    /// Begins at `now`, monotonic, with probes that are off.
    pub fn new(tracing: Tracing, costs: TraceCosts, now: Duration) -> Self {
        Self {
            tracing,
            costs,
            is_on: false,
            observed: Duration::ZERO,
            observed_until: now,
            counts: TraceCounts::default(),
            abandoned: 0,
            placed: 0,
            paid_ns: 0.0,
        }
    }

    /// Takes in the counts, and adds up how long calls were observed. Returns the time since the last look.
    pub fn look(&mut self) -> Duration {
        let now = monotonic();
        let elapsed = now.saturating_sub(self.observed_until);
        self.observed_until = now;
        if self.is_on {
            self.observed += elapsed;
        }
        self.counts = self.tracing.counts();
        elapsed
    }

    pub fn hits_ns(&self) -> f64 {
        let TraceCounts { calls, cycle_hits, .. } = &self.counts;
        calls.entry_hits as f64 * self.costs.call_ns + *cycle_hits as f64 * self.costs.cycle_ns
    }

    /// Returns what the probes have cost since the last time, in nanoseconds: hits, and the placing.
    pub fn spent(&mut self) -> f64 {
        let total = self.hits_ns() + self.placed as f64 * HitCosts::DOCUMENTED.placing_ns;
        let spent = total - self.paid_ns;
        self.paid_ns = total;
        spent
    }

    /// Places the probes, if they are off. Fails if the kernel refuses.
    pub fn turn_on(&mut self) -> Result<(), ProbeError> {
        if self.is_on {
            return Ok(());
        }
        match self.tracing.place() {
            // The session notices that it has ended.
            Err(ProbeError::Gone(_)) => return Ok(()),
            placed => placed?,
        }
        self.placed += self.tracing.sites() as u64;
        self.observed_until = monotonic();
        self.is_on = true;
        Ok(())
    }

    /// Takes the probes off, after the calls under way have returned: otherwise long calls would be missing. Waits for
    /// them for a second, and while no other call begins, until a second after `deadline`, monotonic. `wait` waits for
    /// some time, and returns whether the trace must end.
    pub fn turn_off(&mut self, deadline: Duration, wait: impl Fn(Duration) -> bool) {
        if !self.is_on {
            return;
        }
        self.tracing.stop_observing();
        self.look();
        self.is_on = false;
        let mut patience = monotonic() + PATIENCE;
        while self.unfinished() > 0 && monotonic() < patience && !wait(LOOK) {
            let before = self.counts.calls.entry_hits;
            self.counts = self.tracing.counts();
            let now = monotonic();
            if self.counts.calls.entry_hits == before && now < deadline {
                patience = now + PATIENCE;
            }
        }
        self.abandoned += self.unfinished();
        self.tracing.take_off();
    }

    fn unfinished(&self) -> u64 {
        self.counts.calls.begun.saturating_sub(self.counts.ended() + self.counts.calls.lost + self.abandoned)
    }
}
