//! The executable that a process runs, and what belongs to it.

pub(crate) mod debug_file;
pub(crate) mod executable;
pub(crate) mod file_id;
pub(crate) mod mount;
pub(crate) mod overlay;
pub(crate) mod package;
pub(crate) mod regular;
