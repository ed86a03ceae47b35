//! Loading compiled programs into the kernel, without keeping what that took.

use aya::{Ebpf, EbpfLoader};

use super::error::ProbeError;
use super::heap::give_back;

/// Loads programs that need nothing of the kernel's own types. aya's default parses those twice, and each time takes 30 MB; here it
/// does so once, and the memory is given back.
pub(super) fn load(object: &[u8]) -> Result<Ebpf, ProbeError> {
    let loaded = EbpfLoader::new().btf(None).load(object);
    give_back();
    loaded.map_err(ProbeError::load)
}
