//! What is known of one server since it was found.

use evictscope_abi::{
    Activity, CLIENT_BUFFERS_INTERVAL_NS, Check, EVICTION, Fault, Variable, bounds,
};

use super::totals::advance_all;
use super::{Accumulator, CallTotals, EvictionTotals, HistogramTotals, Members, Snapshot};

/// What is known of one server since it was found: totals that only grow, and last values.
#[derive(Clone, Debug)]
pub struct ServerState {
    /// Of each traced function, by its number; the eviction call's are always there.
    calls: Vec<CallTotals>,
    evicting_results: [Accumulator; 4],
    noop_results: [Accumulator; 4],
    mem_tofree: HistogramTotals,
    mem_reported: HistogramTotals,
    mem_used: HistogramTotals,
    overhead: HistogramTotals,
    client_buffers: HistogramTotals,
    client_buffers_peak: u64,
    client_buffers_recorded_ns: u64,
    sample_hits: Accumulator,
    faults: [Accumulator; Fault::ALL.len()],
    checks: [Accumulator; 3],
    check_failures: [Accumulator; 3],
    allocator_moved: Accumulator,
    cpu_ns: [Accumulator; 2],
    members: Option<Members>,
}

impl Default for ServerState {
    fn default() -> Self {
        Self::new()
    }
}

impl ServerState {
    /// Returns the state of a server that was not read yet.
    pub fn new() -> Self {
        Self {
            calls: vec![CallTotals::new()],
            evicting_results: Default::default(),
            noop_results: Default::default(),
            mem_tofree: HistogramTotals::new(bounds::MEM_TOFREE),
            mem_reported: HistogramTotals::new(bounds::MEMORY),
            mem_used: HistogramTotals::new(bounds::MEMORY),
            overhead: HistogramTotals::new(bounds::OVERHEAD),
            client_buffers: HistogramTotals::new(bounds::CLIENT_BUFFERS),
            client_buffers_peak: 0,
            client_buffers_recorded_ns: 0,
            sample_hits: Accumulator::default(),
            faults: Default::default(),
            checks: Default::default(),
            check_failures: Default::default(),
            allocator_moved: Accumulator::default(),
            cpu_ns: Default::default(),
            members: None,
        }
    }

    /// Takes in what was read at one moment. Snapshots of one server come in the order in which
    /// they were read; what lies behind an earlier one is left out, counter by counter.
    pub fn apply(&mut self, snapshot: &Snapshot) {
        let functions = self.calls.len().max(snapshot.calls.len());
        self.calls.resize_with(functions, CallTotals::new);
        for (totals, calls) in self.calls.iter_mut().zip(&snapshot.calls) {
            totals.advance(calls);
        }
        let evictions = &snapshot.evictions;
        advance_all(&mut self.evicting_results, &evictions.evicting_results);
        advance_all(&mut self.noop_results, &evictions.noop_results);
        self.mem_tofree.advance(&evictions.mem_tofree);
        self.mem_reported.advance(&evictions.mem_reported);
        self.mem_used.advance(&evictions.mem_used);
        self.overhead.advance(&evictions.overhead);
        advance_all(&mut self.faults, &snapshot.faults);
        advance_all(&mut self.checks, &evictions.checks);
        advance_all(&mut self.check_failures, &evictions.check_failures);
        self.allocator_moved.advance(evictions.allocator_moved);

        let samples = &snapshot.samples;
        self.client_buffers.advance(&samples.client_buffers);
        self.client_buffers_recorded_ns = self
            .client_buffers_recorded_ns
            .max(samples.client_buffers_ns);
        self.client_buffers_peak = self.client_buffers_peak.max(samples.client_buffers_peak);
        self.sample_hits.advance(samples.hits);
        advance_all(&mut self.cpu_ns, &samples.cpu_ns);

        let idle = snapshot.idle_members.as_ref().and_then(Members::read);
        if let Some(idle) = &idle {
            self.record_client_buffers(idle);
        }
        self.members = [self.members, Members::read(&samples.members), idle]
            .into_iter()
            .flatten()
            .max_by_key(Members::read_ns);
    }

