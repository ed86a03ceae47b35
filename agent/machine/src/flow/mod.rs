//! The data flow: what every register and stack slot holds at every instruction.

mod accesses;
mod arithmetic;
mod atom;
mod atoms;
mod bits;
mod condition;
mod counted;
pub(crate) mod cut;
mod elements;
pub(crate) mod execution;
pub mod factor;
mod flags;
mod frame;
mod lanes;
mod loops;
pub mod machine;
pub(crate) mod operand;
mod operands;
mod order;
pub mod paths;
mod private;
mod quotient;
pub(crate) mod recipe;
mod resolve;
pub(crate) mod result;
pub mod returned;
pub(crate) mod state;
mod step;
mod truth;
mod units;
pub(crate) mod value;
mod vector;

pub use accesses::blocks_that_access;
pub use atom::{Atom, Operation, Truth};
pub use atoms::{Atoms, Limits};
pub use condition::{Condition, Relation};
pub use counted::counted_in_loops;
pub use cut::{CutError, Point};
pub use elements::reached_by_pointers;
pub use execution::Execution;
pub use flags::Flags;
pub use frame::Frame;
pub use operand::Operand;
pub use quotient::Quotient;
pub use recipe::{Recipe, Term};
pub use resolve::resolve;
pub use result::Results;
pub use state::State;
pub use value::{AtomId, Value};

#[cfg(test)]
mod generated;
#[cfg(test)]
mod tests;
