//! Finds the container of a process, the container's name, and its CPU quotas.

pub(crate) mod container;
pub(crate) mod container_name;
pub(crate) mod quota;
