//! What the fuzz targets have in common: executables, or parts of them, that the input damages.
//!
//! `EVICTSCOPE_FUZZ_BASES` names a folder of executables. Without it, an input is always the file
//! itself. `cargo xtask fuzz` prepares such a folder.

mod mutation;

use std::sync::LazyLock;

use mutation::MutationBase;

/// The executables.
pub static FILES: LazyLock<Vec<MutationBase>> = LazyLock::new(|| {
    let Some(folder) = std::env::var_os("EVICTSCOPE_FUZZ_BASES") else { return Vec::new() };
    let entries = std::fs::read_dir(&folder).expect("cannot read EVICTSCOPE_FUZZ_BASES");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.iter().map(|path| MutationBase::new(std::fs::read(path).expect("cannot read a base"))).collect()
});

/// The executables that have debug information.
pub static FILES_WITH_DWARF: LazyLock<Vec<MutationBase>> = LazyLock::new(|| {
    let files = FILES.iter().cloned();
    files.filter(|file| file.section(".debug_info").is_some()).collect()
});

/// Their unwind tables.
pub static FRAMES: LazyLock<Vec<MutationBase>> =
    LazyLock::new(|| FILES.iter().filter_map(|file| file.section(".eh_frame")).collect());

/// Their functions that a plan relies on.
pub static FUNCTIONS: LazyLock<Vec<MutationBase>> =
    LazyLock::new(|| FILES.iter().flat_map(MutationBase::functions).collect());

/// Returns what an input stands for: its first byte names a base, and the rest is the script that
/// damages it; or else the rest is the file itself.
pub fn damaged(bases: &[MutationBase], input: &[u8]) -> Vec<u8> {
    let Some((which, rest)) = input.split_first() else { return Vec::new() };
    match bases.get(usize::from(*which) % (bases.len() + 1)) {
        Some(base) => base.damaged(rest),
        None => rest.to_vec(),
    }
}
