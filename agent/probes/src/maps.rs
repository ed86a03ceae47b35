//! The maps of the programs: a slot for each server.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use aya::Ebpf;
use evictscope_abi::{
    CallStats, Cookie, EVICTION, EXPIRE, EvictionStats, ExpireStats, FaultCounts, MAX_FUNCTIONS, MAX_SERVERS,
    ServerConfig, Updated, When,
};
use evictscope_telemetry::Counted;

use super::error::ProbeError;
use super::mapped::{Mapped, whole};

/// The maps.
pub struct Maps {
    configs: Mapped<ServerConfig>,
    calls: Mapped<Updated<CallStats>>,
    evictions: Mapped<EvictionStats>,
    expires: Mapped<ExpireStats>,
    faults: Mapped<FaultCounts>,
}

/// Returns the index of a function's calls.
fn calls_index(slot: u32, function: u16) -> u32 {
    let cookie = Cookie { slot, function, site: 0, when: When::ALWAYS };
    cookie.calls()
}

impl Maps {
    /// Maps the maps of the loaded object.
    ///
    /// # Errors
    ///
    /// Fails if one is missing or the kernel refuses.
    pub fn of(ebpf: &Ebpf) -> Result<Self, ProbeError> {
        let map = |name| ebpf.map(name).ok_or(ProbeError::Object(name));
        Ok(Self {
            configs: Mapped::of(map("CONFIGS")?, MAX_SERVERS)?,
            calls: Mapped::of(map("CALLS")?, MAX_SERVERS * MAX_FUNCTIONS)?,
            evictions: Mapped::of(map("EVICTIONS")?, MAX_SERVERS)?,
            expires: Mapped::of(map("EXPIRES")?, MAX_SERVERS)?,
            faults: Mapped::of(map("FAULTS")?, MAX_SERVERS)?,
        })
    }

    /// Gives a slot to the server of `config`. Counting begins at zero.
    ///
    /// # Errors
    ///
    /// Fails if there is no such slot.
    pub fn fill(&self, slot: u32, config: ServerConfig) -> Result<(), ProbeError> {
        for function in (0..).take(MAX_FUNCTIONS as usize) {
            let calls = Updated::<CallStats>::default();
            self.calls.set(calls_index(slot, function), calls)?;
        }
        self.evictions.set(slot, EvictionStats::default())?;
        self.expires.set(slot, ExpireStats::default())?;
        self.faults.set(slot, FaultCounts::default())?;
        self.configs.set(slot, config)
    }

    /// Switches off a slot: from now on nothing is counted in it.
    pub fn switch_off(&self, slot: u32) {
        if let Ok(config) = self.configs.entry(slot) {
            // SAFETY: a field of a valid entry, an integer that programs read whole.
            unsafe { AtomicU32::from_ptr(&raw mut (*config).tgid) }.store(0, Ordering::SeqCst);
        }
    }

    /// Sets whether calls of a function that begin from now on are counted.
    pub fn observe(&self, slot: u32, function: u16, is_observed: bool) {
        let function = usize::from(function);
        if let Ok(config) = self.configs.entry(slot)
            && function < MAX_FUNCTIONS as usize
        {
            // SAFETY: as above.
            let flag = unsafe {
                let flags = (&raw mut (*config).is_observed).cast::<u32>();
                AtomicU32::from_ptr(flags.add(function))
            };
            flag.store(u32::from(is_observed), Ordering::SeqCst);
        }
    }

    /// Returns whether an inner call of a function is under way.
    pub fn is_inside(&self, slot: u32, function: u16) -> bool {
        let since = self.inner_since(slot, function);
        since.is_some_and(|since| since.load(Ordering::SeqCst) != 0)
    }

    /// Gives up a function's inner call that is under way, if there is one.
    pub fn give_up(&self, slot: u32, function: u16) {
        if let Some(since) = self.inner_since(slot, function) {
            since.store(0, Ordering::SeqCst);
        }
    }

    /// Returns when the function's inner call that is under way began, nanoseconds; 0 if there is none.
    fn inner_since(&self, slot: u32, function: u16) -> Option<&AtomicU64> {
        let calls = self.calls.entry(calls_index(slot, function)).ok()?;
        // SAFETY: a field of a valid entry, an integer that programs write whole.
        Some(unsafe { AtomicU64::from_ptr(&raw mut (*calls).value.inner_since_ns) })
    }

    /// Copies what was counted in a slot, for the first `functions` traced functions. Leaves unchanged what
    /// cannot be copied whole because it is being updated all the time.
    pub fn read(&self, slot: u32, functions: u16, to: &mut Counted) {
        to.calls.resize(usize::from(functions), CallStats::default());
        for (function, place) in (0..functions).zip(&mut to.calls) {
            let Ok(calls) = self.calls.entry(calls_index(slot, function)) else {
                continue;
            };
            let lock = calls.cast_const();
            // SAFETY: valid entries of integers; programs update both under the lock of the first.
            unsafe {
                match function {
                    EVICTION => {
                        let others = self.evictions.entry(slot);
                        copy_both(lock, others, place, &mut to.evictions);
                    }
                    EXPIRE => {
                        let others = self.expires.entry(slot);
                        copy_both(lock, others, place, &mut to.expires);
                    }
                    _ => *place = whole(lock, || value(lock)).unwrap_or(*place),
                }
            }
        }
        if let Ok(faults) = self.faults.entry(slot) {
            // SAFETY: a valid entry of integers, each of which is right by itself.
            to.faults = unsafe { faults.read_volatile() };
        }
    }
}

/// Copies what is counted of a function's calls.
///
/// # Safety
///
/// `lock` is valid.
unsafe fn value(lock: *const Updated<CallStats>) -> CallStats {
    // SAFETY: the caller guarantees validity.
    unsafe { (&raw const (*lock).value).read_volatile() }
}

/// Copies what is counted of a function's calls and what else is counted of them, or neither if they cannot
/// be copied whole together.
///
/// # Safety
///
/// `lock` and `others` are valid, and `others` is updated under `lock`.
unsafe fn copy_both<T>(
    lock: *const Updated<CallStats>,
    others: Result<*mut T, ProbeError>,
    to: &mut CallStats,
    to_others: &mut T,
) {
    let Ok(others) = others else {
        return;
    };
    // SAFETY: the caller guarantees validity.
    let both = unsafe { whole(lock, || (value(lock), others.read_volatile())) };
    if let Some(both) = both {
        (*to, *to_others) = both;
    }
}
