//! Where the eviction goal is computed: the first inlined copy of `getMaxmemoryState()`.
//!
//! Roles come from structure. `maxmemory` is the global whose address the configuration table
//! gives. The value that is first compared with it is `mem_reported`; the value of the form
//! `mem_reported - x` that is compared with it next is `mem_used`, and `x` is `overhead`. The copy
//! that counts is the first that no loop precedes: later ones look again whether enough was freed.

use evictscope_abi::Variable;
use petgraph::algo::dominators::simple_fast;
use petgraph::graph::NodeIndex;

use crate::code::graph::{EdgeKind, FunctionCode};
use crate::flow::execute::Execution;
use crate::flow::resolve::resolve;
use crate::flow::state::Flags;
use crate::flow::value::{Condition, Relation, Value};
use crate::reason::Reason;
use crate::traced::sites::Candidate;

/// Nothing is compared with `maxmemory`.
const NO_COMPARISON: &str = "the function compares nothing with maxmemory before its first loop";
/// `mem_reported` is compared with it, and nothing derived from it.
const NO_GOAL: &str = "memory is compared with maxmemory, but not less an overhead: no inlined copy of getMaxmemoryState";
/// Most blocks between the deciding branch and a goal site.
const MAX_CHAIN: usize = 16;

/// How the eviction function comes to its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By an inlined copy of `getMaxmemoryState()`.
    Inlined,
    /// By a call of it.
    Called,
}

/// The copy of the calculation that sets the goal.
#[derive(Debug)]
pub struct GoalCopy {
    /// Whether it is inlined.
    pub form: Form,
    /// The block whose last instruction decides whether memory is over the limit.
    pub deciding_block: usize,
    /// The edge it takes where it is.
    pub over_edge: EdgeKind,
    /// The block that this edge leads to.
    pub over_block: usize,
    /// The block in which calls are over the limit by `mem_reported`, but perhaps not by `mem_used`;
    /// none in the called form, whose caller does not see it.
    pub first_over_block: Option<usize>,
    /// All memory tracked by the allocator.
    pub mem_reported: Value,
    /// `mem_reported - mem_used`.
    pub overhead: Value,
    /// What is compared with the limit.
    pub mem_used: Value,
    /// `mem_used - maxmemory`.
    pub mem_tofree: Value,
    /// The limit.
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

/// Finds the copy that sets the goal.
///
/// # Errors
///
/// Where the function does not look like an eviction call with an inlined copy.
pub fn find(execution: &mut Execution<'_>, maxmemory: u64) -> Result<GoalCopy, Reason> {
    let mut reported: Vec<Value> = Vec::new();
    let mut first_over_block = None;
    for block in blocks_before_eviction(execution) {
        let Some(comparison) = comparison_with(execution, block, maxmemory) else {
            continue;
        };
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
                first_over_block,
                mem_reported,
                overhead,
                mem_tofree: mem_used.minus(&comparison.maxmemory),
                mem_used,
                maxmemory: comparison.maxmemory,
            });
        }
        first_over_block = first_over_block.or(Some(over_block));
        reported.push(comparison.value);
    }
    Err(Reason::Unrecognised(match reported.is_empty() {
        true => NO_COMPARISON,
        false => NO_GOAL,
    }))
}

/// The points where a goal site could be, in order: what all evicting calls pass after the deciding
/// branch, that branch itself, and what they pass before it since they were first found to be over
/// the limit, from the last to the first.
pub fn candidates(execution: &mut Execution<'_>, goal: &GoalCopy) -> Vec<Candidate> {
    let mut found = after_decision(execution, goal);
    let outside_loops = blocks_before_eviction(execution);
    for index in before_decision(execution.code, goal) {
        let Some(block) = execution.code.blocks.get(index) else {
            break;
        };
        if !outside_loops.contains(&index) {
            continue;
        }
        let states = execution.states_in(index);
        let instructions = block.instructions.iter().zip(states).rev();
        found.extend(instructions.map(|(instruction, state)| Candidate {
            instruction: *instruction,
            state,
            exclusive: false,
        }));
    }
    found
}

/// The blocks that all evicting calls pass from where they were first found to be over the limit up
/// to the decision, the last first.
fn before_decision(code: &FunctionCode, goal: &GoalCopy) -> Vec<usize> {
    let Some(first) = goal.first_over_block else {
        return Vec::new();
    };
    let dominators = simple_fast(&code.graph(), NodeIndex::new(0));
    let chain = dominators.dominators(NodeIndex::new(goal.deciding_block));
    let mut blocks = Vec::new();
    for block in chain.into_iter().flatten().take(MAX_CHAIN) {
        blocks.push(block.index());
        if block.index() == first {
            return blocks;
        }
    }
    Vec::new()
}

