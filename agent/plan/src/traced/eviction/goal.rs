//! The goal of an evicting call: where the function decides on it, and what its variables are there.
//!
//! [`inlined`](super::inlined) and [`called`](super::called) find it, each in one of the two forms
//! that compilers give it.

use evictscope_abi::Variable;
use evictscope_machine::code::{BlockId, EdgeKind};
use evictscope_machine::flow::{Execution, Value};
use evictscope_machine::sites::Candidate;

/// The most blocks between the deciding branch and a goal site.
const MAX_CHAIN: usize = 16;

/// How the eviction function comes to its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By an inlined copy of `getMaxmemoryState()`.
    Inlined,
    Called,
}

/// The calculation that sets the goal.
#[derive(Debug)]
pub struct GoalCopy {
    pub form: Form,
    /// The block whose last instruction decides whether memory is over the limit.
    pub deciding_block: BlockId,
    /// The edge that this instruction takes if it is.
    pub over_edge: EdgeKind,
    pub over_block: BlockId,
    /// All memory tracked by the allocator.
    pub mem_reported: Value,
    /// `mem_reported - mem_used`.
    pub overhead: Value,
    /// What is compared with the limit.
    pub mem_used: Value,
    /// `mem_used - maxmemory`.
    pub mem_tofree: Value,
    pub maxmemory: Value,
}

impl GoalCopy {
    /// Returns the edge that every evicting call takes, and no other call.
    pub fn decision(&self) -> (BlockId, EdgeKind) {
        (self.deciding_block, self.over_edge)
    }

    /// Returns the value of a variable.
    pub fn value(&self, variable: Variable) -> &Value {
        match variable {
            Variable::MemReported => &self.mem_reported,
            Variable::Overhead => &self.overhead,
            Variable::MemUsed => &self.mem_used,
            Variable::MemTofree => &self.mem_tofree,
            Variable::Maxmemory => &self.maxmemory,
        }
    }
}

/// Returns every instruction that all evicting calls pass after the deciding branch, and no other calls.
pub fn after_decision(execution: &mut Execution<'_>, goal: &GoalCopy) -> Vec<Candidate> {
    let mut found = Vec::new();
    let code = execution.code;
    let mut next = Some(goal.over_block);
    for _ in 0..MAX_CHAIN {
        let Some(index) = next else { break };
        let block = &code.blocks[index];
        if block.predecessors.len() != 1 {
            break;
        }
        let states = execution.states_in(index);
        let points = block.instructions.iter().zip(states);
        found.extend(points.map(|(instruction, state)| Candidate {
            instruction: *instruction,
            state,
        }));
        next = match block.successors.as_slice() {
            [(only, _)] => Some(*only),
            _ => None,
        };
    }
    found
}
