//! Where calls of a traced function end: exit sites by minimum cut.
//!
//! Every path of a call, from where it is seen first to the function's returns, must pass exactly one
//! exit site. What an instruction weighs in the cut is what a probe costs there and how much work
//! would still follow it unmeasured. An instruction that a loop can follow is no candidate, as the
//! loop is the work.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::Instruction;

use crate::code::block::{BlockId, InstructionId};
use crate::code::emulation;
use crate::code::graph::{EdgeKind, FunctionCode};
use crate::code::instruction::is_call;
use crate::flow::cut::{CutError, INFINITE, minimum_cut};
use crate::flow::execution::Execution;
use crate::flow::recipe::Operand;
use crate::flow::result::Results;

/// Factor for an instruction that other calls execute, too: it would cost those.
const SHARED_FACTOR: u64 = 1_000;
/// Weight of one unit of relative cost.
const COST_WEIGHT: u64 = 16;
/// Weight of each call that can still follow: its work would not be measured.
const FOLLOWING_CALL_WEIGHT: u64 = 4;
/// Most following calls that are weighed.
const MAX_FOLLOWING_CALLS: u64 = 16;
/// Weight of an instruction where the result is not known; less than that of one more site.
const RESULT_UNKNOWN_WEIGHT: u64 = 24;
/// Most points that are asked for the result.
const MAX_RESULTS: usize = 48;

/// The calls whose exits are looked for: those that come to a block.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// The block that they come to.
    pub block: BlockId,
    /// The branch by which they come there, where other calls take another edge of it.
    pub by: Option<(BlockId, EdgeKind)>,
}

impl Calls {
    /// All calls of the function.
    pub const ALL: Self = Self {
        block: BlockId::ENTRY,
        by: None,
    };
}

/// An exit: the instruction that the probe sits on, and what holds the result there, if known.
pub type FoundExit = (Instruction, Option<Operand>);

/// Finds the exits of `calls`. `results` has all results that the function can have. Fails where the
/// graph is incomplete or has no usable cut.
pub fn find(
    execution: &mut Execution<'_>,
    calls: Calls,
    results: &[u64],
) -> Result<Vec<FoundExit>, CutError> {
    let code = execution.code;
    if let Some(address) = code.unresolved_jumps.first() {
        return Err(CutError::Indirect(*address));
    }
    let passed = reachable(code, calls.block, None);
    let results = Results::new(execution, &passed, results);
    let mut weights = weights(code, &passed, calls);
    // Whether the result is known is expensive to tell, so at first it counts as known everywhere.
    // Once it is known or weighed at each site of the least cut, no other cut can cost less.
    let mut known: BTreeMap<InstructionId, Option<Operand>> = BTreeMap::new();
    loop {
        let cut = minimum_cut(code, &weights, calls.block)?;
        let news: Vec<InstructionId> = (cut.iter().copied())
            .filter(|point| !known.contains_key(point))
            .collect();
        if news.is_empty() || known.len() >= MAX_RESULTS {
            let exit = |point: InstructionId| {
                let result = known.remove(&point).flatten();
                (code.blocks[point.block].instructions[point.index], result)
            };
            return Ok(cut.into_iter().map(exit).collect());
        }
        for point in news {
            let result = results.at(execution, point);
            if result.is_none()
                && let Some(weight) = weights.get_mut(&point)
            {
                *weight += RESULT_UNKNOWN_WEIGHT;
            }
            known.insert(point, result);
        }
    }
}

/// Returns what each point in the blocks that the calls pass weighs.
fn weights(
    code: &FunctionCode,
    passed: &BTreeSet<BlockId>,
    calls: Calls,
) -> BTreeMap<InstructionId, u64> {
    let shared = match calls.by {
        Some(edge) => reachable(code, BlockId::ENTRY, Some(edge)),
        None => BTreeSet::new(),
    };
    let looping: BTreeSet<BlockId> = code.loops().into_iter().flatten().collect();
    let mut weights = BTreeMap::new();
    for block in passed {
        let before_loop = !reachable(code, *block, None).is_disjoint(&looping);
        for (index, instruction) in code.blocks[*block].instructions.iter().enumerate() {
            let cost = u64::from(emulation::cost(instruction)) * COST_WEIGHT;
            let point = block.instruction(index);
            let following = calls_from(code, point).min(MAX_FOLLOWING_CALLS);
            let weight = cost + following * FOLLOWING_CALL_WEIGHT;
            let weight = match (before_loop, shared.contains(block)) {
                (true, _) => INFINITE,
                (false, true) => weight * SHARED_FACTOR,
                (false, false) => weight,
            };
            weights.insert(point, weight);
        }
    }
    weights
}

/// Returns the blocks reachable from `from`, without passing the edge `except`.
fn reachable(
    code: &FunctionCode,
    from: BlockId,
    except: Option<(BlockId, EdgeKind)>,
) -> BTreeSet<BlockId> {
    let mut seen = BTreeSet::from([from]);
    let mut pending = vec![from];
    while let Some(block) = pending.pop() {
        if !code.budget.spend(2) {
            break;
        }
        for (successor, kind) in &code.blocks[block].successors {
            if except != Some((block, *kind)) && seen.insert(*successor) {
                pending.push(*successor);
            }
        }
    }
    seen
}

/// Counts the calls that can follow from a point on, itself included.
fn calls_from(code: &FunctionCode, point: InstructionId) -> u64 {
    let calls = |instructions: &[Instruction]| {
        let calls = instructions.iter().filter(|other| is_call(other));
        calls.count() as u64
    };
    let here = code.blocks[point.block].instructions.get(point.index..);
    let later = reachable(code, point.block, None).into_iter();
    let later = later.filter(|other| *other != point.block);
    let later = later.map(|other| calls(&code.blocks[other].instructions));
    here.map_or(0, calls) + later.sum::<u64>()
}
