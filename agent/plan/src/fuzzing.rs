//! What the fuzz target of debug information calls. Not part of the interface.

use evictscope_machine::dwarf::Asked;

/// Reads debug information.
pub fn dwarf(file: &[u8]) {
    let asked = Asked { names: &["performEvictions"], entry: None };
    let _ = crate::dwarf::read(file, asked);
}
