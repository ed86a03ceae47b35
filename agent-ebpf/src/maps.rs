//! The maps, and how a program finds its entries in them.

use core::ops::{Deref, DerefMut};
use core::ptr::{addr_of_mut, write_volatile};

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, generated::bpf_get_attach_cookie};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, PerCpuArray};
use evictscope_abi::{
    BinRing, COUNTER_BYTES, CallStats, Cookie, EVICTION, EvictionStats, Fault, FaultCounts,
    MAX_FUNCTIONS, MAX_SERVERS, Probe, SampleStats, ServerConfig, Updated,
};

/// By slot: what the programs need to know of a server.
#[map]
static CONFIGS: Array<ServerConfig> = Array::with_max_entries(MAX_SERVERS, 0);

/// By slot and function: what the uprobe programs count of all traced functions.
#[map]
static CALLS: Array<Updated<CallStats>> = Array::with_max_entries(MAX_SERVERS * MAX_FUNCTIONS, 0);

/// By slot: what else the uprobe programs count of eviction calls. Updated with the entry of the
/// eviction call in `CALLS`.
#[map]
static EVICTIONS: Array<EvictionStats> = Array::with_max_entries(MAX_SERVERS, 0);

/// By slot: what the sampling program counts.
#[map]
static SAMPLES: Array<Updated<SampleStats>> = Array::with_max_entries(MAX_SERVERS, 0);

/// By slot: what went wrong, in any program. By CPU, as a process may be hit that is not the server.
#[map]
static FAULTS: PerCpuArray<FaultCounts> = PerCpuArray::with_max_entries(MAX_SERVERS, 0);

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

/// Why a program ends before it has done its work.
pub enum Error {
    /// The agent does not watch this process any more.
    NotWatched,
    /// Something went wrong at the server with this slot.
    Fault(u32, Fault),
}

impl Error {
    /// The map that was looked into has no entry for this slot.
    #[inline(always)]
    fn no_entry(slot: u32) -> Self {
        Self::Fault(slot, Fault::Map)
    }

    /// Counts it, where it is a fault.
    #[inline(always)]
    pub fn count(self) {
        if let Self::Fault(slot, fault) = self {
            count_fault(slot, fault);
        }
    }
}

/// Counts a fault of the server with this slot.
#[inline(always)]
pub fn count_fault(slot: u32, fault: Fault) {
    if let Some(counts) = FAULTS.get_ptr_mut(slot) {
        // SAFETY: a valid entry of this CPU's own. The sampling program can interrupt the others here,
        // and then one of the two faults is not counted.
        unsafe { (*counts)[fault as usize] += 1 };
    }
}

/// An update under way: the counters are torn for those who copy them, until this is dropped.
pub struct Update<T>(*mut Updated<T>);

impl<T> Update<T> {
    /// Begins an update.
    ///
    /// # Safety
    ///
    /// `counters` is valid, and nothing else refers to it until the update is dropped.
    #[inline(always)]
    unsafe fn begin(counters: *mut Updated<T>) -> Self {
        // SAFETY: valid, says the caller; volatile keeps this before the updates that follow.
        unsafe {
            let begun = (*counters).begun.wrapping_add(1);
            write_volatile(addr_of_mut!((*counters).begun), begun);
        }
        Self(counters)
    }
}

impl<T> Deref for Update<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: as `begin` was promised.
        unsafe { &(*self.0).value }
    }
}

impl<T> DerefMut for Update<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as `begin` was promised.
        unsafe { &mut (*self.0).value }
    }
}

impl<T> Drop for Update<T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: as `begin` was promised; volatile keeps this after the updates before it.
        unsafe { write_volatile(addr_of_mut!((*self.0).finished), (*self.0).begun) };
    }
}

/// What a uprobe program works on.
pub struct Hit {
    /// The server's slot.
    pub slot: u32,
    /// Which of the function's sites of its kind was hit.
    pub site: u16,
    /// The server's configuration.
    pub config: &'static ServerConfig,
    /// What is counted of the function's calls.
    pub calls: Update<CallStats>,
}

