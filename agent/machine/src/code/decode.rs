//! Decodes one function along its control flow.
//!
//! Decoding begins at the entry and follows the jumps. So data between the instructions does no harm,
//! and the parts that a compiler moved elsewhere (`.cold`) are found. A jump to the beginning of another
//! function is a tail call and leaves the graph. A call that ends its unwind table entry does not return.
//! An indirect jump whose table is not found makes the graph incomplete, which is recorded.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use evictscope_model::FileAddress;

use super::graph::{Block, BlockId, EdgeKind, FunctionCode, PerBlock};
use super::imports;
use crate::elf::image::Image;
use crate::ir::{Flow, Instruction};
use crate::isa::Check;

/// The most instructions in one function.
const MAX_INSTRUCTIONS: usize = 20_000;
/// Budget for one `switch` table, in steps.
const STEPS_TO_FOLLOW: u64 = 1_024;
/// Memory for one target of a `switch`, as an edge of the graph, in bytes.
const BYTES_OF_TARGET: usize = 128;
/// Budget for decoding one instruction and finding its place, in steps.
const STEPS_TO_DECODE: u64 = 8;

/// Why a function could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// The address is outside the file's code, or the bytes there are no instructions.
    #[error("no valid instructions at {0:#x}")]
    NotCode(FileAddress),
    /// It is larger than the analysis allows.
    #[error("more than {MAX_INSTRUCTIONS} instructions")]
    TooLarge,
}

impl FunctionCode {
    /// Decodes the function at `entry`. Fails if there is no code, or too much.
    pub fn decode(image: &Image<'_>, entry: FileAddress) -> Result<Self, CodeError> {
        let mut walk = Walk {
            image,
            entry,
            instructions: BTreeMap::new(),
            leaders: BTreeSet::from([entry]),
            ends: BTreeMap::new(),
            hooks: BTreeSet::new(),
            checks: Vec::new(),
            unresolved_jumps: Vec::new(),
        };
        walk.run()?;
        Ok(walk.into_code())
    }
}

/// Where control can go from the last instruction of a block.
type Exits = Vec<(FileAddress, EdgeKind)>;

/// Where a straight line of instructions begins.
#[derive(Clone, Copy)]
struct Begin {
    address: FileAddress,
    /// Whether control can certainly get there from the function's entry: the end of a `switch` table is not always
    /// known.
    is_certain: bool,
}

struct Walk<'a, 'data> {
    image: &'a Image<'data>,
    entry: FileAddress,
    instructions: BTreeMap<FileAddress, Instruction>,
    /// Addresses at which blocks begin.
    leaders: BTreeSet<FileAddress>,
    /// Addresses of the last instructions of blocks.
    ends: BTreeMap<FileAddress, Exits>,
    hooks: BTreeSet<FileAddress>,
    /// The checks that limit the length of a table, each with the jump that uses it.
    checks: Vec<(Check, FileAddress)>,
    unresolved_jumps: Vec<FileAddress>,
}

impl Walk<'_, '_> {
    fn run(&mut self) -> Result<(), CodeError> {
        let mut pending = vec![Begin { address: self.entry, is_certain: true }];
        while let Some(begin) = pending.pop() {
            match self.straight_line(begin, &mut pending) {
                // Compilers emit only valid instructions, so this was not a table entry.
                Err(CodeError::NotCode(_)) if !begin.is_certain => self.forget(begin.address),
                line => line?,
            }
        }
        self.distrust_checks();
        Ok(())
    }

    /// Counts `switch` jumps as not followed if something jumps past their check.
    fn distrust_checks(&mut self) {
        if self.checks.is_empty() {
            return;
        }
        let jumps = self.ends.values().flatten().filter(|(_, kind)| *kind != EdgeKind::FallThrough);
        let mut targets: BTreeMap<FileAddress, usize> = BTreeMap::new();
        for (target, _) in jumps {
            *targets.entry(*target).or_default() += 1;
        }
        let is_entered = |behind, up_to| {
            let inside = (Bound::Excluded(behind), Bound::Included(up_to));
            behind < up_to && targets.range(inside).next().is_some()
        };
        let falls_into = |to: FileAddress| {
            let before = self.instructions.range(..to).next_back();
            before.is_some_and(|(at, instruction)| {
                let ends = self.ends.get(at);
                let falls = ends.is_none_or(|exits| exits.iter().any(|(_, kind)| *kind == EdgeKind::FallThrough));
                falls && instruction.next() == to
            })
        };
        let checks = std::mem::take(&mut self.checks);
        let distrusted = checks.into_iter().filter(|(check, jump)| match check.joined {
            None => is_entered(check.at, *jump),
            Some((branch, begin)) => {
                let is_only_way = targets.get(&begin) == Some(&1) && !falls_into(begin);
                !is_only_way || is_entered(check.at, branch) || is_entered(begin, *jump)
            }
        });
        let distrusted: Vec<FileAddress> = distrusted.map(|(_, jump)| jump).collect();
        self.unresolved_jumps.extend(distrusted);
    }

    /// Forgets the instructions from an address up to the first unknown one.
    fn forget(&mut self, from: FileAddress) {
        let mut next = from;
        while let Some(instruction) = self.instructions.remove(&next) {
            self.ends.remove(&next);
            next = instruction.next();
        }
    }

