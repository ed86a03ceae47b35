//! Machine code: one function as a control-flow graph, what it calls and refers to, and what the kernel emulates.

pub mod callees;
pub mod emulation;
pub mod graph;
pub mod references;
