//! What a point weighs in the cut at which calls of a function end: what a probe costs there, and how much work would
//! still follow it unmeasured. A point that cannot be an exit weighs [`INFINITE`].

use std::collections::{BTreeMap, BTreeSet};

use crate::code::block::{BlockId, InstructionId};
use crate::code::emulation;
use crate::code::graph::FunctionCode;
use crate::code::instruction::{Instruction, address, is_call, is_conditional_jump};
use crate::elf::address::FileAddress;
use crate::flow::cut::{INFINITE, Point};

use super::calls::Calls;

/// Weight of one unit of relative cost.
const COST_WEIGHT: u64 = 16;
/// Weight of a hit in calls that do not end there: a call should be hit once if possible, but no instruction should be
/// single-stepped for that.
const PASSED_WEIGHT: u64 = 8 * COST_WEIGHT;
/// Weight of each call that can still follow: its work would not be measured.
const FOLLOWING_CALL_WEIGHT: u64 = 4;
/// The most following calls to weigh.
const MAX_FOLLOWING_CALLS: u64 = 16;

/// Returns what each point in the blocks that the calls pass weighs.
pub fn weights(
    code: &FunctionCode,
    passed: &BTreeSet<BlockId>,
    calls: Calls<'_>,
) -> BTreeMap<Point, u64> {
    let shared = match calls.by {
        [] => BTreeSet::new(),
        edges => code.reachable(BlockId::ENTRY, edges),
    };
    let loops = code.loops().into_iter().flatten();
    let looping: BTreeSet<BlockId> = loops.filter(|block| passed.contains(block)).collect();
    let passed_before = calls.inner.iter().chain(calls.work);
    let passed_before: Vec<InstructionId> =
        passed_before.filter_map(|own| place(code, *own)).collect();
    // Whether the call is under way there: in a loop, or before it was seen or did its work.
    let is_under_way = |block: BlockId| {
        let reached = code.reachable(block, &[]);
        let mut elsewhere = passed_before.iter().filter(|own| own.block != block);
        !reached.is_disjoint(&looping) || elsewhere.any(|own| reached.contains(&own.block))
    };
    let mut weights = BTreeMap::new();
    for block in passed {
        let is_excluded = shared.contains(block) || is_under_way(*block);
        let here = passed_before.iter().filter(|own| own.block == *block);
        let is_seen = |index| here.clone().all(|own| own.index < index);
        let own = &code.blocks[*block];
        for (index, instruction) in own.instructions.iter().enumerate() {
            let point = block.instruction(index);
            let weight = match is_excluded || !is_seen(index) {
                true => INFINITE,
                false if emulation::is_long_nop(instruction) => INFINITE,
                false => weight(instruction, calls_from(code, point)),
            };
            weights.insert(Point::Instruction(point), weight);
        }
        let Some(jump) = own.instructions.last() else {
            continue;
        };
        let joining = own.successors.iter().filter(|(to, _)| shared.contains(to));
        // Calls that join others there have no other place to end.
        let is_inner =
            calls.ends_at_inner && calls.inner == Some(address(jump)) && joining.count() == 1;
        let is_told = !calls.by.is_empty()
            && is_conditional_jump(jump)
            && (is_inner || is_seen(own.instructions.len() - 1))
            && !shared.contains(block)
            && !looping.contains(block);
        for (successor, kind) in own.successors.iter().filter(|_| is_told) {
            let can_end = !is_inner || shared.contains(successor);
            if can_end && passed.contains(successor) && !is_under_way(*successor) {
                let following = calls_from(code, successor.first());
                let weight = match is_inner {
                    // Each call is hit there anyway.
                    true => following_weight(following),
                    false => PASSED_WEIGHT + weight(jump, following),
                };
                weights.insert(Point::Way(*block, *kind), weight);
            }
        }
    }
    weights
}

/// Returns the place of the instruction at an address.
fn place(code: &FunctionCode, at: FileAddress) -> Option<InstructionId> {
    code.blocks.entries().find_map(|(id, block)| {
        let mut instructions = block.instructions.iter();
        let index = instructions.position(|own| address(own) == at)?;
        Some(id.instruction(index))
    })
}

fn weight(instruction: &Instruction, following_calls: u64) -> u64 {
    let cost = u64::from(emulation::cost(instruction)) * COST_WEIGHT;
    cost + following_weight(following_calls)
}

fn following_weight(calls: u64) -> u64 {
    calls.min(MAX_FOLLOWING_CALLS) * FOLLOWING_CALL_WEIGHT
}

/// Counts the calls at a point and those that can follow.
fn calls_from(code: &FunctionCode, point: InstructionId) -> u64 {
    let calls = |instructions: &[Instruction]| {
        let calls = instructions.iter().filter(|other| is_call(other));
        calls.count() as u64
    };
    let here = code.blocks[point.block].instructions.get(point.index..);
    let later = code.reachable(point.block, &[]).into_iter();
    let later = later.filter(|other| *other != point.block);
    let later = later.map(|other| calls(&code.blocks[other].instructions));
    here.map_or(0, calls) + later.sum::<u64>()
}
