//! The data flow: what every register and stack slot holds at every instruction.

mod joins;
mod queries;
pub(crate) mod state;
mod transfer;
mod values;

pub(crate) use self::joins::execution;
pub use self::joins::execution::Execution;
pub use self::queries::accesses::{blocks_that_access, counted_in_loops, reached_by_pointers};
pub use self::queries::cut::{CutError, CutPoint};
pub use self::queries::operand::{Operand, SlotBase};
pub use self::queries::quotient::Quotient;
pub use self::queries::recipe::{Recipe, Term, resolve};
pub use self::queries::returns::Results;
pub(crate) use self::queries::{cut, recipe};
pub use self::queries::{interpreter, quotient, returns};
pub use self::state::State;
pub use self::values::atoms::{Atom, Atoms, Limits, Truth};
pub use self::values::condition::{Condition, Flags, Relation};
pub(crate) use self::values::value;
pub use self::values::value::{AtomId, Value};

#[cfg(test)]
mod tests;
