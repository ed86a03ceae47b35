//! Places the probes on one function of a server, and takes them off.

use std::os::fd::AsFd as _;

use evictscope_abi::{EVICTION, EvictionConfig, SlowCall, TraceConfig, TraceShared};
use evictscope_host::{Executable, Words};
use evictscope_model::{FileOffset, ProcessAddress};
use evictscope_telemetry::Unrun;

use super::counts::TraceCounts;
use super::{CYCLE, ENTER, EVICTION_BEGINS, RETURN, Tracer};
use crate::error::ProbeError;
use crate::keeper::{Leaving, Link};
use crate::target::Target;

/// What to trace.
pub struct Traced {
    /// The process.
    pub pid: u32,
    /// The executables that it may run, open: the first one in which probes appear in its memory.
    pub exes: Vec<Executable>,
    /// Its memory.
    pub memory: Words,
    /// Where probes appear there.
    pub addresses: Vec<ProcessAddress>,
    /// Where the entry probe and the return probe go.
    pub entry: FileOffset,
    /// Where evicting calls and expire cycles begin, with the number of the traced function.
    pub cycles: Vec<(FileOffset, u16)>,
    /// What is read at the goal site.
    pub eviction: EvictionConfig,
    /// Where the server counts evicted keys.
    pub evicted_keys: Option<ProcessAddress>,
    /// Calls that take longer are reported one by one, nanoseconds.
    pub slower_ns: Option<u64>,
}

/// The probes on one function. Dropping it takes them off and waits until they are.
pub struct Tracing {
    tracer: Tracer,
    traced: Traced,
    placed: Vec<Link>,
    generation: u64,
    /// Probes that are being taken off.
    leaving: Vec<Leaving>,
}

impl Tracer {
    /// Begins to trace: nothing is probed yet.
    ///
    /// # Errors
    ///
    /// Fails only if the built object lacks something.
    pub fn trace(self, traced: Traced) -> Result<Tracing, ProbeError> {
        self.set_config(TraceConfig {
            tgid: traced.pid,
            is_observed: 0,
            generation: 0,
            slower_ns: traced.slower_ns.unwrap_or(u64::MAX),
            evicted_keys: traced.evicted_keys.map_or(0, ProcessAddress::get),
        })?;
        self.shared.set(0, TraceShared::NEW)?;
        self.eviction.set(0, traced.eviction)?;
        Ok(Tracing { tracer: self, traced, placed: Vec::new(), generation: 0, leaving: Vec::new() })
    }
}

impl Tracing {
    /// Places the probes once those that were taken off are gone. Counts calls that begin from then on.
    ///
    /// # Errors
    ///
    /// Fails if the process is gone, the kernel refuses, or the process runs none of these executables.
    pub fn place(&mut self) -> Result<(), ProbeError> {
        // Both together would count each call twice.
        self.settle();
        let pid = self.traced.pid;
        let placed = self.traced.addresses.len();
        loop {
            // The very file in which the function was found, whatever the process runs by now.
            let Some(exe) = self.traced.exes.first() else {
                let missing = placed;
                return Err(ProbeError::NotRun(pid, Unrun { missing, placed }));
            };
            let links = self.place_in(exe)?;
            let missing = (self.traced.memory).without_breakpoint(&self.traced.addresses);
            if missing.map_err(|_| ProbeError::Gone(pid))? == 0 {
                self.placed = links;
                self.tracer.observe(true);
                return Ok(());
            }
            drop(links);
            self.traced.exes.remove(0);
        }
    }

    fn place_in(&self, exe: &Executable) -> Result<Vec<Link>, ProbeError> {
        let Traced { pid, entry, cycles, .. } = &self.traced;
        let target = Target { pid: *pid, exe: exe.file().as_fd() };
        let mut placed = Vec::new();
        for site in cycles {
            let program = match site.1 {
                EVICTION => EVICTION_BEGINS,
                _ => CYCLE,
            };
            placed.extend(self.tracer.attach(program, target, &[*site])?);
        }
        for program in [RETURN, ENTER] {
            placed.extend(self.tracer.attach(program, target, &[(*entry, 0)])?);
        }
        Ok(placed)
    }

    /// Stops counting calls that begin from now on; those under way are still seen to end.
    pub fn stop_observing(&self) {
        self.tracer.observe(false);
    }

    /// Takes the probes off in the background. Stops counting calls that are under way.
    pub fn take_off(&mut self) {
        self.tracer.observe(false);
        // What threads remember of those calls means nothing once probes are placed again.
        self.generation += 1;
        self.tracer.set_generation(self.generation);
        self.leaving.extend(self.placed.drain(..).map(Link::take_off));
    }

    /// Waits until the probes that were taken off are gone.
    pub fn settle(&mut self) {
        // Dropping each waits.
        self.leaving.clear();
    }

    /// Returns whether the keeper has ended. If so, no probe is left.
    pub fn has_lost_keeper(&self) -> bool {
        self.tracer.programs.keeper().has_failed()
    }

    /// Returns how many sites are probed.
    pub fn sites(&self) -> usize {
        self.placed.iter().map(Link::sites).sum()
    }

    /// Returns what was counted until now.
    pub fn counts(&self) -> TraceCounts {
        self.tracer.counts()
    }

    /// Returns the slow calls since the last time, in the order in which they ended.
    pub fn slow_calls(&mut self) -> Vec<SlowCall> {
        self.tracer.slow_calls()
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        self.take_off();
        self.settle();
    }
}
