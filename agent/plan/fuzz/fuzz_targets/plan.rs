//! Plans probes for files, from the ELF header to the probe sites.
#![no_main]

use evictscope_fuzz::{FILES, damaged};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let file = damaged(&FILES, input);
    let _ = evictscope_plan::plan(&file, None);
});
