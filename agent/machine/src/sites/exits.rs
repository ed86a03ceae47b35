//! Where calls of a function end: exit sites by minimum cut.
//!
//! Every path of a call, from where it is first seen to the function's returns, passes exactly one exit. A point's
//! weight in the cut is what a probe costs there and how much work would still follow it unmeasured. A point that a
//! loop can follow is no candidate, because the loop is the work; nor is one that other calls pass, which must not pay
//! for these. Compilers merge the ends of both kinds of calls, so that sometimes only a conditional jump tells them
//! apart: then the exit is one of the ways out of it.

use std::collections::{BTreeMap, BTreeSet};

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_abi::MAX_DONE_SITES;
use evictscope_model::FileAddress;
use serde::Serialize;

use super::site::Calls;
use crate::code::graph::{BlockId, EdgeKind, FunctionCode, InstructionId};
use crate::flow::cut::{CutError, CutPoint, INFINITE, minimum_cut};
use crate::flow::execution::Execution;
use crate::ir::{Flow, Hit, Instruction};

/// Weight of each thing that is not known at a point: that of some more sites, of which each call passes only one.
const UNKNOWN_WEIGHT: u64 = 1_000;
/// The most points at which to ask what is known.
const MAX_ASKED: usize = 64;

/// One of the two ways out of a conditional jump.
#[derive(BorshDeserialize, BorshSerialize, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Way {
    /// Whether the jump is taken.
    pub taken: bool,
    /// The test under which control goes that way, as [`When`](evictscope_abi::When) encodes it.
    #[serde(skip)]
    pub when: u16,
}

/// An exit.
pub struct FoundExit<K> {
    /// The instruction that the probe sits on.
    pub instruction: Instruction,
    /// The way out of it that ends a call, if the other does not.
    pub way: Option<Way>,
    /// What is known there.
    pub known: K,
}

