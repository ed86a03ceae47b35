//! Copies what the programs update, whole: the reader's side of the sequence lock of [`Updated`].

use std::sync::atomic::{AtomicU64, Ordering, fence};

use evictscope_abi::Updated;

#[cfg(test)]
mod order;

/// How often a copy is tried while updates tear it.
const MAX_TORN_COPIES: usize = 64;

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
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

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
                fence(Ordering::Release);
                for index in 0..512 {
                    (&raw mut (*counted).value[index]).write_volatile(round);
                }
                AtomicU64::from_ptr(&raw mut (*counted).finished).store(round, Ordering::Release);
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
        for rest in [2_000, 0] {
            let (made, torn) = copies(rest);
            // A writer that never rests may tear each.
            assert!(made > 0 || rest == 0, "no copy was made");
            assert_eq!(torn, 0, "of {made} copies");
        }
    }
}
