//! Loading compiled programs into the kernel, without keeping what that took.

use aya::{Ebpf, EbpfLoader};

use super::error::ProbeError;

/// Loads programs that need nothing of the kernel's own types. aya's default parses those twice, and each time takes 30 MB; here it
/// does so once, and the memory is given back.
pub(super) fn load(object: &[u8]) -> Result<Ebpf, ProbeError> {
    let loaded = EbpfLoader::new().btf(None).load(object);
    give_back();
    loaded.map_err(ProbeError::load)
}

/// Gives memory back to the kernel that is not used any more: its description of its types takes 60 MB as long as it is read,
/// and 20 MB would be kept.
pub(super) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only looks at memory that was freed.
    unsafe {
        libc::malloc_trim(0)
    };
}
