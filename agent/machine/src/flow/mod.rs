//! The data flow: what every register and stack slot holds at every instruction.

mod accesses;
mod atoms;
mod condition;
pub(crate) mod cut;
pub(crate) mod execution;
pub mod interpreter;
mod loops;
mod operands;
mod private;
pub mod quotient;
pub(crate) mod recipe;
pub mod returns;
pub(crate) mod state;
mod step;
mod truth;
pub(crate) mod value;
mod vector;

pub use self::accesses::{blocks_that_access, counted_in_loops, reached_by_pointers};
pub use self::atoms::{Atom, Atoms, Limits, Operation, Truth};
pub use self::condition::{Condition, Flags, Relation};
pub use self::cut::{CutError, CutPoint};
pub use self::execution::Execution;
pub use self::quotient::Quotient;
pub use self::recipe::{Recipe, Term, resolve};
pub use self::returns::Results;
pub use self::state::{Operand, SlotBase, State};
pub use self::value::{AtomId, Value};

#[cfg(test)]
mod tests;
