//! Keeps the allocator from holding on to freed memory.

/// The number of heaps that all threads share.
#[cfg(target_env = "gnu")]
const HEAPS: i32 = 2;

/// Makes all threads that start later share a few heaps: with one heap each, as in glibc by default, 130 MB
/// were kept for 19 MB used.
pub fn share_heaps() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only sets a parameter of the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, HEAPS)
    };
}

/// Gives unused memory back to the kernel: reading the kernel's description of its types takes 60 MB, and 20 MB would
/// be kept.
pub(super) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only touches memory that was freed.
    unsafe {
        libc::malloc_trim(0)
    };
}
