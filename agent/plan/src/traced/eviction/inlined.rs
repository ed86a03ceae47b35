//! The form in which `getMaxmemoryState()` is inlined where the goal is computed.
//!
//! # Why there are two forms
//!
//! The function calls `getMaxmemoryState()` up to three times, and only the first call sets the goal.
//! Compilers inline it in all places, in some, or in none. If the first is inlined, all values are in the
//! function's own registers and stack, and this module reads them there. If it is called, the function
//! sees only two stack slots and a result: [`called`](super::called) looks into the callee. That form is
//! tried first, because code inlined after a call only checks again whether enough was freed.
//!
//! # How the roles are told apart
//!
//! `maxmemory` is the global whose address the configuration table gives. The value that is first
//! compared with it is `mem_reported`. The value of the form `mem_reported - x` that is compared with
//! it next is `mem_used`, and `x` is `overhead`. The copy that counts is the first that no loop
//! precedes.

use evictscope_machine::code::BlockId;
use evictscope_machine::elf::FileAddress;
use evictscope_machine::flow::{Execution, Value, resolve};

use super::comparison::comparisons_with;
use super::goal::{Form, GoalCopy};
use crate::reason::Reason;

/// Nothing is compared with `maxmemory`.
const NO_COMPARISON: &str = "the function compares nothing with maxmemory before its first loop";
/// `mem_reported` is compared with it, and nothing derived from it.
const NO_GOAL: &str =
    "memory is compared with maxmemory, but no value recognised as memory less an overhead is";

/// Finds the copy that sets the goal. Fails if the function does not look like an eviction call with an inlined copy.
pub fn find(
    execution: &mut Execution<'_>,
    before_eviction: &[BlockId],
    maxmemory: FileAddress,
) -> Result<GoalCopy, Reason> {
    let mut reported: Vec<Value> = Vec::new();
    for block in before_eviction.iter().copied() {
        for comparison in comparisons_with(execution, block, maxmemory) {
            let Some((over_edge, over_block)) = comparison.over else {
                reported.push(comparison.value);
                continue;
            };
            let state = execution.state_along(block, over_edge);
            let facts = state.map(|state| state.facts.to_vec()).unwrap_or_default();
            let mem_used = resolve(&mut execution.atoms, &comparison.value, &facts);
            let source = reported.iter().find_map(|mem_reported| {
                let overhead = mem_reported.minus(&mem_used);
                let independent = !overhead.shares_atoms_with(mem_reported)
                    && !overhead.shares_atoms_with(&comparison.maxmemory)
                    && overhead.as_constant().is_none();
                independent.then(|| (mem_reported.clone(), overhead))
            });
            if let Some((mem_reported, overhead)) = source {
                return Ok(GoalCopy {
                    form: Form::Inlined,
                    deciding_block: block,
                    over_edge,
                    over_block,
                    mem_reported,
                    overhead,
                    mem_tofree: mem_used.minus(&comparison.maxmemory),
                    mem_used,
                    maxmemory: comparison.maxmemory,
                });
            }
            reported.push(comparison.value);
        }
    }
    Err(Reason::Unrecognised(match reported.is_empty() {
        true => NO_COMPARISON,
        false => NO_GOAL,
    }))
}
