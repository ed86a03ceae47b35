//! Plans for whatever there is: the file as the fuzzer made it, or a real one damaged by its script.
//!
//! `EVICTSCOPE_FUZZ_BASES` names a folder of executables to damage; without it, the input is always
//! the file itself. `cargo xtask fuzz` prepares such a folder.
#![no_main]

#[path = "../src/mutation.rs"]
mod mutation;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use mutation::Base;

static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    let Some(folder) = std::env::var_os("EVICTSCOPE_FUZZ_BASES") else {
        return Vec::new();
    };
    let entries = std::fs::read_dir(&folder).expect("cannot read EVICTSCOPE_FUZZ_BASES");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| Base::new(std::fs::read(path).expect("cannot read a base")))
        .collect()
});

fuzz_target!(|input: &[u8]| {
    let Some((which, rest)) = input.split_first() else {
        return;
    };
    let file = match BASES.get(usize::from(*which) % (BASES.len() + 1)) {
        Some(base) => base.damaged(rest),
        None => rest.to_vec(),
    };
    let _ = evictscope_plan::plan(&file, None);
});
