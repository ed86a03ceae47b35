//! The maps, and how a program finds its entries in them.

use core::ops::{Deref, DerefMut};
use core::ptr::{addr_of_mut, read_volatile};

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::bpf_get_attach_cookie;
use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use evictscope_abi::{
    COUNTER_BYTES, CallStats, Cookie, EvictionStats, ExpireStats, Fault, FaultCounts, MAX_FUNCTIONS, MAX_SERVERS,
    Probe, ServerConfig, Updated, When,
};

use crate::order::{store_first, store_last};

/// By slot: what the programs need to know about a server.
#[map]
static CONFIGS: Array<ServerConfig> = Array::with_max_entries(MAX_SERVERS, BPF_F_MMAPABLE);

/// By slot and function: what is counted of all traced functions.
#[map]
static CALLS: Array<Updated<CallStats>> = Array::with_max_entries(MAX_SERVERS * MAX_FUNCTIONS, BPF_F_MMAPABLE);

/// By slot: what else is counted of eviction calls. Updated with the entry of the eviction call in
/// `CALLS`.
#[map]
static EVICTIONS: Array<EvictionStats> = Array::with_max_entries(MAX_SERVERS, BPF_F_MMAPABLE);

/// By slot: what else is counted of expire cycles. Updated with the entry of the expire cycle in `CALLS`.
#[map]
static EXPIRES: Array<ExpireStats> = Array::with_max_entries(MAX_SERVERS, BPF_F_MMAPABLE);

/// By slot: what went wrong.
#[map]
static FAULTS: Array<FaultCounts> = Array::with_max_entries(MAX_SERVERS, BPF_F_MMAPABLE);

/// How many words an allocator's counters can take up.
pub const COUNTER_WORDS: usize = COUNTER_BYTES / 8;

/// A copy of an allocator's counters.
pub type CounterWords = [u64; COUNTER_WORDS];

/// Scratch space, by slot.
#[map]
static COUNTERS: Array<CounterWords> = Array::with_max_entries(MAX_SERVERS, 0);

/// Why a program ends before it has done its work.
pub enum Error {
    /// The agent no longer watches this process.
    NotWatched,
    /// Something went wrong at the server with this slot.
    Fault(u32, Fault),
}

impl Error {
    /// Returns the error that a map has no entry for this slot.
    #[inline(always)]
    fn no_entry(slot: u32) -> Self {
        Self::Fault(slot, Fault::Map)
    }

    /// Counts it if it is a fault.
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
        // SAFETY: a valid entry. A process that is not the server may be hit at the same time; then one of the
        // two faults may not be counted.
        unsafe { (*counts)[fault as usize] += 1 };
    }
}

/// An update under way: until it is dropped, copies of the counters may be torn.
pub struct Update<T>(*mut Updated<T>);

impl<T> Update<T> {
    /// Begins an update.
    ///
    /// # Safety
    ///
    /// `counters` must be valid, and nothing else may refer to it until the update is dropped.
    #[inline(always)]
    unsafe fn begin(counters: *mut Updated<T>) -> Self {
        // SAFETY: the caller guarantees validity.
        unsafe {
            let begun = (*counters).begun.wrapping_add(1);
            store_first(addr_of_mut!((*counters).begun), begun);
        }
        Self(counters)
    }
}

impl<T> Deref for Update<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: guaranteed by `begin`'s caller.
        unsafe { &(*self.0).value }
    }
}

impl<T> DerefMut for Update<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: guaranteed by `begin`'s caller.
        unsafe { &mut (*self.0).value }
    }
}

impl<T> Drop for Update<T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: guaranteed by `begin`'s caller.
        unsafe { store_last(addr_of_mut!((*self.0).finished), (*self.0).begun) };
    }
}

/// What a uprobe program works on.
pub struct Hit {
    pub slot: u32,
    /// The function's number.
    function: u16,
    /// Which of the function's sites of its kind was hit.
    pub site: u8,
    /// At an exit or the inner site, which calls end there.
    pub when: When,
    pub config: &'static ServerConfig,
    /// What is counted of the function's calls.
    pub calls: Update<CallStats>,
}

impl Hit {
    /// Returns whether calls that begin now are counted.
    #[inline(always)]
    pub fn is_observed(&self) -> bool {
        let flag = self.config.is_observed.get(usize::from(self.function));
        // SAFETY: a field of a valid entry, which the agent may write at any time.
        flag.is_some_and(|flag| unsafe { read_volatile(flag) != 0 })
    }
}

/// Finds the traced function whose probe was hit, and counts the hit.
///
/// # Errors
///
/// Fails if the process is not the one that the probe was meant for: the kernel's own filter has been wrong for return
/// probes.
///
/// # Safety
///
/// Must be called once per run of a program: calls of one function of one server do not overlap (see
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
    let calls = CALLS.get_ptr_mut(cookie.calls()).ok_or(Error::no_entry(slot))?;
    // SAFETY: a valid entry; the caller guarantees that nothing else refers to it.
    let mut calls = unsafe { Update::begin(calls) };
    calls.hits[probe as usize] += 1;
    Ok(Hit { slot, function: cookie.function, site: cookie.site, when: cookie.when, config, calls })
}

/// Returns what the uprobe programs count of eviction calls. It is valid, and belongs only to them during an
/// update of the eviction call's [`CallStats`].
#[inline(always)]
pub fn eviction(slot: u32) -> Result<*mut EvictionStats, Error> {
    EVICTIONS.get_ptr_mut(slot).ok_or(Error::no_entry(slot))
}

/// Returns what the uprobe programs count of expire cycles. It is valid, and belongs only to them during an
/// update of the expire cycle's [`CallStats`].
#[inline(always)]
pub fn expire(slot: u32) -> Result<*mut ExpireStats, Error> {
    EXPIRES.get_ptr_mut(slot).ok_or(Error::no_entry(slot))
}

/// Returns where the programs copy the counters of the allocator. It is valid, and belongs only to them during an
/// update.
#[inline(always)]
pub fn counters(slot: u32) -> Result<*mut CounterWords, Error> {
    COUNTERS.get_ptr_mut(slot).ok_or(Error::no_entry(slot))
}
