//! What clients feel: how long requests wait, and what the main thread did meanwhile.

pub(crate) mod pace;
pub(crate) mod peers;
pub(crate) mod rest;
pub(crate) mod stalls;
pub(crate) mod waits;
