//! Machine code: one function as a control-flow graph, what it calls and refers to, and what the
//! kernel emulates.

mod canary;
pub mod decode;
mod switches;

pub mod block;
pub mod callees;
pub mod emulation;
pub mod graph;
pub mod imports;
pub mod instruction;
pub mod not_return;
pub mod references;
pub mod registers;