/// Finds the exits of `calls`. `look` returns what is known at a point, and how many things are not. Fails if the graph
/// is incomplete or has no usable cut.
pub fn find<K>(
    execution: &mut Execution<'_>,
    calls: Calls<'_>,
    mut look: impl FnMut(&mut Execution<'_>, CutPoint) -> (K, u64),
) -> Result<Vec<FoundExit<K>>, CutError> {
    let code = execution.code;
    if let Some(address) = code.unresolved_jumps.first() {
        return Err(CutError::Indirect(*address));
    }
    let mut weights = weights(code, &calls.passed_blocks(code), calls);
    // Finding out what is known is expensive, so at first everything counts as known everywhere. Once each point of the
    // minimum cut has been looked at, no other cut can cost less.
    let mut known: BTreeMap<CutPoint, K> = BTreeMap::new();
    let cut = loop {
        let cut = minimum_cut(code, &weights, calls.block)?;
        let is_last = known.len() >= MAX_ASKED || cut.iter().all(|point| known.contains_key(point));
        for point in &cut {
            if known.contains_key(point) {
                continue;
            }
            let (here, missing) = look(execution, *point);
            if let Some(weight) = weights.get_mut(point) {
                *weight += missing * UNKNOWN_WEIGHT;
            }
            known.insert(*point, here);
        }
        if is_last {
            break cut;
        }
    };
    if cut.len() > MAX_DONE_SITES {
        return Err(CutError::TooMany(cut.len()));
    }
    let exits = cut.into_iter().map(|point| {
        let (instruction, way) = site(code, point)?;
        Some(FoundExit { instruction, way, known: known.remove(&point)? })
    });
    exits.collect::<Option<_>>().ok_or(CutError::NoCut)
}

/// Returns the instruction that a probe at a point sits on, and the way out of it that is meant.
fn site(code: &FunctionCode, point: CutPoint) -> Option<(Instruction, Option<Way>)> {
    match point {
        CutPoint::Instruction(InstructionId { block, index }) => {
            let instruction = code.blocks[block].instructions.get(index)?;
            Some((instruction.clone(), None))
        }
        CutPoint::Way(block, kind) => {
            let jump = code.blocks[block].instructions.last()?;
            let taken = kind == EdgeKind::Taken;
            let Flow::Branch(test, _) = jump.flow else { return None };
            let when = code.architecture.when(test)?;
            let when = if taken { when } else { when.opposite() };
            Some((jump.clone(), Some(Way { taken, when: when.encode() })))
        }
    }
}

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
pub fn weights(code: &FunctionCode, passed: &BTreeSet<BlockId>, calls: Calls<'_>) -> BTreeMap<CutPoint, u64> {
    let shared = match calls.by {
        [] => BTreeSet::new(),
        edges => code.reachable(BlockId::ENTRY, edges),
    };
    let loops = code.loops().into_iter().flatten();
    let looping: BTreeSet<BlockId> = loops.filter(|block| passed.contains(block)).collect();
    let passed_before = calls.inner.iter().chain(calls.work);
    let passed_before: Vec<InstructionId> = passed_before.filter_map(|at| place(code, *at)).collect();
    // Whether the call is under way there: in a loop, or before it was seen or did its work.
    let is_under_way = |block: BlockId| {
        let reached = code.reachable(block, &[]);
        let mut elsewhere = passed_before.iter().filter(|id| id.block != block);
        !reached.is_disjoint(&looping) || elsewhere.any(|id| reached.contains(&id.block))
    };
    let mut weights = BTreeMap::new();
    for block in passed {
        let is_excluded = shared.contains(block) || is_under_way(*block);
        let here = passed_before.iter().filter(|id| id.block == *block);
        let is_seen = |index| here.clone().all(|id| id.index < index);
        let body = &code.blocks[*block];
        for (index, instruction) in body.instructions.iter().enumerate() {
            let point = block.instruction(index);
            let is_barred = is_excluded || !is_seen(index) || instruction.hit == Hit::Forbidden;
            let weight = || cost_weight(instruction) + following_weight(calls_from(code, point));
            weights.insert(CutPoint::Instruction(point), if is_barred { INFINITE } else { weight() });
        }
        let Some(jump) = body.instructions.last() else { continue };
        let joining = body.successors.iter().filter(|(to, _)| shared.contains(to));
        // Calls that join others there have no other place to end.
        let is_inner = calls.ends_at_inner && calls.inner == Some(jump.address) && joining.count() == 1;
        let can_part = !calls.by.is_empty()
            && jump.is_branch()
            && (is_inner || is_seen(body.instructions.len() - 1))
            && !shared.contains(block)
            && !looping.contains(block);
        for (successor, kind) in body.successors.iter().filter(|_| can_part) {
            let can_end = !is_inner || shared.contains(successor);
            if can_end && passed.contains(successor) && !is_under_way(*successor) {
                let following = calls_from(code, successor.first());
                // Each call is hit at the inner site anyway.
                let hit_weight = if is_inner { 0 } else { PASSED_WEIGHT + cost_weight(jump) };
                weights.insert(CutPoint::Way(*block, *kind), hit_weight + following_weight(following));
            }
        }
    }
    weights
}

fn place(code: &FunctionCode, at: FileAddress) -> Option<InstructionId> {
    code.blocks.entries().find_map(|(id, block)| {
        let index = block.instructions.iter().position(|instruction| instruction.address == at)?;
        Some(id.instruction(index))
    })
}

fn cost_weight(instruction: &Instruction) -> u64 {
    u64::from(instruction.hit.cost()) * COST_WEIGHT
}

fn following_weight(calls: u64) -> u64 {
    calls.min(MAX_FOLLOWING_CALLS) * FOLLOWING_CALL_WEIGHT
}

/// Counts the calls at a point and those that can follow.
fn calls_from(code: &FunctionCode, point: InstructionId) -> u64 {
    let calls = |instructions: &[Instruction]| instructions.iter().filter(|other| other.is_call()).count() as u64;
    let here = code.blocks[point.block].instructions.get(point.index..);
    let later = code.reachable(point.block, &[]).into_iter().filter(|other| *other != point.block);
    let later = later.map(|other| calls(&code.blocks[other].instructions));
    here.map_or(0, calls) + later.sum::<u64>()
}

#[cfg(test)]
mod tests {
    use evictscope_model::FileAddress;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::{FoundExit, find};
    use crate::code::graph::{BlockId, EdgeKind, FunctionCode};
    use crate::elf::image::Image;
    use crate::flow::Operand;
    use crate::flow::execution::Execution;
    use crate::flow::returns::Results;
    use crate::sites::site::Calls;

    /// The address of the code, of which the second jump is an exit for those that take it.
    const CODE: FileAddress = FileAddress::new(0x1000);
    /// How compilers merge the ends of calls that do nothing with those of others: `xor %eax, %eax; test %edi, %edi; je
    /// 1f; mov $2, %eax; test %esi, %esi; je 1f; call 0x2000; xor %eax, %eax; 1: ret`
    const MERGED_ENDS: [u8; 23] = [
        0x31, 0xc0, 0x85, 0xff, 0x74, 0x10, 0xb8, 0x02, 0x00, 0x00, 0x00, 0x85, 0xf6, 0x74, 0x07, 0xe8, 0xec, 0x0f,
        0x00, 0x00, 0x31, 0xc0, 0xc3,
    ];

    /// An exit: its address, whether its jump must be taken, and the result.
    type Found = (u64, Option<bool>, Option<Operand>);

    /// Returns the exits of the calls that do not take the first jump.
    fn exits(inner: Option<FileAddress>, ends_at_inner: bool) -> Option<Vec<Found>> {
        let image = Image::of_code(&MERGED_ENDS, CODE);
        let code = FunctionCode::decode(&image, CODE).ok()?;
        let (block, _) =
            *(code.blocks[BlockId::ENTRY].successors.iter()).find(|(_, kind)| *kind == EdgeKind::FallThrough)?;
        let calls = Calls { block, by: &[(BlockId::ENTRY, EdgeKind::FallThrough)], inner, ends_at_inner, work: &[] };
        let mut execution = Execution::run(&code);
        let results = Results::new(&mut execution, &calls.passed_blocks(&code), &[0, 1, 2]);
        let look = |execution: &mut Execution<'_>, point| {
            let result = results.at(execution, point);
            let missing = u64::from(result.is_none());
            (result, missing)
        };
        let exit = find(&mut execution, calls, look).ok()?.into_iter().map(|exit| {
            let taken = exit.way.map(|way| way.taken);
            (exit.instruction.address.get(), taken, exit.known)
        });
        Some(exit.collect())
    }

    #[test]
    fn where_ends_are_merged_a_way_out_of_a_jump_is_an_exit() {
        let jump = (0x100d, Some(true), Some(Operand::Constant(2)));
        let rest = (0x100d, Some(false), Some(Operand::Constant(0)));
        let found = exits(None, false).unwrap_or_default();
        assert!(found.contains(&jump), "{found:?}");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(!found.contains(&rest), "the call would not be timed: {found:?}");
    }

    /// Nothing else distinguishes the call that takes the second jump from those that take the first.
    #[test]
    fn no_other_probe_is_at_the_inner_site_which_can_end_calls_itself() {
        let second_jump = Some(FileAddress::new(0x100d));
        assert_eq!(exits(second_jump, false), None);
        let found = exits(second_jump, true).unwrap_or_default();
        let at_inner = (0x100d, Some(true), Some(Operand::Constant(2)));
        assert!(found.contains(&at_inner), "{found:?}");
        assert_eq!(found.len(), 2, "{found:?}");
    }

    /// Bytes of each part of a function: one-byte instructions, and how it continues.
    const PART: usize = 8;

    /// How a part continues: it returns, jumps, or jumps if `ZF` is set; and to which part.
    type Part = (u8, Index);

    fn assemble(parts: &[Part]) -> Vec<u8> {
        let mut code = Vec::new();
        for (place, (kind, to)) in parts.iter().enumerate() {
            let parts = to.index(parts.len() + 1) as i32 - (place as i32 + 1);
            let jump: &[u8] = match kind {
                0 => &[0xc3],
                1 => &[0x90, 0x90, 0x90, 0xe9],
                _ => &[0x90, 0x90, 0x0f, 0x84],
            };
            code.extend_from_slice(jump);
            code.extend_from_slice(&(parts * PART as i32).to_le_bytes());
            code.resize((place + 1) * PART, 0x90);
        }
        code.push(0xc3);
        code
    }

    /// Returns whether a call that leaves the end of a block in this way ends at an exit there.
    fn ends(exit: &FoundExit<()>, kind: EdgeKind) -> bool {
        exit.way.map(|way| way.taken).is_none_or(|taken| taken == (kind == EdgeKind::Taken))
    }

    proptest! {
        /// A call that takes an edge ends at one exit after it, whatever its path. One that does not take it reaches no
        /// instruction that has a probe.
        #[test]
        fn calls_pass_one_exit_and_others_no_probe(
            parts in prop::collection::vec((0..4_u8, any::<Index>()), 2..16),
            edge in any::<Index>(),
            ends_at_inner in any::<bool>(),
            turns in prop::collection::vec(any::<bool>(), 400),
        ) {
            let bytes = assemble(&parts);
            let image = Image::of_code(&bytes, CODE);
            let Ok(code) = FunctionCode::decode(&image, CODE) else { return Ok(()) };
            let edges = code.blocks.entries().flat_map(|(id, block)| {
                block.successors.iter().map(move |(to, kind)| (id, *kind, *to))
            });
            let edges: Vec<(BlockId, EdgeKind, BlockId)> = edges
                .filter(|(from, _, to)| {
                    code.blocks[*from].successors.len() == 2 && code.blocks[*to].predecessors.len() == 1
                })
                .collect();
            let Some((from, taken, over)) = edges.get(edge.index(edges.len().max(1))).copied() else { return Ok(()) };
            let last = code.blocks[over].instructions.last().map(|last| last.address);
            let goal = last.filter(|_| ends_at_inner).unwrap_or(code.blocks[over].address());
            let calls = Calls { block: over, by: &[(from, taken)], inner: Some(goal), ends_at_inner, work: &[] };
            let mut execution = Execution::run(&code);
            let Ok(exits) = find(&mut execution, calls, |_, _| ((), 0)) else { return Ok(()) };
            let mut turns = turns.iter();
            while turns.len() > 0 {
                let (mut block, mut is_over, mut hits, mut ended) = (BlockId::ENTRY, 0, 0, 0);
                loop {
                    let body = &code.blocks[block];
                    let turn = turns.next().map_or(0, |turn| usize::from(*turn));
                    let next = body.successors.get(turn.min(body.successors.len().saturating_sub(1)));
                    for (index, instruction) in body.instructions.iter().enumerate() {
                        let is_last = index + 1 == body.instructions.len();
                        let here = exits.iter().filter(|exit| exit.instruction.address == instruction.address);
                        for exit in here {
                            hits += 1;
                            ended += usize::from(!is_last || next.is_none_or(|(_, kind)| ends(exit, *kind)));
                        }
                        hits += usize::from(instruction.address == goal);
                    }
                    prop_assert!(is_over > 0 || hits == 0, "{:x?}", calls);
                    let Some((to, kind)) = next else {
                        prop_assert!(ended == usize::from(is_over > 0), "{:x?}", calls);
                        break;
                    };
                    is_over += usize::from((block, *kind) == (from, taken));
                    block = *to;
                    if is_over > 1 || turns.len() == 0 {
                        break;
                    }
                }
            }
        }
    }
}
