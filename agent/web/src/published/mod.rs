//! What the run loop publishes about each server, and what a request asks of it.

pub(crate) mod exported;
pub(crate) mod requests;
pub(crate) mod shared;
