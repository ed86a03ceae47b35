//! Loads compiled programs into the kernel and gives back the memory that this took.

use aya::{Ebpf, EbpfLoader};

use super::error::ProbeError;
use super::heap::give_back;

/// Loads programs that do not use the kernel's own types. By default, aya parses those twice, taking 30 MB each time. Here it
/// parses them once, and the memory is given back.
pub(super) fn load(object: &[u8]) -> Result<Ebpf, ProbeError> {
    let loaded = EbpfLoader::new().btf(None).load(object);
    give_back();
    loaded.map_err(ProbeError::load)
}
