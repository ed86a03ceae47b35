//! Machine code: one function as a control-flow graph, and what it calls and refers to.

pub mod bounds;
pub mod callees;
mod decode;
pub(crate) mod graph;
pub(crate) mod imports;
pub mod references;

pub use self::decode::CodeError;
pub use self::graph::{Block, BlockId, Dominators, EdgeKind, FunctionCode, InstructionId, PerBlock};
