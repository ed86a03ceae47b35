//! What the tests and the developer tasks start and read.

pub mod root;
pub mod service;
