//! Reads files: headers, symbols, relocations, build id, and the function of a command.
#![no_main]

use evictscope_fuzz::{FILES, damaged};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let file = damaged(&FILES, input);
    evictscope_machine::fuzzing::elf(&file, "performEvictions", "server", "maxmemory");
    let _ = evictscope_plan::named_function(&file, None, "GET");
});
