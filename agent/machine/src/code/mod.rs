//! Machine code: one function as a control-flow graph, what it calls and refers to, and what the
//! kernel emulates.

mod canary;
pub(crate) mod imports;
mod not_return;
mod switches;

pub mod block;
pub mod callees;
pub mod decode;
pub mod emulation;
pub mod graph;
pub mod instruction;
pub mod references;
pub mod registers;
