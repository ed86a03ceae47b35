//! The formats in which a profile is exported.

mod flame_graph;
mod folded;
mod pprof;

pub use flame_graph::flame_graph;
pub use folded::folded;
pub use pprof::pprof;
