//! Loads compiled programs into the kernel and gives back the memory that this took.

use aya::{Ebpf, EbpfLoader};

use super::error::ProbeError;
use super::heap::give_back;

/// Loads programs that do not use the kernel's own types. By default, aya parses those twice, taking 30 MB each time.
/// Here it parses them once, and the memory is given back.
pub(super) fn load(object: &[u8]) -> Result<Ebpf, ProbeError> {
    // Kernels without time namespaces have no such file.
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    if let Some(shift) = shift(&offsets) {
        return Err(ProbeError::OtherTimeNamespace(shift));
    }
    let loaded = EbpfLoader::new().btf(None).load(object);
    give_back();
    loaded.map_err(ProbeError::load)
}

/// Returns by how much the monotonic clock differs from the kernel's, seconds and nanoseconds (`time_namespaces(7)`):
/// the programs have the kernel's.
fn shift(offsets: &str) -> Option<String> {
    let line = offsets.lines().find_map(|line| line.strip_prefix("monotonic"))?;
    let shift: Vec<&str> = line.split_whitespace().collect();
    (shift != ["0", "0"]).then(|| shift.join(" s, ") + " ns")
}

#[cfg(test)]
mod tests {
    use super::shift;

    #[test]
    fn only_a_clock_that_differs_is_shifted() {
        let offsets = |monotonic| format!("monotonic {monotonic}\nboottime          -5         0\n");
        assert_eq!(shift(&offsets("          0         0")), None);
        let shifted = shift(&offsets("      -3000         7"));
        assert_eq!(shifted.as_deref(), Some("-3000 s, 7 ns"));
        assert_eq!(shift(""), None);
    }
}
