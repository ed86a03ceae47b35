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
//! `maxmemory` is the global whose address the configuration table gives. The value that is first compared with it is
//! `mem_reported`. The value of the form `mem_reported - x` that is compared with it next is `mem_used`, and `x` is
//! `overhead`. The copy that counts is the first that no loop precedes.

use evictscope_abi::Variable;
use evictscope_machine::code::{BlockId, EdgeKind};
use evictscope_machine::flow::{Atoms, Condition, Execution, Relation, Value, blocks_that_access, resolve};
use evictscope_machine::ir::Instruction;
use evictscope_machine::sites::SiteCandidate;
use evictscope_model::FileAddress;

use crate::item::Reason;

/// Nothing is compared with `maxmemory`.
const NO_COMPARISON: &str = "the function compares nothing with maxmemory before its first loop";
/// `mem_reported` is compared with it, and nothing derived from it.
const NO_GOAL: &str = "memory is compared with maxmemory, but no value recognised as memory less an overhead is";

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
    Err(Reason::Unrecognised(if reported.is_empty() { NO_COMPARISON } else { NO_GOAL }))
}

/// The edge that is taken if a value is above the limit, and the block it leads to.
pub type Over = (EdgeKind, BlockId);

/// A comparison with `maxmemory`.
pub struct Comparison {
    pub value: Value,
    /// The load of `maxmemory` that it is compared with.
    pub maxmemory: Value,
    /// Where the value is above; `None` if the comparison only says where it is not.
    pub over: Option<Over>,
}

/// Returns the first comparison with `maxmemory` that tells what is above it: its block, and where it leads.
pub fn first_comparison(execution: &mut Execution<'_>, maxmemory: FileAddress) -> Option<(BlockId, Over)> {
    blocks_before_eviction(execution, None).into_iter().find_map(|block| {
        let over = comparisons_with(execution, block, maxmemory).into_iter().find_map(|comparison| comparison.over)?;
        Some((block, over))
    })
}

/// Returns what the conditional jump at the end of a block tells about values in relation to the
/// global at `maxmemory`, first what is above it. The jump can depend on several earlier
/// comparisons, here or on the only way to one of its edges.
pub fn comparisons_with(execution: &mut Execution<'_>, block: BlockId, maxmemory: FileAddress) -> Vec<Comparison> {
    let code = execution.code;
    let last = code.blocks[block].instructions.last();
    let Some(known) = execution.state_at(block).map(|state| state.facts.clone()) else { return Vec::new() };
    if !last.is_some_and(Instruction::is_branch) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (target, edge) in &code.blocks[block].successors {
        let Some(state) = execution.state_along(block, *edge) else { continue };
        for fact in state.facts.iter().filter(|fact| !known.contains(fact)) {
            let over = (*edge, *target);
            found.extend(comparison_in(&execution.atoms, fact, over, maxmemory));
        }
    }
    found.sort_by_key(|comparison| comparison.over.is_none());
    found
}

/// Returns what a condition says about a value in relation to the global at `maxmemory`; the condition holds after
/// `edge`.
fn comparison_in(atoms: &Atoms, condition: &Condition, edge: Over, maxmemory: FileAddress) -> Option<Comparison> {
    let is_limit = |value: &Value| atoms.as_global(value) == Some(maxmemory);
    let (left, right) = (&condition.left, &condition.right);
    let (value, limit) = match (is_limit(left), is_limit(right)) {
        (true, false) => (right, left),
        (false, true) => (left, right),
        _ => return None,
    };
    let is_over = condition.relation == Relation::Below && limit == left;
    let is_comparison = condition.bits == 64 && value.as_constant().is_none();
    is_comparison.then(|| Comparison { value: value.clone(), maxmemory: limit.clone(), over: is_over.then_some(edge) })
}

/// Returns the blocks outside of loops that no loop that may evict precedes, in order of execution. The loop that
/// evicts has calls, and the function looks at the global `policy` in it or before. A loop without calls adds up the
/// allocator's counters or the replicas' buffers; a loop before any look at the policy lets paused clients go on.
pub fn blocks_before_eviction(execution: &mut Execution<'_>, policy: Option<FileAddress>) -> Vec<BlockId> {
    let code = execution.code;
    let blocks = &code.blocks;
    let looks = policy.map(|policy| blocks_that_access(execution, policy)).unwrap_or_default();
    let mut loop_of = blocks.filled(None);
    let mut evicts = Vec::new();
    for (number, members) in code.loops().into_iter().enumerate() {
        let is_behind_look = || {
            let leading = code.leading_to(members.clone(), &[]);
            looks.iter().any(|look| leading.contains(look))
        };
        let calls = members.iter().any(|block| blocks[*block].calls());
        evicts.push(calls && (looks.is_empty() || is_behind_look()));
        for block in members {
            loop_of[block] = Some(number);
        }
    }
    let mut before = blocks.filled(false);
    for index in &execution.order.blocks {
        let its_loop = loop_of[*index];
        let in_eviction = its_loop.is_some_and(|number| evicts[number]);
        before[*index] = !in_eviction
            && blocks[*index]
                .predecessors
                .iter()
                .all(|predecessor| before[*predecessor] || (its_loop.is_some() && loop_of[*predecessor] == its_loop));
    }
    execution.order.blocks.iter().copied().filter(|index| before[*index] && loop_of[*index].is_none()).collect()
}

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
pub fn after_decision(execution: &mut Execution<'_>, goal: &GoalCopy) -> Vec<SiteCandidate> {
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
        found.extend(points.map(|(instruction, state)| SiteCandidate { instruction: instruction.clone(), state }));
        next = if let [(only, _)] = block.successors.as_slice() { Some(*only) } else { None };
    }
    found
}