/// Every instruction that all evicting calls pass after the deciding branch.
pub fn after_decision(execution: &mut Execution<'_>, goal: &GoalCopy) -> Vec<Candidate> {
    let mut found = Vec::new();
    let code = execution.code;
    let mut next = Some(goal.over_block);
    for _ in 0..MAX_CHAIN {
        let Some((index, block)) = next.and_then(|index| Some((index, code.blocks.get(index)?)))
        else {
            break;
        };
        if block.predecessors.len() != 1 {
            break;
        }
        let states = execution.states_in(index);
        for (instruction, state) in block.instructions.iter().zip(states) {
            found.push(Candidate {
                instruction: *instruction,
                state,
                exclusive: true,
            });
        }
        next = match block.successors.as_slice() {
            [(only, _)] => Some(*only),
            _ => None,
        };
    }
    found
}

/// A comparison with `maxmemory`.
pub struct Comparison {
    /// What is compared.
    pub value: Value,
    /// The load of `maxmemory` that it is compared with.
    pub maxmemory: Value,
    /// The edge that is taken where the value is above, and the block it leads to.
    pub over: Option<(EdgeKind, usize)>,
}

/// The first comparison with `maxmemory` that tells what is above it, and its block.
pub fn first_comparison(
    execution: &mut Execution<'_>,
    maxmemory: u64,
) -> Option<(usize, Comparison)> {
    blocks_before_eviction(execution)
        .into_iter()
        .find_map(|block| {
            let comparison = comparison_with(execution, block, maxmemory)?;
            comparison.over.map(|_| (block, comparison))
        })
}

/// What a block's last instruction, a conditional jump, compares with the global at `maxmemory`,
/// and the edge it takes where that value is above it.
fn comparison_with(
    execution: &mut Execution<'_>,
    block: usize,
    maxmemory: u64,
) -> Option<Comparison> {
    let code = execution.code;
    let last = code.blocks.get(block)?.instructions.last()?;
    if !last.is_jcc_short_or_near() {
        return None;
    }
    let states = execution.states_in(block);
    let Flags::Comparison {
        left,
        right,
        bits: 64,
    } = &states.last()?.flags
    else {
        return None;
    };
    let is_limit = |value: &Value| execution.atoms.as_global(value) == Some(maxmemory);
    let (value, limit) = match (is_limit(left), is_limit(right)) {
        (true, false) => (right.clone(), left.clone()),
        (false, true) => (left.clone(), right.clone()),
        _ => return None,
    };
    if value.as_constant().is_some() {
        return None;
    }
    let condition = states.last()?.flags.condition(last.condition_code())?;
    let is_over = |condition: &Condition| {
        condition.relation == Relation::Below && condition.left == limit && condition.right == value
    };
    let over_edge = if is_over(&condition) {
        Some(EdgeKind::Taken)
    } else if is_over(&condition.negated()) {
        Some(EdgeKind::FallThrough)
    } else {
        None
    };
    let over = over_edge.and_then(|edge| {
        let successors = &code.blocks.get(block)?.successors;
        let (target, _) = successors.iter().find(|(_, kind)| *kind == edge)?;
        Some((edge, *target))
    });
    Some(Comparison {
        value,
        maxmemory: limit,
        over,
    })
}

/// The blocks outside of loops that no loop with a call precedes, in order of execution. (A loop
/// without calls adds up the allocator's counters or the replicas' buffers; the loop that evicts
/// calls.)
pub fn blocks_before_eviction(execution: &Execution<'_>) -> Vec<usize> {
    let blocks = &execution.code.blocks;
    let mut loop_of = vec![None; blocks.len()];
    let mut evicts = Vec::new();
    for (number, members) in execution.code.loops().into_iter().enumerate() {
        evicts.push(members.iter().any(|block| blocks[*block].calls()));
        for block in members {
            loop_of[block] = Some(number);
        }
    }
    let mut before = vec![false; blocks.len()];
    for index in &execution.order {
        let own = loop_of[*index];
        let in_eviction = own.is_some_and(|number| evicts[number]);
        before[*index] = !in_eviction
            && blocks[*index].predecessors.iter().all(|predecessor| {
                before[*predecessor] || (own.is_some() && loop_of[*predecessor] == own)
            });
    }
    let order = execution.order.iter().copied();
    order
        .filter(|index| before[*index] && loop_of[*index].is_none())
        .collect()
}
