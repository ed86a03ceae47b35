//! The probes of `evictscope trace`: programs in an object of their own, which time the calls of one function.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use aya::Pod;
use aya::maps::{HashMap, Map, MapData, MapError, RingBuf};
use evictscope_abi::{
    Cookie, EVICTION, EvictionConfig, TraceCalls, TraceConfig, TraceShared, TracedCall, TracedThread, When,
};
use evictscope_host::{Executable, Words};
use evictscope_model::{FileOffset, ProcessAddress};
use evictscope_telemetry::Unrun;

use super::bpf::take_record;
use super::error::ProbeError;
use super::keeper::{Leaving, Link, LinkKeeper};
use super::maps::Mapped;
use super::programs::{Programs, load};
use super::self_probes::time;
use super::target::{FUNCTIONS, OwnExecutable, Target, TargetFunction, own_sites};

const ENTER: &str = "trace_enter";
const RETURN: &str = "trace_return";
const EVICTION_BEGINS: &str = "trace_eviction";
const CYCLE: &str = "trace_cycle";

/// How many times as much a hit costs in a server as in a loop that does nothing else, whose code and data stay in the
/// caches: on Debian's redis-server 7.0.15 it was 1.23 at `performEvictions` and 1.48 at `getCommand`.
const IN_A_SERVER: f64 = 1.5;

/// A thread's entry in the map.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Thread(TracedThread);

// SAFETY: integers only, without padding between them.
unsafe impl Pod for Thread {}

pub struct Tracer {
    programs: Programs,
    config: Mapped<TraceConfig>,
    shared: Mapped<TraceShared>,
    eviction: Mapped<EvictionConfig>,
    threads: HashMap<MapData, u32, Thread>,
    slow: RingBuf<MapData>,
}

/// What hits cost on this machine, nanoseconds of the thread's time.
#[derive(Clone, Copy, Debug)]
pub struct TraceCosts {
    /// A call that is timed: a hit at its entry, and one at its return.
    pub call_ns: f64,
    /// A hit where evicting calls begin; at an expire cycle it costs less.
    pub cycle_ns: f64,
}

impl Tracer {
    /// Loads the programs into the kernel. Fails if the kernel does not allow it or refuses a program.
    pub fn load() -> Result<Self, ProbeError> {
        Self::load_for(&LinkKeeper::start()?, true)
    }

    /// Does the same; `multi` says whether to use uprobe_multi links if the kernel has them.
    fn load_for(keeper: &LinkKeeper, multi: bool) -> Result<Self, ProbeError> {
        let object = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/evictscope-trace"));
        let mut ebpf = load(object)?;
        let names = [ENTER, RETURN, EVICTION_BEGINS, CYCLE].into_iter();
        let multi = if multi { Programs::by_multi_links(keeper, object, &ebpf, names.clone())? } else { None };
        let map = |name| ebpf.map(name).ok_or(ProbeError::Object(name));
        let config = Mapped::of(map("TRACE_CONFIG")?, 1)?;
        let shared = Mapped::of(map("TRACE_SHARED")?, 1)?;
        shared.set(0, TraceShared::default())?;
        let eviction = Mapped::of(map("TRACE_EVICTION")?, 1)?;
        let mut take = |name| ebpf.take_map(name).ok_or(ProbeError::Object(name));
        let unusable = |_: MapError| ProbeError::Object("map of another kind");
        let threads: Map = take("THREADS")?;
        let slow: Map = take("SLOW_CALLS")?;
        Ok(Self {
            config,
            shared,
            eviction,
            threads: threads.try_into().map_err(unusable)?,
            slow: slow.try_into().map_err(unusable)?,
            programs: match multi {
                Some(programs) => programs,
                None => Programs::by_perf_events(keeper, ebpf, names)?,
            },
        })
    }

