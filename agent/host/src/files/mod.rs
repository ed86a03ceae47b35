//! The executable that a process runs, and what belongs to it.

pub(crate) mod debug_file;
pub(crate) mod executable;
