//! The probes of `evictscope trace`: programs in an object of their own, which time the calls of one function.

mod counts;
mod tracing;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use aya::Pod;
use aya::maps::{HashMap, Map, MapData, MapError, RingBuf};
use evictscope_abi::{Cookie, EvictionConfig, SlowCall, TraceConfig, TraceShared, TracedThread, When};
use evictscope_model::FileOffset;

use super::calibration::time;
use super::error::ProbeError;
use super::keeper::{Link, LinkKeeper};
use super::loading::load;
use super::mapped::Mapped;
use super::own::{FUNCTIONS, Function, own_sites};
use super::programs::Programs;
use super::target::{Own, Target};
pub use counts::TraceCounts;
pub use tracing::{Traced, Tracing};

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

/// The loaded programs, and their maps.
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
    /// Loads the programs into the kernel.
    ///
    /// # Errors
    ///
    /// Fails if the kernel does not allow it or refuses a program.
    pub fn load() -> Result<Self, ProbeError> {
        Self::load_for(&LinkKeeper::start()?, true)
    }

    /// Does the same; `multi` says whether to use uprobe_multi links if the kernel has them.
    fn load_for(keeper: &LinkKeeper, multi: bool) -> Result<Self, ProbeError> {
        let object = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/evictscope-trace"));
        let mut ebpf = load(object)?;
        let [site, ..] = own_sites()?;
        let names = [ENTER, RETURN, EVICTION_BEGINS, CYCLE].into_iter();
        let multi = match multi {
            true => Programs::by_multi_links(keeper, object, &ebpf, names.clone(), site)?,
            false => None,
        };
        let map = |name| ebpf.map(name).ok_or(ProbeError::Object(name));
        let config = Mapped::of(map("TRACE_CONFIG")?, 1)?;
        let shared = Mapped::of(map("TRACE_SHARED")?, 1)?;
        shared.set(0, TraceShared::NEW)?;
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
    /// instruction at the entry of the function to trace, and `reads` whether evicted keys are read there.
    ///
    /// # Errors
    ///
    /// Fails if the kernel does not allow it.
    pub fn calibrate(&mut self, is_emulated: bool, reads: bool) -> Result<TraceCosts, ProbeError> {
        let [push, _, stepped] = FUNCTIONS;
        let [push_at, _, stepped_at] = own_sites()?;
        let (function, site) = match is_emulated {
            true => (push, push_at),
            false => (stepped, stepped_at),
        };
        let call_ns = self.cost(&[ENTER, RETURN], function, site, reads)?;
        let cycle_ns = self.cost(&[EVICTION_BEGINS], push, push_at, false)?;
        let thread = rustix::thread::gettid().as_raw_pid().cast_unsigned();
        self.threads.remove(&thread).map_err(|_| ProbeError::OtherPidNamespace)?;
        self.set_config(TraceConfig::default())?;
        Ok(TraceCosts { call_ns, cycle_ns })
    }

    /// Returns by how many nanoseconds, at most, these programs lengthen a call of a function in a server.
    fn cost(
        &self,
        programs: &[&'static str],
        function: Function,
        site: FileOffset,
        reads: bool,
    ) -> Result<f64, ProbeError> {
        static EVICTED_KEYS: u64 = 0;
        let evicted_keys = &raw const EVICTED_KEYS as u64;
        let bare = time(&[function]);
        self.set_config(TraceConfig {
            tgid: std::process::id(),
            is_observed: 1,
            generation: 0,
            slower_ns: u64::MAX,
            evicted_keys: if reads { evicted_keys } else { 0 },
        })?;
        let own = Own::open()?;
        let mut links = Vec::new();
        for program in programs {
            links.extend(self.attach(program, own.target(), &[(site, 0)])?);
        }
        Ok((time(&[function]) - bare).max(0.0) * IN_A_SERVER)
    }

    fn attach(
        &self,
        program: &'static str,
        target: Target<'_>,
        sites: &[(FileOffset, u16)],
    ) -> Result<Vec<Link>, ProbeError> {
        let cookie = |function: u16| Cookie { slot: 0, function, site: 0, when: When::ALWAYS };
        let sites = sites.iter().map(|(site, number)| (*site, cookie(*number)));
        let sites: Vec<(FileOffset, Cookie)> = sites.collect();
        let programs = &self.programs;
        programs.attach_program(program, program == RETURN, target, &sites)
    }

    fn set_config(&self, config: TraceConfig) -> Result<(), ProbeError> {
        self.config.set(0, config)
    }

    /// Sets whether calls that begin from now on are counted.
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

    /// Returns what was counted until now.
    fn counts(&self) -> TraceCounts {
        let mut counts = TraceCounts::NONE;
        // A thread that is added meanwhile may be missed until the next time.
        for (_, Thread(thread)) in self.threads.iter().flatten() {
            counts.entry_hits += thread.entry_hits;
            counts.begun += thread.begun;
            counts.nested += thread.nested;
            counts.lost += thread.lost;
            counts.slow_lost += thread.slow_lost;
            counts.longest_ns = counts.longest_ns.max(thread.longest_ns);
            counts.sum_ns = counts.sum_ns.wrapping_add(thread.sum_ns);
            for (sum, own) in counts.durations.iter_mut().zip(thread.durations) {
                *sum += own;
            }
        }
        if let Ok(shared) = self.shared.entry(0) {
            // SAFETY: fields of a valid entry, integers that programs write whole.
            let (hits, crowded) = unsafe {
                let hits = (&raw const (*shared).cycle_hits).read_volatile();
                (hits, (&raw const (*shared).crowded).read_volatile())
            };
            counts.cycle_hits = hits;
            counts.is_crowded = crowded != 0;
        }
        counts
    }

    /// Returns the slow calls since the last time, in the order in which they ended.
    fn slow_calls(&mut self) -> Vec<SlowCall> {
        let mut calls = Vec::new();
        while let Some(item) = self.slow.next() {
            if let Some(bytes) = item.get(..size_of::<SlowCall>()) {
                // SAFETY: the slice is as long as the structure, which has only integers.
                calls.push(unsafe { bytes.as_ptr().cast::<SlowCall>().read_unaligned() });
            }
        }
        calls
    }
}

#[cfg(test)]
mod tests;