    /// Enters a reading of the agent's own into the histogram and the peak, as the kernel does with
    /// its own: not within the least time after the last entry by either.
    fn record_client_buffers(&mut self, idle: &Members) {
        let Some(total) = idle.client_buffers().map(|buffers| buffers.total()) else {
            return;
        };
        self.client_buffers_peak = self.client_buffers_peak.max(total);
        let since = idle
            .read_ns()
            .saturating_sub(self.client_buffers_recorded_ns);
        if self.client_buffers_recorded_ns == 0 || since >= CLIENT_BUFFERS_INTERVAL_NS {
            self.client_buffers.record(total);
            self.client_buffers_recorded_ns = idle.read_ns();
        }
    }

    /// Returns the calls of each traced function, by its number, as far as they were read.
    pub fn calls(&self) -> &[CallTotals] {
        &self.calls
    }

    /// Returns the calls of the eviction call.
    pub fn eviction(&self) -> &CallTotals {
        &self.calls[usize::from(EVICTION)]
    }

    /// Returns the evicting calls.
    pub fn evicting(&self) -> EvictionTotals<'_> {
        EvictionTotals {
            duration: &self.eviction().inner,
            results: &self.evicting_results,
        }
    }

    /// Returns the no-op calls; counted only while the entry and return probes are attached.
    pub fn noop(&self) -> EvictionTotals<'_> {
        EvictionTotals {
            duration: &self.eviction().noop,
            results: &self.noop_results,
        }
    }

    /// The values of a goal variable at each evicting call, bytes; `None` for `maxmemory`, which
    /// has no histogram.
    pub fn variable(&self, variable: Variable) -> Option<&HistogramTotals> {
        match variable {
            Variable::MemReported => Some(&self.mem_reported),
            Variable::Overhead => Some(&self.overhead),
            Variable::MemUsed => Some(&self.mem_used),
            Variable::MemTofree => Some(&self.mem_tofree),
            Variable::Maxmemory => None,
        }
    }

    /// All client buffers at each sample, bytes; `None` until they were first read.
    pub fn client_buffers(&self) -> Option<&HistogramTotals> {
        (self.client_buffers.count() > 0).then_some(&self.client_buffers)
    }

    /// Highest total of client buffers since the server was found, bytes; `None` until they were
    /// first read.
    pub fn client_buffers_peak(&self) -> Option<u64> {
        self.client_buffers().map(|_| self.client_buffers_peak)
    }

    /// The last values read from the server's memory.
    pub fn members(&self) -> Option<&Members> {
        self.members.as_ref()
    }

    /// How often the main thread was sampled.
    pub fn sample_hits(&self) -> u64 {
        self.sample_hits.count()
    }

    /// Returns how often something could not be read or counted, by any program.
    pub fn faults(&self, fault: Fault) -> u64 {
        self.faults[fault as usize].count()
    }

    /// Returns how many inner calls of any traced function were not seen to end.
    pub fn lost_exits(&self) -> u64 {
        self.calls.iter().map(CallTotals::lost_exits).sum()
    }

    /// How often an invariant was tested, and how often it failed.
    pub fn checks(&self, check: Check) -> (u64, u64) {
        let index = check as usize;
        (
            self.checks[index].count(),
            self.check_failures[index].count(),
        )
    }

    /// At how many evicting calls another thread of the server had moved the allocator's counter.
    pub fn allocator_moved(&self) -> u64 {
        self.allocator_moved.count()
    }

    /// CPU time of the main thread, nanoseconds; `None` until it was first sampled.
    pub fn cpu_ns(&self, activity: Activity) -> Option<u128> {
        (self.sample_hits() > 0).then(|| self.cpu_ns[activity as usize].total())
    }
}

#[cfg(test)]
mod tests;
