//! Decodes one function along its control flow.
//!
//! Decoding begins at the entry and follows the jumps. So data between the instructions does no harm,
//! and the parts that a compiler moved elsewhere (`.cold`) are found. A jump to the beginning of another
//! function is a tail call and leaves the graph. A call that ends its unwind table entry does not return.
//! An indirect jump whose table is not found makes the graph incomplete, which is recorded.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use super::canary;
use super::graph::{Block, EdgeKind, FunctionCode};
use super::not_return;
use super::switches;
use crate::elf::image::Image;

/// Most instructions of one function.
const MAX_INSTRUCTIONS: usize = 20_000;
/// Budget for one `switch` table, in steps.
const STEPS_TO_FOLLOW: u64 = 256;
/// Memory of one target of a `switch`, as an edge of the graph, in bytes.
const BYTES_OF_TARGET: usize = 128;
/// Budget for decoding one instruction and finding its place, in steps.
const STEPS_TO_DECODE: u64 = 8;

/// Why a function could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// The address is outside the file's code, or the bytes there are no instructions.
    #[error("no valid instructions at {0:#x}")]
    NotCode(u64),
    /// It is larger than any eviction function.
    #[error("more than {MAX_INSTRUCTIONS} instructions")]
    TooLarge,
}

impl FunctionCode {
    /// Decodes the function at `entry`.
    ///
    /// # Errors
    ///
    /// Fails where there is no code, or too much.
    pub fn decode(image: &Image<'_>, entry: u64) -> Result<Self, CodeError> {
        let mut walk = Walk {
            image,
            entry,
            instructions: BTreeMap::new(),
            leaders: BTreeSet::from([entry]),
            ends: BTreeMap::new(),
            unresolved_jumps: Vec::new(),
        };
        walk.run()?;
        Ok(walk.into_code())
    }
}

/// Where control can go from the last instruction of a block.
type Exits = Vec<(u64, EdgeKind)>;

struct Walk<'a, 'data> {
    image: &'a Image<'data>,
    entry: u64,
    instructions: BTreeMap<u64, Instruction>,
    /// Addresses at which blocks begin.
    leaders: BTreeSet<u64>,
    /// Addresses of the last instructions of blocks.
    ends: BTreeMap<u64, Exits>,
    unresolved_jumps: Vec<u64>,
}

impl Walk<'_, '_> {
    fn run(&mut self) -> Result<(), CodeError> {
        let mut pending = vec![self.entry];
        while let Some(address) = pending.pop() {
            self.straight_line(address, &mut pending)?;
        }
        Ok(())
    }

