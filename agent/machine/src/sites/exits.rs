//! Where calls of a function end: exit sites by minimum cut.
//!
//! Every path of a call, from where it is first seen to the function's returns, passes exactly one exit. A point's
//! weight in the cut is what a probe costs there and how much work would still follow it unmeasured. A point that a
//! loop can follow is no candidate, because the loop is the work; nor is one that other calls pass, which must not pay
//! for these. Compilers merge the ends of both kinds of calls, so that sometimes only a conditional jump tells them
//! apart: then the exit is one of the ways out of it.

use std::collections::BTreeMap;

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_abi::MAX_DONE_SITES;
use iced_x86::ConditionCode;
use serde::Serialize;

use crate::code::block::InstructionId;
use crate::code::graph::{EdgeKind, FunctionCode};
use crate::code::instruction::Instruction;
use crate::flow::cut::{CutError, Point, minimum_cut};
use crate::flow::execution::Execution;

use super::calls::Calls;
use super::weights::weights;

/// Weight of each thing that is not known at a point: that of some more sites, of which each call passes only one.
const UNKNOWN_WEIGHT: u64 = 1_000;
/// The most points at which to ask what is known.
const MAX_ASKED: usize = 64;

/// One of the two ways out of a conditional jump.
#[derive(BorshDeserialize, BorshSerialize, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Way {
    /// Whether the jump is taken.
    pub taken: bool,
    /// The condition of the flags under which control goes that way, by its number in x86-64 instructions.
    #[serde(skip)]
    pub condition: u8,
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
    mut look: impl FnMut(&mut Execution<'_>, Point) -> (K, u64),
) -> Result<Vec<FoundExit<K>>, CutError> {
    let code = execution.code;
    if let Some(address) = code.unresolved_jumps.first() {
        return Err(CutError::Indirect(*address));
    }
    let mut weights = weights(code, &calls.passed_blocks(code), calls);
    // Finding out what is known is expensive, so at first everything counts as known everywhere. Once each point of the
    // minimum cut has been looked at, no other cut can cost less.
    let mut known: BTreeMap<Point, K> = BTreeMap::new();
    let cut = loop {
        let cut = minimum_cut(code, &weights, calls.block)?;
        let is_last = known.len() >= MAX_ASKED || cut.iter().all(|own| known.contains_key(own));
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
        Some(FoundExit {
            instruction,
            way,
            known: known.remove(&point)?,
        })
    });
    exits.collect::<Option<_>>().ok_or(CutError::NoCut)
}

/// Returns the instruction that a probe at a point sits on, and the way out of it that is meant.
fn site(code: &FunctionCode, point: Point) -> Option<(Instruction, Option<Way>)> {
    match point {
        Point::Instruction(InstructionId { block, index }) => {
            let instruction = code.blocks[block].instructions.get(index)?;
            Some((*instruction, None))
        }
        Point::Way(block, kind) => {
            let jump = code.blocks[block].instructions.last()?;
            let taken = kind == EdgeKind::Taken;
            // The opposite of a condition differs from it in the lowest bit.
            let condition = number(jump.condition_code())? ^ u8::from(!taken);
            Some((*jump, Some(Way { taken, condition })))
        }
    }
}

/// Returns the number of a condition in x86-64 instructions.
fn number(condition: ConditionCode) -> Option<u8> {
    (condition as u8).checked_sub(ConditionCode::o as u8)
}

#[cfg(test)]
mod generated;

#[cfg(test)]
mod tests {
    use super::find;
    use crate::code::block::BlockId;
    use crate::code::graph::{EdgeKind, FunctionCode};
    use crate::elf::address::FileAddress;
    use crate::elf::image::Image;
    use crate::flow::execution::Execution;
    use crate::flow::operand::Operand;
    use crate::flow::result::Results;
    use crate::sites::calls::Calls;

    /// The address of the code, of which the second jump is an exit for those that take it.
    const CODE: FileAddress = FileAddress::new(0x1000);
    /// How compilers merge the ends of calls that do nothing with those of others:
    /// `xor %eax, %eax; test %edi, %edi; je 1f; mov $2, %eax; test %esi, %esi; je 1f;
    /// call 0x2000; xor %eax, %eax; 1: ret`
    const MERGED_ENDS: [u8; 23] = [
        0x31, 0xc0, 0x85, 0xff, 0x74, 0x10, 0xb8, 0x02, 0x00, 0x00, 0x00, 0x85, 0xf6, 0x74, 0x07,
        0xe8, 0xec, 0x0f, 0x00, 0x00, 0x31, 0xc0, 0xc3,
    ];

    /// An exit: its address, whether its jump must be taken, and the result.
    type Found = (u64, Option<bool>, Option<Operand>);

    /// Returns the exits of the calls that do not take the first jump.
    fn exits(inner: Option<FileAddress>, ends_at_inner: bool) -> Option<Vec<Found>> {
        let image = Image::of_code(&MERGED_ENDS, CODE);
        let code = FunctionCode::decode(&image, CODE).ok()?;
        let (block, _) = *(code.blocks[BlockId::ENTRY].successors.iter())
            .find(|(_, kind)| *kind == EdgeKind::FallThrough)?;
        let calls = Calls {
            block,
            by: &[(BlockId::ENTRY, EdgeKind::FallThrough)],
            inner,
            ends_at_inner,
            work: &[],
        };
        let mut execution = Execution::run(&code);
        let results = Results::new(&mut execution, &calls.passed_blocks(&code), &[0, 1, 2]);
        let look = |execution: &mut Execution<'_>, point| {
            let result = results.at(execution, point);
            let missing = u64::from(result.is_none());
            (result, missing)
        };
        let found = find(&mut execution, calls, look).ok()?;
        let exit = found.into_iter().map(|exit| {
            let taken = exit.way.map(|way| way.taken);
            (exit.instruction.ip(), taken, exit.known)
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
        assert!(
            !found.contains(&rest),
            "the call would not be timed: {found:?}"
        );
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
}
