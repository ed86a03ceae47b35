//! From the bytes of a server's executable to a [`ProbePlan`]: what Redis means by the code that
//! `evictscope-machine` understands. Pure: bytes in, plan out.
//!
//! The steps, each of which uses only those before it: `names` (which function is which, also without
//! symbols, and which server it is), `dwarf` (what debug information says of `server` and of the eviction
//! function), `members` (the members of `server`, and the allocator's counters), and `traced` (the traced
//! functions). `planner` joins them, and is where to begin reading. `item`, `reason` and `plan` are the types
//! that a plan is made of, and `sent` is how they come from another process. `stacks` is for something else: what functions on stacks are called.
//!
//! It does no I/O: `clippy.toml` disallows files, sockets, processes, clocks and the environment, except in
//! tests. It names no instruction by what x86-64 calls it: what it has to know of one,
//! `evictscope-machine` says.
//!
//! Deliberately absent: inlined copies of the eviction goal that decide in more than one place. The
//! plan names them as not found.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests compile programs and read files"
    )
)]

mod dwarf;
#[doc(hidden)]
pub mod fuzzing;
mod item;
mod members;
mod names;
mod plan;
mod planner;
mod reason;
mod sent;
mod stacks;
mod traced;

#[cfg(test)]
mod tests;

pub use evictscope_machine::elf::{
    DebugFileNames, ElfError, FileAddress, FileOffset, ProcessAddress,
};
pub use evictscope_machine::flow::{Execution, Operand, Recipe, Term};
pub use evictscope_machine::sites::{Calls, Site, Way};
pub use evictscope_machine::stacks::{Caller, CodeFile, Function, Registers, Work};
pub use item::{Description, FunctionKind, Item, Method, variable_name};
pub use members::{Content, Counters, Member, MemberMetric, MemberPlan};
pub use names::Identity;
pub use plan::{Exit, InnerSite, NotFound, ProbePlan, QuantityPlan, TracedFunction};
pub use planner::{plan, plan_functions};
pub use reason::Reason;
pub use traced::TRACED;
pub use traced::analysis::{Analysis, Traced};
pub use traced::eviction::EVICTION_CALL;
pub use traced::expire::EXPIRE_CYCLE;
pub use traced::named::{NameError, NamedFunction, named_function};