    /// Decodes from `address` up to an instruction that does not fall through.
    fn straight_line(&mut self, address: u64, pending: &mut Vec<u64>) -> Result<(), CodeError> {
        let image = self.image;
        let bytes = image.bytes_at(address).filter(|_| image.is_code(address));
        let bytes = bytes.ok_or(CodeError::NotCode(address))?;
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        while decoder.can_decode() {
            if self.instructions.contains_key(&decoder.ip()) {
                return Ok(());
            }
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                return Err(CodeError::NotCode(instruction.ip()));
            }
            if self.instructions.len() >= MAX_INSTRUCTIONS || !image.budget.spend(STEPS_TO_DECODE) {
                return Err(CodeError::TooLarge);
            }
            let exits = self.exits(&instruction);
            self.instructions.insert(instruction.ip(), instruction);
            let Some(exits) = exits else { continue };
            let falls_through = exits.iter().any(|(_, kind)| *kind == EdgeKind::FallThrough);
            for (target, kind) in &exits {
                self.leaders.insert(*target);
                if *kind != EdgeKind::FallThrough {
                    pending.push(*target);
                }
            }
            self.ends.insert(instruction.ip(), exits);
            if !falls_through {
                return Ok(());
            }
        }
        Err(CodeError::NotCode(decoder.ip()))
    }

    /// Returns where control can go inside the function, if the instruction ends a block.
    fn exits(&mut self, instruction: &Instruction) -> Option<Exits> {
        let taken = (instruction.near_branch_target(), EdgeKind::Taken);
        let next = (instruction.next_ip(), EdgeKind::FallThrough);
        let before = || self.instructions.range(..instruction.ip()).rev();
        Some(match instruction.flow_control() {
            FlowControl::Next | FlowControl::IndirectCall => return None,
            FlowControl::Call if self.returns(instruction) => return None,
            FlowControl::ConditionalBranch => {
                match canary::intact_edge(instruction, before().map(|(_, other)| other)) {
                    Some(EdgeKind::Taken) => vec![taken],
                    Some(_) => vec![next],
                    None => vec![taken, next],
                }
            }
            FlowControl::UnconditionalBranch if !self.is_tail_call(instruction) => vec![taken],
            FlowControl::IndirectBranch => {
                let before = before().map(|(_, other)| other);
                let targets = switches::targets(self.image, self.entry, instruction, before);
                self.image.budget.spend(STEPS_TO_FOLLOW);
                self.image.budget.keep(BYTES_OF_TARGET * targets.len());
                if targets.is_empty() {
                    self.unresolved_jumps.push(instruction.ip());
                }
                let exits = targets.into_iter();
                exits.map(|target| (target, EdgeKind::Switch)).collect()
            }
            _ => Vec::new(),
        })
    }

    /// Returns whether a call can return: its callee's name does not say otherwise, and what the
    /// unwind table's entry covers goes on behind it.
    fn returns(&self, call: &Instruction) -> bool {
        let name = self.image.function_name(call.near_branch_target());
        let frame = self.image.frames().at(call.ip());
        !not_return::FUNCTIONS.iter().any(|(own, _)| name == Some(own))
            && frame.is_none_or(|frame| frame.end != call.next_ip())
    }

    /// Returns whether a direct jump goes to the beginning of another function.
    fn is_tail_call(&self, jump: &Instruction) -> bool {
        let target = jump.near_branch_target();
        target != self.entry && self.image.is_function(target)
    }

    fn into_code(self) -> FunctionCode {
        let mut blocks: Vec<Block> = Vec::new();
        let mut index_of = HashMap::new();
        // Where the block that is being filled goes on.
        let mut next = None;
        for (address, instruction) in &self.instructions {
            if next != Some(*address) || self.leaders.contains(address) {
                index_of.insert(*address, blocks.len());
                blocks.push(Block {
                    instructions: Vec::new(),
                    successors: Vec::new(),
                    predecessors: Vec::new(),
                    leaves: false,
                });
            }
            if let Some(block) = blocks.last_mut() {
                block.instructions.push(*instruction);
            }
            let is_end = self.ends.contains_key(address);
            next = (!is_end).then(|| instruction.next_ip());
        }
        for block in &mut blocks {
            self.connect(block, &index_of);
        }
        let entry = index_of.get(&self.entry).copied().unwrap_or(0);
        move_to_front(&mut blocks, entry);
        add_predecessors(&mut blocks);
        FunctionCode {
            blocks,
            callees: HashMap::new(),
            unresolved_jumps: self.unresolved_jumps,
            budget: self.image.budget.clone(),
        }
    }

    /// Sets where a block leads to.
    fn connect(&self, block: &mut Block, index_of: &HashMap<u64, usize>) {
        let Some(last) = block.instructions.last() else {
            return;
        };
        let next = [(last.next_ip(), EdgeKind::FallThrough)];
        let exits = self.ends.get(&last.ip()).map_or(&next[..], Vec::as_slice);
        block.leaves = exits.is_empty()
            && matches!(
                last.flow_control(),
                FlowControl::Return | FlowControl::UnconditionalBranch
            );
        let known = exits.iter().filter_map(|(target, kind)| {
            let index = index_of.get(target)?;
            Some((*index, *kind))
        });
        block.successors = known.collect();
    }
}

/// Exchanges the first block with the one at `entry`, and adjusts the successors.
fn move_to_front(blocks: &mut [Block], entry: usize) {
    blocks.swap(0, entry);
    for (successor, _) in blocks.iter_mut().flat_map(|block| &mut block.successors) {
        *successor = match *successor {
            0 => entry,
            index if index == entry => 0,
            index => index,
        };
    }
}

fn add_predecessors(blocks: &mut [Block]) {
    for index in 0..blocks.len() {
        let successors = blocks[index].successors.clone();
        for (successor, _) in successors {
            blocks[successor].predecessors.push(index);
        }
    }
}
