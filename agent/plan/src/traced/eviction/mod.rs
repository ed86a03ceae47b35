//! The eviction call.

pub mod agreement;
pub mod called;
pub mod entry;
pub mod exits;
pub mod inlined;
