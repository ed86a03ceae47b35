//! Reads unwind tables.
#![no_main]

use evictscope_fuzz::{FRAMES, damaged};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let file = damaged(&FRAMES, input);
    evictscope_machine::fuzzing::frames(&file);
});