/// Finds the traced function whose probe was hit, and counts the hit.
///
/// # Errors
///
/// Where the process is another than the one that the probe was meant for: the kernel's own filter has
/// been wrong for return probes.
///
/// # Safety
///
/// To be called once in a run of a program: calls of one function of one server do not overlap (see
/// `evictscope_abi::CallStats`), so nothing else refers to its counters then. The agent only copies them.
#[inline(always)]
pub unsafe fn hit(ctx: &impl EbpfContext, probe: Probe) -> Result<Hit, Error> {
    // SAFETY: the context is the one that the program was called with.
    let cookie = Cookie::decode(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) });
    let slot = cookie.slot;
    let config = CONFIGS.get(slot).ok_or(Error::no_entry(slot))?;
    if config.tgid != (bpf_get_current_pid_tgid() >> 32) as u32 {
        return Err(match config.tgid {
            0 => Error::NotWatched,
            _ => Error::Fault(slot, Fault::OtherProcess),
        });
    }
    let calls = CALLS
        .get_ptr_mut(cookie.calls())
        .ok_or(Error::no_entry(slot))?;
    // SAFETY: a valid entry, and nothing else refers to it, says the caller.
    let mut calls = unsafe { Update::begin(calls) };
    calls.hits[probe as usize] += 1;
    Ok(Hit {
        slot,
        site: cookie.site,
        config,
        calls,
    })
}

/// What the sampling program works on.
pub struct Sample {
    /// The server's slot.
    pub slot: u32,
    /// The server's configuration.
    pub config: &'static ServerConfig,
    /// What is counted.
    pub stats: Update<SampleStats>,
    /// Whether the main thread is in an evicting call.
    pub evicting: bool,
    /// Monotonic time at which the last evicting call ended, nanoseconds.
    pub last_evicting_ns: u64,
}

/// Finds the server whose main thread is running, and counts the sample.
///
/// # Errors
///
/// Where no server is watched by that thread's id.
///
/// # Safety
///
/// To be called once in a run of the sampling program: one thread is sampled by one event, which does
/// not interrupt itself, so nothing else refers to its counters then.
#[inline(always)]
pub unsafe fn sample() -> Result<Sample, Error> {
    let thread = bpf_get_current_pid_tgid();
    // SAFETY: the value is a plain number that the agent replaces as a whole.
    let slot = *unsafe { SLOTS.get(thread as u32) }.ok_or(Error::NotWatched)?;
    let config = CONFIGS.get(slot).ok_or(Error::no_entry(slot))?;
    if config.tgid != (thread >> 32) as u32 {
        return Err(Error::NotWatched);
    }
    let eviction = Cookie {
        slot,
        function: EVICTION,
        site: 0,
    };
    let eviction = CALLS.get(eviction.calls()).ok_or(Error::no_entry(slot))?;
    let stats = SAMPLES.get_ptr_mut(slot).ok_or(Error::no_entry(slot))?;
    // SAFETY: a valid entry, and nothing else refers to it, says the caller.
    let mut stats = unsafe { Update::begin(stats) };
    stats.hits += 1;
    Ok(Sample {
        slot,
        config,
        stats,
        evicting: eviction.value.inner_since_ns != 0,
        last_evicting_ns: eviction.value.last_inner_ns,
    })
}

/// Returns what the uprobe programs count of eviction calls. Valid, and theirs alone during an update
/// of the eviction call's [`CallStats`].
#[inline(always)]
pub fn eviction(slot: u32) -> Result<*mut EvictionStats, Error> {
    EVICTIONS.get_ptr_mut(slot).ok_or(Error::no_entry(slot))
}

/// Returns where the uprobe programs copy the counters of the allocator. Valid, and theirs alone during
/// an update.
#[inline(always)]
pub fn counters_of_hit(slot: u32) -> Result<*mut Counters, Error> {
    let both = COUNTERS.get_ptr_mut(slot).ok_or(Error::no_entry(slot))?;
    // SAFETY: a field of a valid entry.
    Ok(unsafe { addr_of_mut!((*both)[0]) })
}

/// Returns where the sampling program copies the counters of the allocator. Valid, and its alone during
/// an update.
#[inline(always)]
pub fn counters_of_sample(slot: u32) -> Result<*mut Counters, Error> {
    let both = COUNTERS.get_ptr_mut(slot).ok_or(Error::no_entry(slot))?;
    // SAFETY: a field of a valid entry.
    Ok(unsafe { addr_of_mut!((*both)[1]) })
}

/// Returns where the uprobe programs count the time in evicting calls. Valid, and theirs alone during an
/// update.
#[inline(always)]
pub fn eviction_bins(slot: u32) -> Result<*mut BinRing, Error> {
    EVICTION_BINS.get_ptr_mut(slot).ok_or(Error::no_entry(slot))
}

/// Returns where the sampling program counts the CPU time of the main thread. Valid, and its alone
/// during an update.
#[inline(always)]
pub fn cpu_bins(slot: u32) -> Result<*mut [BinRing; 2], Error> {
    CPU_BINS.get_ptr_mut(slot).ok_or(Error::no_entry(slot))
}
