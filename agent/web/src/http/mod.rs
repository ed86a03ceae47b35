//! The HTTP server, its connections, and what protects browsers.

pub(crate) mod browsers;
pub(crate) mod connections;
pub(crate) mod server;
pub(crate) mod trouble;
