//! Which servers run on this host, what they are called, and which are left alone.

pub(crate) mod exclusion;
pub(crate) mod file_system;
pub(crate) mod labels;
pub(crate) mod look;
pub(crate) mod looks;
pub(crate) mod matcher;
pub(crate) mod scanner;
pub(crate) mod slow;
pub(crate) mod troubles;
pub(crate) mod unrelated;
