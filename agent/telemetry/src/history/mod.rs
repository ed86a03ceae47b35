//! The last ten minutes of a server.

pub(crate) mod moment;
pub(crate) mod moments;
pub(crate) mod stall_times;
pub(crate) mod timeline;
