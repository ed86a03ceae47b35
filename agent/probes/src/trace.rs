//! The probes of `evictscope trace`: the programs that time the calls of one function, of an object of their own.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use aya::Pod;
use aya::maps::{HashMap, Map, MapData, MapError, RingBuf};
use evictscope_abi::{
    Cookie, EVICTION, ServerConfig, SlowCall, TRACE_BUCKETS, TraceConfig, TraceShared,
    TracedThread, When,
};
use evictscope_plan::{FileOffset, ProcessAddress};

use super::calibration::time;
use super::error::ProbeError;
use super::keeper::{Leaving, Link, LinkKeeper};
use super::loading::load;
use super::mapped::Mapped;
use super::own::{FUNCTIONS, Function, own_sites};
use super::programs::Programs;
use super::target::{Own, Target};

const ENTER: &str = "trace_enter";
const RETURN: &str = "trace_return";
const EVICTION_BEGINS: &str = "trace_eviction";
const CYCLE: &str = "trace_cycle";

/// How much more a hit costs in a server than in a loop that does nothing else, whose code and data stay in the caches: on
/// Debian's redis-server 7.0.15 it was 1.23 times as much at `performEvictions` and 1.48 times at `getCommand`.
const IN_A_SERVER: f64 = 1.5;

/// What a thread's entry in the map is.
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
    server: Mapped<ServerConfig>,
    threads: HashMap<MapData, u32, Thread>,
    slow: RingBuf<MapData>,
}

/// What hits cost on this machine, nanoseconds of the thread's time.
#[derive(Clone, Copy, Debug)]
pub struct TraceCosts {
    /// A call that is timed: a hit at its entry, and one at its return.
    pub call_ns: f64,
    /// A hit where evicting calls begin; at an expire cycle it is less.
    pub cycle_ns: f64,
}

/// What was counted until a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceCounts {
    /// Hits at the entry, counted or not.
    pub entry_hits: u64,
    /// Calls that began while they were observed.
    pub begun: u64,
    /// Calls that the function made to itself inside of one that is counted.
    pub nested: u64,
    /// Calls that were not seen to end.
    pub lost: u64,
    /// Slow calls that were not reported.
    pub slow_lost: u64,
    /// Hits where evicting calls and expire cycles begin.
    pub cycle_hits: u64,
    /// The longest call, nanoseconds.
    pub longest_ns: u64,
    /// Sum of all durations, nanoseconds.
    pub sum_ns: u64,
    /// Calls that ended, by the bucket of their duration.
    pub durations: [u64; TRACE_BUCKETS],
    /// Whether there was no room for a thread, so that its calls are missing.
    pub is_crowded: bool,
}

impl TraceCounts {
    /// Nothing.
    pub const NONE: Self = Self {
        entry_hits: 0,
        begun: 0,
        nested: 0,
        lost: 0,
        slow_lost: 0,
        cycle_hits: 0,
        longest_ns: 0,
        sum_ns: 0,
        durations: [0; TRACE_BUCKETS],
        is_crowded: false,
    };

    /// Returns how many calls ended.
    pub fn ended(&self) -> u64 {
        self.durations.iter().sum()
    }
}

/// What to trace.
pub struct Traced {
    /// The process.
    pub pid: u32,
    /// The executable that it runs, open.
    pub exe: File,
    /// Where the entry probe and the return probe go.
    pub entry: FileOffset,
    /// Where evicting calls and expire cycles begin, with the number of the traced function.
    pub cycles: Vec<(FileOffset, u16)>,
    /// What is read at the goal site.
    pub server: ServerConfig,
    /// Where the server counts evicted keys.
    pub evicted_keys: Option<ProcessAddress>,
    /// Calls that take longer are reported one by one, nanoseconds.
    pub slower_ns: Option<u64>,
}

/// The probes on one function. Dropping it takes them off, for which it waits.
pub struct Tracing {
    tracer: Tracer,
    traced: Traced,
    placed: Vec<Link>,
    generation: u64,
    /// Probes that are being taken off.
    leaving: Vec<Leaving>,
}

