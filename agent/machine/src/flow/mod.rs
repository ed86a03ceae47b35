//! The data flow: what every register and stack slot holds at every instruction.

mod accesses;
mod arithmetic;
mod atom;
mod atoms;
mod bits;
mod condition;
pub(crate) mod cut;
pub(crate) mod execution;
pub mod factor;
#[cfg(test)]
mod generated;
mod loops;
pub mod machine;
pub(crate) mod operand;
mod operands;
mod order;
pub mod paths;
mod private;
mod quotient;
pub(crate) mod recipe;
pub(crate) mod result;
pub mod returned;
pub(crate) mod state;
mod step;
mod truth;
mod units;
pub(crate) mod value;
mod vector;

pub use self::accesses::{blocks_that_access, counted_in_loops, reached_by_pointers};
pub use self::atom::{Atom, Operation, Truth};
pub use self::atoms::{Atoms, Limits};
pub use self::condition::{Condition, Flags, Relation};
pub use self::cut::{CutError, Point};
pub use self::execution::Execution;
pub use self::operand::Operand;
pub use self::quotient::Quotient;
pub use self::recipe::{Recipe, Term, resolve};
pub use self::result::Results;
pub use self::state::{Frame, State};
pub use self::value::{AtomId, Value};

#[cfg(test)]
mod tests;