    /// Measures what hits cost, on functions of this process. `is_emulated` says whether the kernel emulates the
    /// instruction at the entry of the function to trace, and `reads` whether evicted keys are read there. Fails if the
    /// kernel does not allow it.
    pub fn calibrate(&mut self, is_emulated: bool, reads: bool) -> Result<TraceCosts, ProbeError> {
        let [push, _, stepped] = FUNCTIONS;
        let [push_at, _, stepped_at] = own_sites()?;
        let (function, site) = if is_emulated { (push, push_at) } else { (stepped, stepped_at) };
        let call_ns = self.cost(&[ENTER, RETURN], function, site, reads)?;
        let cycle_ns = self.cost(&[EVICTION_BEGINS], push, push_at, false)?;
        let thread = rustix::thread::gettid().as_raw_pid().cast_unsigned();
        self.threads.remove(&thread).map_err(|_| ProbeError::OtherPidNamespace)?;
        self.config.set(0, TraceConfig::default())?;
        Ok(TraceCosts { call_ns, cycle_ns })
    }

    /// Returns by how many nanoseconds, at most, these programs lengthen a call of a function in a server.
    fn cost(
        &self,
        programs: &[&'static str],
        function: TargetFunction,
        site: FileOffset,
        reads: bool,
    ) -> Result<f64, ProbeError> {
        static EVICTED_KEYS: u64 = 0;
        let bare = time(&[function]);
        let (tgid, evicted_keys) = (std::process::id(), if reads { &raw const EVICTED_KEYS as u64 } else { 0 });
        let config = TraceConfig { tgid, is_observed: 1, slower_ns: u64::MAX, evicted_keys, ..TraceConfig::default() };
        self.config.set(0, config)?;
        let executable = OwnExecutable::open()?;
        let mut links = Vec::new();
        for program in programs {
            links.extend(self.attach(program, executable.target(), site, 0)?);
        }
        Ok((time(&[function]) - bare).max(0.0) * IN_A_SERVER)
    }

    /// Begins to trace: nothing is probed yet. Fails only if the built object lacks something.
    pub fn trace(self, traced: TraceJob) -> Result<Tracing, ProbeError> {
        let slower_ns = traced.slower_ns.unwrap_or(u64::MAX);
        let evicted_keys = traced.evicted_keys.map_or(0, ProcessAddress::get);
        self.config.set(0, TraceConfig { tgid: traced.pid, slower_ns, evicted_keys, ..TraceConfig::default() })?;
        self.shared.set(0, TraceShared::default())?;
        self.eviction.set(0, traced.eviction)?;
        Ok(Tracing { tracer: self, traced, placed: Vec::new(), generation: 0, leaving: Vec::new() })
    }

    /// Attaches a program at a site; `function` is the number of the traced function whose calls begin there.
    fn attach(
        &self,
        program: &'static str,
        target: Target<'_>,
        site: FileOffset,
        function: u16,
    ) -> Result<Vec<Link>, ProbeError> {
        let cookie = Cookie { slot: 0, function, site: 0, when: When::ALWAYS };
        self.programs.attach_program(program, program == RETURN, target, &[(site, cookie)])
    }

    fn observe(&self, is_observed: bool) {
        if let Ok(config) = self.config.entry(0) {
            // SAFETY: a field of a valid entry, an integer that programs read whole.
            let flag = unsafe { AtomicU32::from_ptr(&raw mut (*config).is_observed) };
            flag.store(u32::from(is_observed), Ordering::SeqCst);
        }
    }

    fn set_generation(&self, generation: u64) {
        if let Ok(config) = self.config.entry(0) {
            // SAFETY: as above.
            let word = unsafe { AtomicU64::from_ptr(&raw mut (*config).generation) };
            word.store(generation, Ordering::SeqCst);
        }
    }

    fn counts(&self) -> TraceCounts {
        let mut counts = TraceCounts::default();
        let all = &mut counts.calls;
        // A thread that is added meanwhile may be missed until the next time.
        for (_, Thread(TracedThread { calls, .. })) in self.threads.iter().flatten() {
            all.entry_hits += calls.entry_hits;
            all.begun += calls.begun;
            all.nested += calls.nested;
            all.lost += calls.lost;
            all.slow_lost += calls.slow_lost;
            all.longest_ns = all.longest_ns.max(calls.longest_ns);
            all.durations.sum = all.durations.sum.wrapping_add(calls.durations.sum);
            for (sum, count) in all.durations.counts.iter_mut().zip(calls.durations.counts) {
                *sum += count;
            }
        }
        if let Ok(shared) = self.shared.entry(0) {
            // SAFETY: fields of a valid entry, integers that programs write whole.
            unsafe {
                counts.cycle_hits = (&raw const (*shared).cycle_hits).read_volatile();
                counts.is_crowded = (&raw const (*shared).crowded).read_volatile() != 0;
            }
        }
        counts
    }

    fn slow_calls(&mut self) -> Vec<TracedCall> {
        let mut calls = Vec::new();
        while let Some(item) = self.slow.next() {
            calls.extend(take_record::<TracedCall>(&mut &item[..]));
        }
        calls
    }
}

/// What was counted up to one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceCounts {
    /// The calls of all threads.
    pub calls: TraceCalls,
    /// Hits where evicting calls and expire cycles begin.
    pub cycle_hits: u64,
    /// Whether there was no room for a thread, so that its calls are missing.
    pub is_crowded: bool,
}

