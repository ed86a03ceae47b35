//! What `/proc` says about one process.

pub(crate) mod breakpoints;
pub(crate) mod handle;
pub(crate) mod identity;
pub(crate) mod memory;
pub(crate) mod observed;
pub(crate) mod scheduling;
pub(crate) mod sockets;
