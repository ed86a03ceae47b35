//! Memory-mapped array maps, and whole copies of what the programs update meanwhile.

use std::marker::PhantomData;
use std::os::fd::AsFd as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use aya::maps::Map;
use evictscope_abi::Updated;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::error::ProbeError;

/// How often a copy is tried while updates tear it.
const MAX_TORN_COPIES: usize = 64;

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
    /// Maps an array of `len` entries.
    ///
    /// # Errors
    ///
    /// Fails if the map is of another kind or the kernel refuses.
    pub fn of(map: &Map, len: u32) -> Result<Self, ProbeError> {
        let Map::Array(map) = map else {
            return Err(ProbeError::Object("array that can be mapped"));
        };
        let len = len as usize;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let entries = unsafe {
            let fd = map.fd().as_fd();
            mmap(std::ptr::null_mut(), len * size_of::<T>(), protection, flags, fd, 0)
        };
        let entries = entries.map_err(|error| ProbeError::Mapping(error.into()))?;
        Ok(Self { entries: NonNull::new(entries.cast()).ok_or(ProbeError::Object("map"))?, len, _of: PhantomData })
    }

    /// Returns the address of an entry, which is valid as long as `self` is.
    pub fn entry(&self, index: u32) -> Result<*mut T, ProbeError> {
        let index = index as usize;
        match index < self.len {
            // SAFETY: within the mapping.
            true => Ok(unsafe { self.entries.as_ptr().add(index) }),
            false => Err(ProbeError::Object("map entry for another server")),
        }
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
        let entries = self.entries.as_ptr().cast();
        // SAFETY: mapped by `of` with this length. A failure leaves it mapped.
        let _ = unsafe { munmap(entries, self.len * size_of::<T>()) };
    }
}

/// Copies what a sequence lock protects. Returns `None` if updates tore every copy.
///
/// # Safety
///
/// `lock` and all that `copy` reads must be valid. `copy` must read what the lock protects with volatile
/// loads and must not use it, because it may be torn.
pub unsafe fn whole<T, C>(lock: *const Updated<T>, copy: impl Fn() -> C) -> Option<C> {
    // SAFETY: fields of a valid structure, each of which the writer sets in a single store.
    let (finished, begun) = unsafe {
        let finished = AtomicU64::from_ptr((&raw const (*lock).finished).cast_mut());
        let begun = AtomicU64::from_ptr((&raw const (*lock).begun).cast_mut());
        (finished, begun)
    };
    for _ in 0..MAX_TORN_COPIES {
        let before = finished.load(Ordering::Acquire);
        let copied = copy();
        // The copy is loaded before `begun` is.
        fence(Ordering::Acquire);
        if begun.load(Ordering::Relaxed) == before {
            return Some(copied);
        }
        std::hint::spin_loop();
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;
    use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

    use evictscope_abi::Updated;

    use super::whole;

    /// Large enough for updates to come during a copy.
    type Words = [u64; 512];

    struct Shared(UnsafeCell<Updated<Words>>);

    // SAFETY: one thread writes as the programs do, the other one reads with `whole`.
    unsafe impl Sync for Shared {}

    /// Writes as the programs do, with `rest` turns of an idle loop between two updates.
    fn write(shared: &Shared, stop: &AtomicBool, rest: u32) {
        let counted = shared.0.get();
        for round in 1_u64.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            // SAFETY: the only writer.
            unsafe {
                (&raw mut (*counted).begun).write_volatile(round);
                compiler_fence(Ordering::Release);
                for index in 0..512 {
                    (&raw mut (*counted).value[index]).write_volatile(round);
                }
                compiler_fence(Ordering::Release);
                (&raw mut (*counted).finished).write_volatile(round);
            }
            for _ in 0..rest {
                std::hint::spin_loop();
            }
        }
    }

    /// Returns how many copies were made while such a writer updates, and how many of them were torn.
    fn copies(rest: u32) -> (usize, usize) {
        let shared = Shared(UnsafeCell::new(Updated { finished: 0, value: [0; 512], begun: 0 }));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| write(&shared, &stop, rest));
            let (mut made, mut torn) = (0, 0);
            for _ in 0..20_000 {
                let counted = shared.0.get().cast_const();
                // SAFETY: valid for as long as this scope; integers are copied.
                let copy = unsafe { whole(counted, || (&raw const (*counted).value).read_volatile()) };
                if let Some(words) = copy {
                    made += 1;
                    torn += usize::from(words.iter().any(|word| *word != words[0]));
                }
            }
            stop.store(true, Ordering::Relaxed);
            (made, torn)
        })
    }

    #[test]
    fn a_copy_is_whole_however_often_it_is_updated() {
        let (made, torn) = copies(2_000);
        assert!(made > 0, "no copy was made");
        assert_eq!(torn, 0, "of {made} copies");
    }

    #[test]
    fn a_writer_that_never_rests_gives_no_torn_copy() {
        let (made, torn) = copies(0);
        assert_eq!(torn, 0, "of {made} copies");
    }
}
