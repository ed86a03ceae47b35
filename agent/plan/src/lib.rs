//! From the bytes of an executable to a [`ProbePlan`]. Pure: bytes in, plan out, no I/O.
//!
//! The way through it: [`image`] (what the ELF file says) → [`names`] (which function is which, also
//! without symbols) → [`code`] (one function, decoded, as a
//! control-flow graph) → [`execute`] (what every register holds at every instruction, as
//! [`value`]s in a [`state`]) → [`goal`] (where the eviction goal is computed, inlined) or [`called`]
//! (by a call) → [`recipe`] (how to recover each variable) and [`exits`] (where an evicting call
//! ends) → [`ProbePlan`]. [`members`] finds the members of `server` and, with [`machine`], the
//! allocator's counters, [`emulation`] knows which
//! instructions are cheap to probe; [`planner`] joins them all.
//!
//! Where there is debug information, [`dwarf`] reads what it says of the same things, and [`agreement`]
//! compares the two; [`debug_names`] tells which separate file belongs to an executable.
//!
//! Deliberately absent, and refused by name: inlined copies that decide in more than one place.

mod budget;
mod code;
mod dwarf;
mod elf;
mod flow;
mod members;
mod names;
mod plan;
mod planner;
mod traced;

#[cfg(test)]
mod tests;

pub use elf::debug_link::DebugFileNames;
pub use elf::image::Image;
pub use plan::{
    Confidence, Counters, Method, Operand, ProbePlan, Recipe, Site, Sites, variable_name,
};
pub use plan::{DoneSite, Refusal, Term, VariablePlan};
pub use planner::plan;
