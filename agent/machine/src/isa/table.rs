//! The tables of `switch` statements.

use evictscope_model::FileAddress;

use crate::elf::image::Image;

/// How far a function extends if the file does not say, in bytes.
const DEFAULT_SIZE: u64 = 64 << 10;

/// Where a jump can lead.
#[derive(Default)]
pub struct Targets {
    pub all: Vec<FileAddress>,
    /// The check that limits them, if any: nothing may jump past it to code up to the jump.
    pub check: Option<FileAddress>,
}

/// Returns the entries of a table of the function at `entry` that lie in the function, up to the first that does not.
pub fn entries(
    image: &Image<'_>,
    entry: FileAddress,
    length: u64,
    at: impl Fn(u64) -> Option<FileAddress>,
) -> Vec<FileAddress> {
    let name = image.symbols.function_name(entry);
    let named = name.and_then(|name| image.symbols.function(name));
    let end = match (image.frames.at(entry), named.map(|symbol| symbol.size)) {
        (Some(frame), _) => frame.end,
        (None, Some(size)) if size > 0 => entry.saturating_add(size),
        (None, _) => entry.saturating_add(DEFAULT_SIZE),
    };
    let entries = (0..length).map_while(at);
    let mut targets: Vec<FileAddress> = entries.take_while(|target| (entry..end).contains(target)).collect();
    targets.sort_unstable();
    targets.dedup();
    targets
}
