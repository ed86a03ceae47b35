//! Accumulates the snapshots of one server.

use evictscope_abi::{Activity, CLIENT_BUFFERS_INTERVAL_NS, EVICTION, Fault, bounds};

use super::totals::advance_all;
use super::{Accumulator, CallTotals, HistogramTotals, Members, Snapshot};

/// What is known of one server since it was found: totals that only grow, and last values.
#[derive(Clone, Debug)]
pub struct ServerState {
    /// Calls of each traced function, by its number; those of the eviction call are always there.
    pub calls: Vec<CallTotals>,
    /// Evicting calls, by [`evictscope_abi::ResultKind`].
    pub evicting_results: [Accumulator; 4],
    /// No-op calls, by [`evictscope_abi::ResultKind`]; counted only while the entry and return probes
    /// are attached.
    pub noop_results: [Accumulator; 4],
    /// The eviction goal at each evicting call, bytes.
    pub mem_tofree: HistogramTotals,
    /// The allocator's counter at each evicting call, bytes.
    pub mem_reported: HistogramTotals,
    /// Memory that counts against `maxmemory` at each evicting call, bytes.
    pub mem_used: HistogramTotals,
    /// Memory that does not count against `maxmemory` at each evicting call, bytes.
    pub overhead: HistogramTotals,
    client_buffers: HistogramTotals,
    client_buffers_peak: u64,
    client_buffers_recorded_ns: u64,
    /// How often the main thread was sampled.
    pub sample_hits: Accumulator,
    /// How often something could not be read or counted, by [`Fault`].
    pub faults: [Accumulator; Fault::ALL.len()],
    /// How often an invariant was tested, by [`evictscope_abi::Check`].
    pub checks: [Accumulator; 3],
    /// How often an invariant failed, by [`evictscope_abi::Check`].
    pub check_failures: [Accumulator; 3],
    /// Evicting calls at which another thread of the server had moved the allocator's counter.
    pub allocator_moved: Accumulator,
    cpu_ns: [Accumulator; 2],
    /// The last values read from the server's memory; `None` until they were first read.
    pub members: Option<Members>,
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

    /// Takes in a snapshot. Ignores each counter that is behind its last value.
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
        let recorded_ns = &mut self.client_buffers_recorded_ns;
        *recorded_ns = samples.client_buffers_ns.max(*recorded_ns);
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

    /// Records a reading by the agent itself, as the kernel records its own: in the histogram only
    /// if the last entry, of either, is long enough ago.
    fn record_client_buffers(&mut self, idle: &Members) {
        let Some(total) = idle.client_buffers().map(|buffers| buffers.total()) else {
            return;
        };
        self.client_buffers_peak = self.client_buffers_peak.max(total);
        let recorded_ns = &mut self.client_buffers_recorded_ns;
        let since = idle.read_ns().saturating_sub(*recorded_ns);
        if *recorded_ns == 0 || since >= CLIENT_BUFFERS_INTERVAL_NS {
            self.client_buffers.record(total);
            *recorded_ns = idle.read_ns();
        }
    }

    /// Returns the calls of the eviction call.
    pub fn eviction(&self) -> &CallTotals {
        &self.calls[usize::from(EVICTION)]
    }

    /// Returns all client buffers at each sample, bytes; `None` until they were first read.
    pub fn client_buffers(&self) -> Option<&HistogramTotals> {
        (self.client_buffers.count() > 0).then_some(&self.client_buffers)
    }

    /// Returns the highest total of client buffers since the server was found, bytes; `None` until they were
    /// first read.
    pub fn client_buffers_peak(&self) -> Option<u64> {
        self.client_buffers().map(|_| self.client_buffers_peak)
    }

    /// Returns how many inner calls of any traced function were not seen to end.
    pub fn lost_exits(&self) -> u64 {
        self.calls
            .iter()
            .map(|calls| calls.lost_exits.count())
            .sum()
    }

    /// Returns the CPU time of the main thread, nanoseconds; `None` until it was first sampled.
    pub fn cpu_ns(&self, activity: Activity) -> Option<u128> {
        (self.sample_hits.count() > 0).then(|| self.cpu_ns[activity as usize].total())
    }
}

#[cfg(test)]
mod tests;
