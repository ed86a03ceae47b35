//! Turns the bytes of a server's executable into a [`ProbePlan`]: it knows what the code that
//! `evictscope-machine` understands means in Redis. Pure: bytes in, plan out.
//!
//! The steps, each of which uses only earlier ones: `names` (which function is which, even without symbols, and
//! which server it is), `dwarf` (what debug information says about `server` and the eviction function),
//! `members` (the members of `server`, and the allocator's counters), and `traced` (the traced functions).
//! `planner` joins them; begin reading there. `item` and `plan` are the types that a plan is made of, and
//! `sent` receives them from another process. Beside them, `commands` finds the table of commands: their functions
//! and counters. `named` finds a function that a user names, and names those on stacks.
//!
//! It does no I/O: `clippy.toml` disallows files, sockets, processes, clocks and the environment, except in tests.
//! It knows no instruction set: `evictscope-machine` says what an instruction does, and where arguments are.
//!
//! Deliberately absent: support for inlined copies of the eviction goal that decide in more than
//! one place. The plan lists them as not found.

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

mod commands;
mod dwarf;
mod item;
mod members;
mod named;
mod names;
mod plan;
mod planner;
mod sent;
mod traced;

pub use evictscope_machine::elf::{DebugFileNames, ElfError};
pub use evictscope_machine::flow::{Execution, Operand, Recipe, Term};
pub use evictscope_machine::isa::{Architecture, Register};
pub use evictscope_machine::sites::{Calls, Site, Way};
pub use evictscope_machine::stacks::{Caller, CodeFile, FrameRegisters, NamedCode, Work};

pub use self::commands::{CommandArray, CommandsPlan};
pub use self::item::{Description, FunctionKind, Item, Method, variable_name};
pub use self::members::{Counters, MemberPlan};
pub use self::named::{NameError, NamedFunction, named_function};
pub use self::names::Identity;
pub use self::plan::{
    CallSpan, CycleEndPlan, CycleStartPlan, Exit, ExpirePlan, FunctionPlan, NotFound, ProbePlan, QuantityPlan,
    TracedFunction,
};
pub use self::planner::{TRACED, plan, plan_functions};
pub use self::traced::eviction::EVICTION_CALL;
pub use self::traced::expire::EXPIRE_CYCLE;
pub use self::traced::{Analysis, Traced};
pub use crate::item::Reason;

/// What the fuzz target of debug information calls. Not part of the interface.
#[doc(hidden)]
pub mod fuzzing {
    use evictscope_machine::dwarf::Asked;

    /// Reads debug information.
    pub fn dwarf(file: &[u8]) {
        let _ = crate::dwarf::read(file, Asked { names: &["performEvictions"], entry: None });
    }
}

#[cfg(test)]
mod tests;
