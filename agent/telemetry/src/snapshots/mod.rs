//! What is read from a server at one moment.

pub(crate) mod candidate;
pub(crate) mod expired;
mod limit;
pub(crate) mod look;
pub(crate) mod members;
pub(crate) mod moment;
pub(crate) mod snapshot;