impl TraceCounts {
    pub fn ended(&self) -> u64 {
        self.calls.durations.count()
    }
}

pub struct TraceJob {
    pub pid: u32,
    /// The executables that it may run, open: the first one in which probes appear in its memory.
    pub exes: Vec<Executable>,
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
    traced: TraceJob,
    placed: Vec<Link>,
    generation: u64,
    /// Probes that are being taken off.
    leaving: Vec<Leaving>,
}

impl Tracing {
    /// Places the probes once those that were taken off are gone. Counts calls that begin from then on. Fails if the
    /// process is gone, the kernel refuses, or the process runs none of these executables.
    pub fn place(&mut self) -> Result<(), ProbeError> {
        // Both together would count each call twice.
        self.settle();
        let pid = self.traced.pid;
        let placed = self.traced.addresses.len();
        loop {
            // The very file in which the function was found, whatever the process runs by now.
            let Some(exe) = self.traced.exes.first() else {
                return Err(ProbeError::NotRun(pid, Unrun { missing: placed, placed }));
            };
            let links = self.place_in(exe)?;
            if self.traced.memory.without_breakpoint(&self.traced.addresses).map_err(|_| ProbeError::Gone(pid))? == 0 {
                self.placed = links;
                self.tracer.observe(true);
                return Ok(());
            }
            drop(links);
            self.traced.exes.remove(0);
        }
    }

    fn place_in(&self, exe: &Executable) -> Result<Vec<Link>, ProbeError> {
        let TraceJob { pid, entry, cycles, .. } = &self.traced;
        let target = Target { pid: *pid, exe: exe.file().as_fd() };
        let mut placed = Vec::new();
        for (site, function) in cycles {
            let program = if *function == EVICTION { EVICTION_BEGINS } else { CYCLE };
            placed.extend(self.tracer.attach(program, target, *site, *function)?);
        }
        for program in [RETURN, ENTER] {
            placed.extend(self.tracer.attach(program, target, *entry, 0)?);
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
        self.tracer.programs.keeper.has_failed()
    }

    pub fn sites(&self) -> usize {
        self.placed.iter().map(Link::sites).sum()
    }

    pub fn counts(&self) -> TraceCounts {
        self.tracer.counts()
    }

    /// Returns the slow calls since the last time, in the order in which they ended.
    pub fn slow_calls(&mut self) -> Vec<TracedCall> {
        self.tracer.slow_calls()
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        self.take_off();
        self.settle();
    }
}

#[cfg(test)]
mod tests;
