//! Machine code: one function as a control-flow graph, what it calls and refers to, and what a probe on it costs.

pub mod bounds;
pub mod callees;
mod decode;
pub(crate) mod graph;
pub(crate) mod imports;
pub mod instruction;
pub mod references;
mod switches;

pub use self::decode::CodeError;
pub use self::graph::{Block, BlockId, Dominators, EdgeKind, FunctionCode, InstructionId, PerBlock};
pub use self::instruction::Instruction;