    /// Decodes from an address up to an instruction that does not fall through.
    fn straight_line(&mut self, begin: Begin, pending: &mut Vec<Begin>) -> Result<(), CodeError> {
        let image = self.image;
        let bytes = image.bytes_at(begin.address).filter(|_| image.is_code(begin.address));
        let mut bytes = bytes.ok_or(CodeError::NotCode(begin.address))?;
        let mut at = begin.address;
        while !self.instructions.contains_key(&at) {
            let instruction = image.architecture.decode(bytes, at).ok_or(CodeError::NotCode(at))?;
            if self.instructions.len() >= MAX_INSTRUCTIONS || !image.budget.spend(STEPS_TO_DECODE) {
                return Err(CodeError::TooLarge);
            }
            bytes = &bytes[instruction.bytes().len()..];
            if imports::is_hook(image, &instruction) {
                self.hooks.insert(at);
            }
            let instruction = image.architecture.behind_thunk(image, instruction);
            let next = instruction.next();
            let exits = self.exits(&instruction);
            self.instructions.insert(at, instruction);
            if let Some(exits) = exits {
                let falls_through = exits.iter().any(|(_, kind)| *kind == EdgeKind::FallThrough);
                for (target, kind) in &exits {
                    self.leaders.insert(*target);
                    if *kind != EdgeKind::FallThrough {
                        let is_certain = begin.is_certain && *kind != EdgeKind::Switch;
                        pending.push(Begin { address: *target, is_certain });
                    }
                }
                self.ends.insert(at, exits);
                if !falls_through {
                    break;
                }
            }
            at = next;
        }
        Ok(())
    }

    /// Returns where control can go inside the function, if the instruction ends a block.
    fn exits(&mut self, instruction: &Instruction) -> Option<Exits> {
        let at = instruction.address;
        let next = (instruction.next(), EdgeKind::FallThrough);
        let before = || self.instructions.range(..at).rev().map(|(_, other)| other);
        Some(match &instruction.flow {
            Flow::Next => return None,
            Flow::Call(_) | Flow::IndirectCall(_) if self.returns(instruction) => return None,
            Flow::Branch(_, target) => {
                let taken = (*target, EdgeKind::Taken);
                // The path on which the stack is not intact only ends the process.
                match self.image.architecture.intact_way(instruction, before()) {
                    Some(true) => vec![taken],
                    Some(false) => vec![next],
                    None => vec![taken, next],
                }
            }
            Flow::Jump(target) if !self.is_tail_call(*target) => vec![(*target, EdgeKind::Taken)],
            Flow::IndirectJump(_) => {
                let behind = self.instructions.range(at..).map(|(_, other)| other);
                let found = self.image.architecture.switch(self.image, self.entry, instruction, before(), behind);
                let targets = found.all;
                self.checks.extend(found.check.map(|check| (check, at)));
                self.image.budget.spend(STEPS_TO_FOLLOW);
                self.image.budget.keep(BYTES_OF_TARGET * targets.len());
                if targets.is_empty() {
                    self.unresolved_jumps.push(at);
                }
                targets.into_iter().map(|target| (target, EdgeKind::Switch)).collect()
            }
            _ => Vec::new(),
        })
    }

    /// Returns whether a call can return: its callee's name does not say otherwise, and its unwind table entry extends
    /// past it.
    fn returns(&self, call: &Instruction) -> bool {
        let name = imports::callee_name(self.image, call);
        let frame = self.image.frames.at(call.address);
        let is_named = |name| imports::is_named(name) || self.image.not_returning.contains(&name);
        !name.is_some_and(is_named) && frame.is_none_or(|frame| frame.end != call.next())
    }

    /// Returns whether a direct jump goes to the beginning of another function.
    fn is_tail_call(&self, target: FileAddress) -> bool {
        target != self.entry && self.image.is_function(target)
    }

    fn into_code(mut self) -> FunctionCode {
        let mut blocks: Vec<Block> = Vec::new();
        let mut index_of = HashMap::new();
        // Where the block being filled continues.
        let mut next = None;
        for (address, instruction) in std::mem::take(&mut self.instructions) {
            if next != Some(address) || self.leaders.contains(&address) {
                index_of.insert(address, BlockId::at(blocks.len()));
                blocks.push(Block::default());
            }
            next = (!self.ends.contains_key(&address)).then(|| instruction.next());
            if let Some(block) = blocks.last_mut() {
                block.instructions.push(instruction);
            }
        }
        for block in &mut blocks {
            self.connect(block, &index_of);
        }
        let entry = index_of.get(&self.entry).copied();
        move_to_front(&mut blocks, entry.unwrap_or(BlockId::ENTRY));
        let mut blocks = PerBlock::new(blocks);
        add_predecessors(&mut blocks);
        FunctionCode {
            architecture: self.image.architecture,
            blocks,
            callees: HashMap::new(),
            hooks: self.hooks,
            linked: self.image.linked(),
            unresolved_jumps: self.unresolved_jumps,
            budget: self.image.budget.clone(),
        }
    }

    fn connect(&self, block: &mut Block, index_of: &HashMap<FileAddress, BlockId>) {
        let Some(last) = block.instructions.last() else { return };
        let next = [(last.next(), EdgeKind::FallThrough)];
        let exits = self.ends.get(&last.address).map_or(&next[..], Vec::as_slice);
        block.leaves = exits.is_empty() && matches!(last.flow, Flow::Return | Flow::Jump(_));
        block.successors = exits.iter().filter_map(|(target, kind)| Some((*index_of.get(target)?, *kind))).collect();
    }
}

/// Exchanges the first block with the one at `entry`, and adjusts the successors.
fn move_to_front(blocks: &mut [Block], entry: BlockId) {
    blocks.swap(0, entry.index());
    for (successor, _) in blocks.iter_mut().flat_map(|block| &mut block.successors) {
        *successor = match *successor {
            BlockId::ENTRY => entry,
            block if block == entry => BlockId::ENTRY,
            block => block,
        };
    }
}

fn add_predecessors(blocks: &mut PerBlock<Block>) {
    for id in blocks.ids() {
        let successors = blocks[id].successors.clone();
        for (successor, _) in successors {
            blocks[successor].predecessors.push(id);
        }
    }
}
