//! Finds the container of a process, the container's name, its CPU quotas, and what the OOM killer did in it.

pub(crate) mod container;
pub(crate) mod container_name;
pub(crate) mod oom;
pub(crate) mod quota;
