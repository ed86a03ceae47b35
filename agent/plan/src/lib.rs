//! From the bytes of an executable to a [`ProbePlan`]. Pure: bytes in, plan out, no I/O.
//!
//! The steps, each of which uses only those before it: `elf` (what the file says), `code` (one
//! function, decoded, as a control-flow graph), `names` (which function is which, also without
//! symbols), `flow` (what every register and stack slot holds at every instruction, and recipes that
//! recover a value from them), `dwarf` (what debug information says of the same things), `members`
//! (the members of `server`, and the allocator's counters), and `traced` (the traced functions).
//! `stacks` uses `elf`, `code` and `traced` for something else: which functions a copied stack is made of.
//! `planner` joins them. `item`, `reason` and `plan` are the types that a plan is made of; all steps
//! share `item` and `budget`.
//!
//! `clippy.toml` keeps it free of I/O: it disallows files, sockets, processes, clocks and the environment,
//! except in tests.
//!
//! Deliberately absent: inlined copies of the eviction goal that decide in more than one place. The
//! plan names them as not found.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests compile programs and read files"
    )
)]

mod budget;
mod code;
mod dwarf;
mod elf;
mod flow;
mod function_names;
#[doc(hidden)]
pub mod fuzzing;
mod item;
mod members;
mod names;
mod plan;
mod planner;
mod reason;
mod sites;
mod stacks;
mod traced;

#[cfg(test)]
mod tests;

pub use elf::address::{FileAddress, FileOffset, ProcessAddress};
pub use elf::debug_link::DebugFileNames;
pub use elf::image::Image;
pub use flow::execution::Execution;
pub use flow::recipe::{Operand, Recipe, Term};
pub use item::{Description, FunctionKind, Item, Member, Method, variable_name};
pub use members::{Counters, MemberPlan};
pub use names::Identity;
pub use plan::{Exit, InnerSite, NotFound, ProbePlan, QuantityPlan, TracedFunction};
pub use planner::{plan, plan_functions};
pub use reason::Reason;
pub use sites::calls::Calls;
pub use sites::exits::Way;
pub use sites::site::Site;
pub use stacks::{Caller, CodeFile, Function, Registers, Work};
pub use traced::TRACED;
pub use traced::analysis::{Analysis, Traced};
pub use traced::eviction::EVICTION_CALL;
pub use traced::expire::EXPIRE_CYCLE;
pub use traced::named::{NameError, NamedFunction, named_function};
