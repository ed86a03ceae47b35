//! The goal of an evicting call: where the function decides on it, and what its variables are there.
//!
//! [`inlined`](super::inlined) and [`called`](super::called) find it, each in one of the two forms
//! that compilers give it.

use evictscope_abi::Variable;
use evictscope_machine::code::{BlockId, EdgeKind, Instruction};
use evictscope_machine::flow::{Execution, State, Value};
use evictscope_machine::sites::Candidate;

use super::comparison::blocks_before_eviction;

/// Most blocks between the deciding branch and a goal site.
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
    /// The edge that this instruction takes where it is.
    pub over_edge: EdgeKind,
    pub over_block: BlockId,
    /// The block in which calls are over the limit by `mem_reported`, but perhaps not by `mem_used`.
    /// `None` in the called form, whose caller does not see it.
    pub first_over_block: Option<BlockId>,
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

/// Returns the points where a goal site could be, in order: what all evicting calls pass after the
/// deciding branch, then that branch, then what they pass before it since they were first found to be
/// over the limit, from the last to the first. No call within the limit by `mem_reported` passes any.
pub fn candidates(execution: &mut Execution<'_>, goal: &GoalCopy) -> Vec<Candidate> {
    let mut found = after_decision(execution, goal);
    let outside_loops = blocks_before_eviction(execution);
    for index in before_decision(execution, goal) {
        if outside_loops.contains(&index) {
            let states = execution.states_in(index);
            found.extend(in_block(execution, index, states, false).into_iter().rev());
        }
    }
    found
}

/// Returns the points of a block, in order, with the states there.
fn in_block(
    execution: &Execution<'_>,
    block: BlockId,
    states: Vec<State>,
    exclusive: bool,
) -> Vec<Candidate> {
    let instructions = execution.code.blocks[block].instructions.iter();
    let candidate = |(instruction, state): (&Instruction, State)| Candidate {
        instruction: *instruction,
        state,
        exclusive,
    };
    instructions.zip(states).map(candidate).collect()
}

/// Returns the blocks that all evicting calls pass from where they were first found to be over the
/// limit up to the decision, the last first.
fn before_decision(execution: &mut Execution<'_>, goal: &GoalCopy) -> Vec<BlockId> {
    let Some(first) = goal.first_over_block else {
        return Vec::new();
    };
    // Where the ways meet before the decision, only one of them can be that of evicting calls. Where
    // they have met, the other calls pass too, and registers hold something else for them.
    let way = execution.only_way(goal.deciding_block, goal.over_edge);
    let last = way.map_or(goal.deciding_block, |(before, _)| before);
    let dominators = execution.code.dominators();
    let chain = dominators.of(last).into_iter().flatten();
    let mut blocks: Vec<BlockId> = Vec::new();
    for block in chain.take(MAX_CHAIN) {
        blocks.push(block);
        if block == first {
            return blocks;
        }
    }
    Vec::new()
}

/// Returns every instruction that all evicting calls pass after the deciding branch.
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
        found.extend(in_block(execution, index, states, true));
        next = match block.successors.as_slice() {
            [(only, _)] => Some(*only),
            _ => None,
        };
    }
    found
}
