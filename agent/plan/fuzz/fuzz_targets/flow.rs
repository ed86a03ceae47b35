//! Decodes and executes functions.
#![no_main]

use evictscope_fuzz::{FUNCTIONS, damaged};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let file = damaged(&FUNCTIONS, input);
    evictscope_machine::fuzzing::flow(&file);
});