impl Tracer {
    /// Loads the programs into the kernel.
    ///
    /// # Errors
    ///
    /// Where the kernel does not allow it or refuses a program.
    pub fn load() -> Result<Self, ProbeError> {
        Self::load_for(&LinkKeeper::start()?, true)
    }

    /// Does the same; `multi` tells whether uprobe_multi links are used where the kernel has them.
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
        let server = Mapped::of(map("TRACE_SERVER")?, 1)?;
        let mut take = |name| ebpf.take_map(name).ok_or(ProbeError::Object(name));
        let unusable = |_: MapError| ProbeError::Object("map of another kind");
        let threads: Map = take("THREADS")?;
        let slow: Map = take("SLOW_CALLS")?;
        Ok(Self {
            config,
            shared,
            server,
            threads: threads.try_into().map_err(unusable)?,
            slow: slow.try_into().map_err(unusable)?,
            programs: match multi {
                Some(programs) => programs,
                None => Programs::by_perf_events(keeper, ebpf, names)?,
            },
        })
    }

    /// Measures what hits cost, on functions of this very process. `is_emulated` tells whether the kernel emulates the
    /// instruction at the entry of the function to trace, and `reads` whether evicted keys are read there.
    ///
    /// # Errors
    ///
    /// Where the kernel does not allow it.
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
        self.threads
            .remove(&thread)
            .map_err(|_| ProbeError::OtherPidNamespace)?;
        self.set_config(TraceConfig::default())?;
        Ok(TraceCosts { call_ns, cycle_ns })
    }

    /// Returns by how many nanoseconds these programs make a call of a function in a server longer, at most.
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
        let cookie = |function: u16| Cookie {
            slot: 0,
            function,
            site: 0,
            when: When::ALWAYS,
        };
        let sites = sites.iter().map(|(site, number)| (*site, cookie(*number)));
        let sites: Vec<(FileOffset, Cookie)> = sites.collect();
        let programs = &self.programs;
        programs.attach_program(program, program == RETURN, target, &sites)
    }

    fn set_config(&self, config: TraceConfig) -> Result<(), ProbeError> {
        self.config.set(0, config)
    }

    /// Says whether calls that begin from now on are to be counted.
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

    /// Begins to trace: nothing is probed yet.
    ///
    /// # Errors
    ///
    /// Only where the built object lacks something.
    pub fn trace(self, traced: Traced) -> Result<Tracing, ProbeError> {
        self.set_config(TraceConfig {
            tgid: traced.pid,
            is_observed: 0,
            generation: 0,
            slower_ns: traced.slower_ns.unwrap_or(u64::MAX),
            evicted_keys: traced.evicted_keys.map_or(0, ProcessAddress::get),
        })?;
        self.shared.set(0, TraceShared::NEW)?;
        self.server.set(0, traced.server)?;
        Ok(Tracing {
            tracer: self,
            traced,
            placed: Vec::new(),
            generation: 0,
            leaving: Vec::new(),
        })
    }

    /// Returns what was counted until now.
    fn counts(&self) -> TraceCounts {
        let mut counts = TraceCounts::NONE;
        // One that is added meanwhile may be missed until the next time.
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
                // SAFETY: as many bytes as the structure has, all integers.
                calls.push(unsafe { bytes.as_ptr().cast::<SlowCall>().read_unaligned() });
            }
        }
        calls
    }
}

impl Tracing {
    /// Places the probes, once those that were taken off are gone. Calls that begin are counted from then on.
    ///
    /// # Errors
    ///
    /// Where the process is gone, or the kernel refuses.
    pub fn place(&mut self) -> Result<(), ProbeError> {
        // Both together would count each call twice.
        self.settle();
        let Traced {
            pid,
            exe,
            entry,
            cycles,
            ..
        } = &self.traced;
        // The very file in which the function was found, whatever the process runs by now.
        let target = Target {
            pid: *pid,
            exe: exe.as_fd(),
        };
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
        self.placed = placed;
        self.tracer.observe(true);
        Ok(())
    }

