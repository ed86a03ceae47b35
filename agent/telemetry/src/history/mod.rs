//! The last ten minutes of a server.

mod moments;
pub(crate) mod timeline;
