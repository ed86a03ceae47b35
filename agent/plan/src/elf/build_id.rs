//! The GNU build id, which names one build of an executable.

use std::fmt::Write as _;

use object::read::elf::ElfFile64;
use object::{Endianness, Object as _};

/// Longest build id, in bytes; linkers make 8 to 20.
const MAX_BYTES: usize = 64;

/// Returns the build id of a file as lower-case hexadecimal digits.
///
/// # Errors
///
/// Fails where the notes are damaged.
pub fn of(file: &ElfFile64<'_, Endianness>) -> Result<Option<String>, object::Error> {
    let id = file.build_id()?.filter(|id| id.len() <= MAX_BYTES);
    Ok(id.map(hexadecimal))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
