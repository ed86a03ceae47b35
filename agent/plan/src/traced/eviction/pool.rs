//! The eviction pool: an array of the best keys to evict, the best last, from which the function chooses. Its address is in a
//! global.

use evictscope_machine::elf::FileAddress;
use evictscope_machine::flow::{Execution, reached_by_pointers};

/// Offsets of its last entry and of the key in it, in bytes: 16 entries of 32 bytes.
const LAST: [i64; 2] = [15 * 32, 15 * 32 + 8];

/// Returns the address of that global, if the function reaches the last entry of a single pool.
pub fn pool(execution: &mut Execution<'_>) -> Option<FileAddress> {
    let mut found = reached_by_pointers(execution, &LAST).into_iter();
    found.next().filter(|_| found.next().is_none())
}
