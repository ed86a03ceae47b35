//! Machine code: one function as a control-flow graph, what it calls and refers to, and what the
//! kernel emulates.

pub(crate) mod block;
pub mod callees;
mod canary;
mod decode;
pub mod emulation;
pub(crate) mod graph;
pub(crate) mod imports;
pub mod instruction;
mod not_return;
pub mod references;
pub mod registers;
mod switches;
mod thunks;

pub use block::{BlockId, InstructionId, PerBlock};
pub use decode::CodeError;
pub use graph::{Block, Dominators, EdgeKind, FunctionCode};
pub use instruction::Instruction;
