//! The maps, and how a program finds its slot in them.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, generated::bpf_get_attach_cookie};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap};
use evictscope_abi::{
    BinRing, COUNTER_BYTES, Cookie, EvictionStats, MAX_SERVERS, SampleStats, ServerConfig,
};

/// By slot: what the programs need to know of a server.
#[map]
static CONFIGS: Array<ServerConfig> = Array::with_max_entries(MAX_SERVERS, 0);

/// By slot: what the uprobe programs count.
#[map]
static EVICTIONS: Array<EvictionStats> = Array::with_max_entries(MAX_SERVERS, 0);

/// By slot: what the sampling program counts.
#[map]
static SAMPLES: Array<SampleStats> = Array::with_max_entries(MAX_SERVERS, 0);

/// By slot: time in evicting calls, in bins; written by the uprobe programs. Apart from what they
/// count, as it is large and read less often.
#[map]
static EVICTION_BINS: Array<BinRing> = Array::with_max_entries(MAX_SERVERS, 0);

/// By slot: CPU time of the main thread by activity, in bins; written by the sampling program.
#[map]
static CPU_BINS: Array<[BinRing; 2]> = Array::with_max_entries(MAX_SERVERS, 0);

/// Main thread id → slot, as perf events carry no cookie.
#[map]
static SLOTS: HashMap<u32, u32> = HashMap::with_max_entries(MAX_SERVERS, 0);

/// How many words an allocator's counters can take up.
pub const COUNTER_WORDS: usize = COUNTER_BYTES / 8;

/// A copy of an allocator's counters.
pub type Counters = [u64; COUNTER_WORDS];

/// Scratch space: by slot, one for the uprobe programs and one for the sampling program, which can
/// interrupt them.
#[map]
static COUNTERS: Array<[Counters; 2]> = Array::with_max_entries(MAX_SERVERS, 0);

/// What a uprobe program works on.
pub struct Hit {
    /// The server's slot.
    pub slot: u32,
    /// Which of the plan's sites of its kind was hit.
    pub site: u32,
    /// The server's configuration.
    pub config: &'static ServerConfig,
    /// The server's counters.
    pub stats: &'static mut EvictionStats,
}

/// What the sampling program works on.
pub struct Sample {
    /// The server's slot.
    pub slot: u32,
    /// The server's configuration.
    pub config: &'static ServerConfig,
    /// The server's counters.
    pub stats: &'static mut SampleStats,
    /// Whether the main thread is in an evicting call.
    pub evicting: bool,
    /// Monotonic time at which the last evicting call ended, nanoseconds.
    pub last_evicting_ns: u64,
}

/// Where the uprobe programs copy the counters of the allocator of a server.
#[inline(always)]
pub fn counters_of_hit(slot: u32) -> Option<&'static mut Counters> {
    // SAFETY: as of a slot's `EvictionStats`: nothing else refers to it while the program runs.
    COUNTERS
        .get_ptr_mut(slot)
        .map(|both| unsafe { &mut (*both)[0] })
}

/// Where the sampling program copies the counters of the allocator of a server.
#[inline(always)]
pub fn counters_of_sample(slot: u32) -> Option<&'static mut Counters> {
    // SAFETY: one thread is sampled by one event, which does not interrupt itself.
    COUNTERS
        .get_ptr_mut(slot)
        .map(|both| unsafe { &mut (*both)[1] })
}

/// Where the uprobe programs count a server's time in evicting calls.
#[inline(always)]
pub fn eviction_bins(slot: u32) -> Option<&'static mut BinRing> {
    // SAFETY: as of a slot's `EvictionStats`: nothing else refers to it while the program runs.
    EVICTION_BINS
        .get_ptr_mut(slot)
        .map(|bins| unsafe { &mut *bins })
}

/// Where the sampling program counts the CPU time of a server's main thread.
#[inline(always)]
pub fn cpu_bins(slot: u32) -> Option<&'static mut [BinRing; 2]> {
    // SAFETY: one thread is sampled by one event, which does not interrupt itself.
    CPU_BINS.get_ptr_mut(slot).map(|bins| unsafe { &mut *bins })
}

/// The slot of the server whose probe was hit; `None` where the process is another than the one
/// the probe was meant for (the kernel's own filter has been wrong for return probes).
#[inline(always)]
pub fn hit(ctx: &impl EbpfContext) -> Option<Hit> {
    // SAFETY: the context is the one that the program was called with.
    let cookie = Cookie::decode(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) });
    let config = CONFIGS.get(cookie.slot)?;
    if config.tgid != (bpf_get_current_pid_tgid() >> 32) as u32 {
        return None;
    }
    // SAFETY: eviction calls of one server do not overlap (see `stats`), so nothing else refers to
    // this slot while the program runs; the agent only copies it.
    let stats = unsafe { &mut *EVICTIONS.get_ptr_mut(cookie.slot)? };
    Some(Hit {
        slot: cookie.slot,
        site: cookie.site,
        config,
        stats,
    })
}

/// The slot of the server whose main thread is running.
#[inline(always)]
pub fn sample() -> Option<Sample> {
    let thread = bpf_get_current_pid_tgid();
    // SAFETY: the value is a plain number that the agent replaces as a whole.
    let slot = unsafe { *SLOTS.get(thread as u32)? };
    let config = CONFIGS.get(slot)?;
    if config.tgid != (thread >> 32) as u32 {
        return None;
    }
    // SAFETY: one thread is sampled by one event, which does not interrupt itself.
    let stats = unsafe { &mut *SAMPLES.get_ptr_mut(slot)? };
    let evictions = EVICTIONS.get(slot)?;
    Some(Sample {
        slot,
        config,
        stats,
        evicting: evictions.evicting_since_ns != 0,
        last_evicting_ns: evictions.last_evicting_ns,
    })
}
