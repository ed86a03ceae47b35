//! The maps of the programs, with a slot for each server: mapped into memory, and copied whole while the programs
//! update them.

use std::marker::PhantomData;
use std::os::fd::AsFd as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use aya::Ebpf;
use aya::maps::Map;
use evictscope_abi::{
    CallStats, Cookie, EVICTION, EXPIRE, EvictionStats, ExpireStats, FaultCounts, MAX_FUNCTIONS, MAX_SERVERS,
    ServerConfig, Updated, When,
};
use evictscope_telemetry::Counted;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::error::ProbeError;
use super::lock::whole;

pub struct Maps {
    configs: Mapped<ServerConfig>,
    calls: Mapped<Updated<CallStats>>,
    evictions: Mapped<EvictionStats>,
    expires: Mapped<ExpireStats>,
    faults: Mapped<FaultCounts>,
}

fn calls_index(slot: u32, function: u16) -> u32 {
    Cookie { slot, function, site: 0, when: When::ALWAYS }.calls()
}

impl Maps {
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
    pub fn fill(&self, slot: u32, config: ServerConfig) -> Result<(), ProbeError> {
        for function in (0..).take(MAX_FUNCTIONS as usize) {
            self.calls.set(calls_index(slot, function), Updated::default())?;
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

    pub fn observe(&self, slot: u32, function: u16, is_observed: bool) {
        if let Ok(config) = self.configs.entry(slot)
            && u32::from(function) < MAX_FUNCTIONS
        {
            // SAFETY: as above, one of the flags.
            let flag = unsafe { AtomicU32::from_ptr(&raw mut (*config).is_observed[usize::from(function)]) };
            flag.store(u32::from(is_observed), Ordering::SeqCst);
        }
    }

    pub fn is_inside(&self, slot: u32, function: u16) -> bool {
        self.inner_since(slot, function).is_some_and(|since| since.load(Ordering::SeqCst) != 0)
    }

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
            let Ok(calls) = self.calls.entry(calls_index(slot, function)) else { continue };
            let lock = calls.cast_const();
            // SAFETY: valid entries of integers; programs update both under the lock of the first.
            unsafe {
                match function {
                    EVICTION => copy_both(lock, self.evictions.entry(slot), place, &mut to.evictions),
                    EXPIRE => copy_both(lock, self.expires.entry(slot), place, &mut to.expires),
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
    let Ok(others) = others else { return };
    // SAFETY: the caller guarantees validity.
    if let Some(both) = unsafe { whole(lock, || (value(lock), others.read_volatile())) } {
        (*to, *to_others) = both;
    }
}

/// The entries of an array map, each a `T`. Programs read and write them at any time.
pub struct Mapped<T> {
    entries: NonNull<T>,
    len: usize,
    _of: PhantomData<T>,
}

// SAFETY: threads, like the programs, reach the entries only through raw pointers.
unsafe impl<T: Send> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Mapped<T> {}

impl<T: Copy> Mapped<T> {
    pub fn of(map: &Map, len: u32) -> Result<Self, ProbeError> {
        let Map::Array(map) = map else { return Err(ProbeError::Object("array that can be mapped")) };
        let (len, fd) = (len as usize, map.fd().as_fd());
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let entries = unsafe { mmap(std::ptr::null_mut(), len * size_of::<T>(), protection, flags, fd, 0) }
            .map_err(|error| ProbeError::Mapping(error.into()))?;
        Ok(Self { entries: NonNull::new(entries.cast()).ok_or(ProbeError::Object("map"))?, len, _of: PhantomData })
    }

    /// Returns the address of an entry, which is valid as long as `self` is.
    pub fn entry(&self, index: u32) -> Result<*mut T, ProbeError> {
        let index = index as usize;
        if index >= self.len {
            return Err(ProbeError::Object("map entry for another server"));
        }
        // SAFETY: within the mapping.
        Ok(unsafe { self.entries.as_ptr().add(index) })
    }

    /// Writes an entry that no program uses.
    pub fn set(&self, index: u32, value: T) -> Result<(), ProbeError> {
        let entry = self.entry(index)?;
        // SAFETY: a valid entry. Programs that may still use it only read and write integers.
        unsafe { entry.write_volatile(value) };
        Ok(())
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: mapped by `of` with this length. A failure leaves it mapped.
        let _ = unsafe { munmap(self.entries.as_ptr().cast(), self.len * size_of::<T>()) };
    }
}
