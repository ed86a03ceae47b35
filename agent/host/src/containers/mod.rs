//! In which container a process is, what that is called, and its quota of the CPU.

pub(crate) mod container;
pub(crate) mod container_name;
pub(crate) mod quota;