    /// Counts no call that begins from now on; those that are under way are still seen to end.
    pub fn stop_observing(&self) {
        self.tracer.observe(false);
    }

    /// Takes the probes off in the background. Counts calls no more that are under way.
    pub fn take_off(&mut self) {
        self.tracer.observe(false);
        // What threads remember of them means nothing when probes are placed again.
        self.generation += 1;
        self.tracer.set_generation(self.generation);
        self.leaving
            .extend(self.placed.drain(..).map(Link::take_off));
    }

    /// Waits until the probes are gone that were taken off.
    pub fn settle(&mut self) {
        // Dropping each waits.
        self.leaving.clear();
    }

    /// Tells whether the keeper has ended. Then no probe is left.
    pub fn has_lost_keeper(&self) -> bool {
        self.tracer.programs.keeper().has_failed()
    }

    /// Returns at how many sites probes are.
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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use evictscope_abi::{ServerConfig, TraceConfig};

    use super::{ENTER, LinkKeeper, Own, RETURN, TraceCounts, Traced, Tracer};
    use crate::own::{alone, own_offsets};

    // Calls itself as often as it is told; and one that returns to its caller's caller where it is told 0, as a longjmp
    // does.
    std::arch::global_asm!(
        ".pushsection .text.evictscope_test, \"ax\", @progbits",
        ".globl evictscope_test_recursive",
        "evictscope_test_recursive:",
        "push rbx",
        "test edi, edi",
        "jz 2f",
        "dec edi",
        "call evictscope_test_recursive",
        "2:",
        "pop rbx",
        "ret",
        ".globl evictscope_test_leaving",
        "evictscope_test_leaving:",
        "push rbx",
        "pop rbx",
        "test edi, edi",
        "jnz 2f",
        "add rsp, 8",
        "2:",
        "ret",
        ".globl evictscope_test_caller",
        "evictscope_test_caller:",
        "call evictscope_test_leaving",
        "ret",
        ".popsection",
    );

    unsafe extern "C" {
        fn evictscope_test_recursive(times: u32);
        fn evictscope_test_leaving(stay: u32);
        fn evictscope_test_caller(stay: u32);
    }

    /// Traces a function of this process while `call` runs. Returns what was counted, and how long each slow call took.
    fn traced(
        multi: bool,
        function: usize,
        slower_ns: u64,
        call: impl Fn(),
    ) -> anyhow::Result<(TraceCounts, Vec<u64>)> {
        let _alone = alone();
        let mut tracer = Tracer::load_for(&LinkKeeper::in_thread()?, multi)?;
        let own = Own::open()?;
        let [site] = own_offsets([function as u64])?;
        let mut links = Vec::new();
        for program in [RETURN, ENTER] {
            links.extend(tracer.attach(program, own.target(), &[(site, 0)])?);
        }
        tracer.set_config(TraceConfig {
            tgid: std::process::id(),
            is_observed: 1,
            generation: 1,
            slower_ns,
            evicted_keys: 0,
        })?;
        call();
        let slow = tracer.slow_calls().into_iter();
        let slow = slow.map(|call| call.duration_ns).collect();
        Ok((tracer.counts(), slow))
    }

    fn both(test: impl Fn(bool) -> anyhow::Result<()>) -> anyhow::Result<()> {
        test(true)?;
        test(false)
    }

