//! Reads debug information.
#![no_main]

use evictscope_fuzz::{FILES_WITH_DWARF, damaged};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let file = damaged(&FILES_WITH_DWARF, input);
    evictscope_plan::fuzzing::dwarf(&file);
});
