//! The tables of `switch` statements.

use evictscope_model::FileAddress;

use crate::elf::image::Image;

/// The most entries of one table.
pub const MAX_TABLE: u64 = 512;
/// How far a function extends if the file does not say, in bytes.
const DEFAULT_SIZE: u64 = 64 << 10;

/// Where a jump can lead.
#[derive(Default)]
pub struct Targets {
    pub all: Vec<FileAddress>,
    pub check: Option<Check>,
}

/// The check that limits where a jump can lead: nothing may jump past it to code up to the jump.
#[derive(Clone, Copy)]
pub struct Check {
    pub at: FileAddress,
    /// The branch at its end and the code that it leads to, if the jump is there: nothing else may lead there.
    pub joined: Option<(FileAddress, FileAddress)>,
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

#[cfg(test)]
pub mod tests {
    use crate::code::graph::{EdgeKind, FunctionCode};
    use crate::elf::image::Image;

    /// Two `switch` statements with 6 and 9 cases, each of which does something different.
    pub const PROGRAM: &str = "
        int printf(const char *, ...);
        #define CASE(n) case n: printf(\"%d %s\\n\", n, v[n]); break;
        __attribute__((noinline)) void two(unsigned a, unsigned b, char **v) {
            switch (a) { CASE(0) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) }
            printf(\"and\\n\");
            switch (b) { CASE(0) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) }
        }
        int main(int argc, char **argv) { two(argc, argc + 1, argv); return 0; }";

    /// Returns how many cases each `switch` of the compiled program has.
    pub fn cases(data: &[u8]) -> Vec<usize> {
        let image = Image::parse(data).unwrap_or_else(|error| panic!("{error}"));
        let function = image.symbols.function("two").map(|symbol| symbol.address);
        let code = FunctionCode::decode(&image, function.unwrap_or_default());
        let code = code.unwrap_or_else(|error| panic!("{error}"));
        let mut cases: Vec<usize> = (code.blocks.iter())
            .map(|block| block.successors.iter().filter(|(_, kind)| *kind == EdgeKind::Switch).count())
            .filter(|count| *count > 0)
            .collect();
        cases.sort_unstable();
        cases
    }
}