    #[test]
    #[ignore = "needs root and BPF"]
    fn the_outermost_call_of_each_thread_is_counted() -> anyhow::Result<()> {
        const CALLS: u64 = 200;
        const THREADS: u64 = 4;
        both(|multi| {
            let function = evictscope_test_recursive as *const () as usize;
            let call = || {
                std::thread::scope(|scope| {
                    for _ in 0..THREADS {
                        scope.spawn(|| {
                            for _ in 0..CALLS {
                                // SAFETY: it calls itself three times, and changes edi only.
                                unsafe { evictscope_test_recursive(3) };
                            }
                        });
                    }
                });
            };
            let (counts, slow) = traced(multi, function, 0, call)?;
            assert_eq!(counts.ended(), THREADS * CALLS);
            assert_eq!(counts.begun, THREADS * CALLS);
            assert_eq!(counts.nested, 3 * THREADS * CALLS);
            assert_eq!((counts.lost, counts.slow_lost), (0, 0));
            assert_eq!(slow.len() as u64, THREADS * CALLS);
            assert_eq!(counts.sum_ns, slow.iter().sum::<u64>());
            assert_eq!(Some(counts.longest_ns), slow.iter().copied().max());
            Ok(())
        })
    }

    #[test]
    #[ignore = "needs root and BPF"]
    fn a_call_that_never_returns_is_not_counted() -> anyhow::Result<()> {
        both(|multi| {
            let function = evictscope_test_leaving as *const () as usize;
            let call = || {
                for stay in [1, 0, 1, 0, 0, 1] {
                    // SAFETY: both change nothing but the flags, and leave the stack as it was.
                    unsafe { evictscope_test_caller(stay) };
                }
            };
            let (counts, _) = traced(multi, function, u64::MAX, call)?;
            assert_eq!((counts.begun, counts.ended(), counts.lost), (6, 3, 3));
            Ok(())
        })
    }

    #[test]
    #[ignore = "needs root and BPF"]
    fn probes_that_are_placed_again_are_hit_once_by_each_call() -> anyhow::Result<()> {
        const TIMES: u64 = 10;
        const CALLS: u64 = 100;
        both(|multi| {
            let _alone = alone();
            let [entry] = own_offsets([evictscope_test_recursive as *const () as u64])?;
            let tracer = Tracer::load_for(&LinkKeeper::in_thread()?, multi)?;
            let mut tracing = tracer.trace(Traced {
                pid: std::process::id(),
                exe: File::open("/proc/self/exe")?,
                entry,
                cycles: Vec::new(),
                server: ServerConfig::OFF,
                evicted_keys: None,
                slower_ns: None,
            })?;
            for _ in 0..TIMES {
                tracing.place()?;
                for _ in 0..CALLS {
                    // SAFETY: it calls itself never, and changes nothing but the flags.
                    unsafe { evictscope_test_recursive(0) };
                }
                tracing.take_off();
            }
            let counts = tracing.counts();
            let all = TIMES * CALLS;
            assert_eq!((counts.entry_hits, counts.begun), (all, all));
            assert_eq!((counts.ended(), counts.lost), (all, 0));
            Ok(())
        })
    }

    #[test]
    #[ignore = "needs root and BPF"]
    fn more_slow_calls_than_there_is_room_for_are_counted_as_lost() -> anyhow::Result<()> {
        const CALLS: u64 = 20_000;
        let function = evictscope_test_recursive as *const () as usize;
        let call = || {
            for _ in 0..CALLS {
                // SAFETY: as above.
                unsafe { evictscope_test_recursive(0) };
            }
        };
        let (counts, slow) = traced(true, function, 0, call)?;
        assert_eq!(counts.ended(), CALLS);
        assert!(counts.slow_lost > 0 && !slow.is_empty(), "{}", slow.len());
        assert_eq!(counts.slow_lost + slow.len() as u64, CALLS);
        Ok(())
    }

    #[test]
    #[ignore = "needs root and BPF"]
    fn what_costs_are_measured_on_leaves_no_count() -> anyhow::Result<()> {
        let _alone = alone();
        let mut tracer = Tracer::load_for(&LinkKeeper::in_thread()?, true)?;
        let costs = tracer.calibrate(true, true)?;
        assert!(costs.call_ns > 0.0 && costs.cycle_ns > 0.0, "{costs:?}");
        assert_eq!(tracer.counts().entry_hits, 0);
        Ok(())
    }
}
