//! What findings agree on, and why nothing is certain if they do not.

use std::ops::Range;

use evictscope_machine::flow::machine::Halt;
use evictscope_model::FileAddress;

/// Why a member of `server` or the allocator's counter is not known. Its text is a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// Nothing leads to it, or what does leads to several places.
    #[error("{0}")]
    Unknown(String),
    /// Two sources name different places.
    #[error("{0}")]
    Contradiction(String),
    /// The function that returns the counter could not be run.
    #[error("zmalloc_used_memory() is not understood: {0}")]
    Allocator(#[from] Halt),
}

impl MemberError {
    /// Makes the error that says why a member is unknown.
    pub fn unknown(why: impl Into<String>) -> Self {
        Self::Unknown(why.into())
    }
}

/// Returns the only address, which may occur several times; `None` if there are different ones.
pub fn only(mut found: Vec<FileAddress>) -> Option<FileAddress> {
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [only] => Some(*only),
        _ => None,
    }
}

/// Returns the only address in `range`.
pub fn only_in(range: Range<FileAddress>, addresses: &[FileAddress]) -> Option<FileAddress> {
    let inside = addresses.iter().filter(|address| range.contains(address));
    only(inside.copied().collect())
}
