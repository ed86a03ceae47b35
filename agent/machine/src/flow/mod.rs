//! The data flow: what registers and memory hold at each instruction of a function, as far as that is certain.
//!
//! A function is executed from its entry, once, with values that stand for what is not known. The steps, each of which
//! uses only those before it: `values` (what something can be), `state` (what is known at one point), `transfer` (what
//! one instruction does to that), `joins` (what a whole function does: where paths meet, and loops), and `queries`
//! (what others ask about it). No step knows an instruction set: instructions are [effects](crate::ir), and what
//! functions agree on is a [convention](crate::isa::Convention).
//!
//! # Values
//!
//! A [`Value`] is a number of 64 bits: a constant plus *atoms*, each times a number, modulo 2^64. What is added and
//! taken off again is gone by itself: `a - b + b` is `a`.
//!
//! An [`Atom`] is what nothing more is known about: what a register held at the function's entry, what a global held
//! when it was loaded, what a call returned, or what an instruction made that is not followed (it is *opaque*). Or it
//! is made of values in a way that is no sum: the lowest bits of one, one of two by a [`Condition`] (a *select*), 1 or
//! 0 as conditions hold (a [`Truth`]), one of several by the path that control came by (*merged*), or what an operation
//! computed. What is made of the same is the same atom, so equal values look equal.
//!
//! # States
//!
//! A [`State`] is what is known at one point: the value of each register, of some *slots* and *lanes*, the two sides of
//! the last comparison (the [`Flags`]), and the *facts*: conditions that hold because of the branches on the way there.
//! A slot is up to 8 bytes of the stack, by their offset from the stack pointer at entry. A lane is 8 bytes of a vector
//! register. No other memory is kept: a load of a global is an atom with its *generation*, the place where memory may
//! last have changed. Two loads of the same generation are the same.
//!
//! A slot changes by its own name, and by its address. So an address on the stack is followed, and *escapes* where
//! others may find it: it is stored, passed to a call, put into a vector, or lost in something opaque. A call, and a
//! store to an unknown place, forget the slots that are reached from an address that escaped: all that are above it, or
//! those up to a [limit](Limits). *Private* slots are below all whose address the function takes: only their names
//! reach them.
//!
//! # Whole functions
//!
//! Blocks are executed in an order in which each follows those that control comes from, but for the edges *back* to the
//! *head* of a loop. There, what any instruction of the loop changes is forgotten. If a pass over all blocks shows that
//! a register comes back to the head as it was, the next pass knows it there: it is *restored*.
//!
//! Where paths meet, what differs is merged. If a short block then branches on a merged value, its *ways* are kept: the
//! paths to it, with the state on each. An edge out of it has only those ways that can take it. An edge that the facts
//! rule out is not taken at all.
//!
//! # An example
//!
//! This is `ldbIsEnabled()` of Debian's redis-server 7.0.15, at e9000: `return ldb.active && ldb.step`. `r0` is
//! register 0, which has the result, and `[260968]` the atom that is 4 bytes loaded from there. (A test reads this
//! table.)
//!
//! | bytes | effects | what is new after it |
//! |---|---|---|
//! | `8b 05 62 79 17 00` | `Set r0, 4, Load(260968, 4)` | `r0 = [260968]` |
//! | `85 c0` | `Compare r0, 0, 32` | `compared [260968], 0` |
//! | `74 0d` | `Branch(Equal, e9017)` | `` |
//! | `8b 15 7c 7a 17 00` | `Set r2, 4, Load(260a8c, 4)` | `r2 = [260a8c]` `[260968] != 0` |
//! | `31 c0` | `Compare 0, 0, 32` `Set r0, 4, 0` | `r0 = 0` `compared 0, 0` |
//! | `85 d2` | `Compare r2, 0, 32` | `compared [260a8c], 0` |
//! | `0f 95 c0` | `Set r0, 1, Truth(NotEqual)` | `r0 = ([260a8c] != 0)` |
//! | `c3` | `Return` | `r0 = 0 or ([260a8c] != 0)` `r2 = r2 at entry or [260a8c]` |
//!
//! After the branch the one way has a fact. On the other, `[260968] = 0`, so whatever held that number holds 0: at the
//! return, `r0` is merged of 0 and a truth. Asked for the results, [`returns::numbers`] finds 0.
//!
//! A [`Recipe`] says how to read a value at one instruction: as a sum of up to three [operands](Operand), each a
//! register, a slot, a global or a constant. For `[260a8c]` at `0f 95 c0` it is `r2`, with no further summand.
//! `[260968]` is in no register or slot there, so there is no recipe for it, and a probe there cannot tell it.

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
pub use self::transfer::loaded;
pub use self::values::atoms::{Atom, Atoms, Limits, Truth};
pub use self::values::condition::{Condition, Relation};
pub use self::values::flags::Flags;
pub(crate) use self::values::value;
pub use self::values::value::{AtomId, Value};

#[cfg(test)]
mod first_page;
#[cfg(test)]
mod tests;
