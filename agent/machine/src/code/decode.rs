//! Decodes one function along its control flow.
//!
//! Decoding begins at the entry and follows the jumps. So data between the instructions does no harm,
//! and the parts that a compiler moved elsewhere (`.cold`) are found. A jump to the beginning of another
//! function is a tail call and leaves the graph. A call that ends its unwind table entry does not return.
//! An indirect jump whose table is not found makes the graph incomplete, which is recorded.
//!
//! The stack protector's check at the end of a function.
//!
//! A static build does not keep the name of `__stack_chk_fail()`, so the check itself is
//! recognised, and the path to that call is left out of the graph.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use evictscope_model::FileAddress;
use iced_x86::{ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::graph::{Block, BlockId, EdgeKind, FunctionCode, PerBlock};
use super::instruction::{address, next_address, target};
use super::{imports, switches};
use crate::elf::image::Image;

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
    checks: Vec<(FileAddress, FileAddress)>,
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
        let jumps = self.ends.values().flatten().filter(|(_, kind)| *kind != EdgeKind::FallThrough);
        let targets: BTreeSet<FileAddress> = jumps.map(|(target, _)| *target).collect();
        let distrusted = self.checks.drain(..).filter(|(check, jump)| {
            let behind = (Bound::Excluded(*check), Bound::Included(*jump));
            check < jump && targets.range(behind).next().is_some()
        });
        self.unresolved_jumps.extend(distrusted.map(|(_, jump)| jump));
    }

    /// Forgets the instructions from an address up to the first unknown one.
    fn forget(&mut self, from: FileAddress) {
        let mut next = from;
        while let Some(instruction) = self.instructions.remove(&next) {
            self.ends.remove(&next);
            next = next_address(&instruction);
        }
    }

    /// Decodes from an address up to an instruction that does not fall through.
    fn straight_line(&mut self, begin: Begin, pending: &mut Vec<Begin>) -> Result<(), CodeError> {
        let from = begin.address;
        let image = self.image;
        let bytes = image.bytes_at(from).filter(|_| image.is_code(from)).ok_or(CodeError::NotCode(from))?;
        let mut decoder = Decoder::with_ip(64, bytes, from.get(), DecoderOptions::NONE);
        while decoder.can_decode() {
            if self.instructions.contains_key(&FileAddress::new(decoder.ip())) {
                return Ok(());
            }
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                return Err(CodeError::NotCode(address(&instruction)));
            }
            if self.instructions.len() >= MAX_INSTRUCTIONS || !image.budget.spend(STEPS_TO_DECODE) {
                return Err(CodeError::TooLarge);
            }
            if imports::is_hook(image, &instruction) {
                self.hooks.insert(address(&instruction));
            }
            let instruction = imports::replaced(image, instruction);
            let exits = self.exits(&instruction);
            self.instructions.insert(address(&instruction), instruction);
            let Some(exits) = exits else { continue };
            let falls_through = exits.iter().any(|(_, kind)| *kind == EdgeKind::FallThrough);
            for (target, kind) in &exits {
                self.leaders.insert(*target);
                if *kind != EdgeKind::FallThrough {
                    pending.push(Begin { address: *target, is_certain: begin.is_certain && *kind != EdgeKind::Switch });
                }
            }
            self.ends.insert(address(&instruction), exits);
            if !falls_through {
                return Ok(());
            }
        }
        Err(CodeError::NotCode(FileAddress::new(decoder.ip())))
    }

    /// Returns where control can go inside the function, if the instruction ends a block.
    fn exits(&mut self, instruction: &Instruction) -> Option<Exits> {
        let taken = (target(instruction), EdgeKind::Taken);
        let next = (next_address(instruction), EdgeKind::FallThrough);
        let before = || self.instructions.range(..address(instruction)).rev();
        Some(match instruction.flow_control() {
            FlowControl::Next => return None,
            FlowControl::Call | FlowControl::IndirectCall if self.returns(instruction) => return None,
            FlowControl::ConditionalBranch => match intact_edge(instruction, before().map(|(_, other)| other)) {
                Some(EdgeKind::Taken) => vec![taken],
                Some(_) => vec![next],
                None => vec![taken, next],
            },
            FlowControl::UnconditionalBranch if !self.is_tail_call(instruction) => vec![taken],
            FlowControl::IndirectBranch => {
                let before = before().map(|(_, other)| other);
                let behind = self.instructions.range(address(instruction)..).map(|(_, other)| other);
                let found = switches::targets(self.image, self.entry, instruction, before, behind);
                let targets = found.all;
                self.checks.extend(found.check.map(|check| (check, address(instruction))));
                self.image.budget.spend(STEPS_TO_FOLLOW);
                self.image.budget.keep(BYTES_OF_TARGET * targets.len());
                if targets.is_empty() {
                    self.unresolved_jumps.push(address(instruction));
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
        let frame = self.image.frames.at(address(call));
        let is_named = |name| imports::is_named(name) || self.image.not_returning.contains(&name);
        !name.is_some_and(is_named) && frame.is_none_or(|frame| frame.end != next_address(call))
    }

    /// Returns whether a direct jump goes to the beginning of another function.
    fn is_tail_call(&self, jump: &Instruction) -> bool {
        let target = target(jump);
        target != self.entry && self.image.is_function(target)
    }

    fn into_code(self) -> FunctionCode {
        let mut blocks: Vec<Block> = Vec::new();
        let mut index_of = HashMap::new();
        // Where the block being filled continues.
        let mut next = None;
        for (address, instruction) in &self.instructions {
            if next != Some(*address) || self.leaders.contains(address) {
                index_of.insert(*address, BlockId::at(blocks.len()));
                blocks.push(Block::default());
            }
            if let Some(block) = blocks.last_mut() {
                block.instructions.push(*instruction);
            }
            next = (!self.ends.contains_key(address)).then(|| next_address(instruction));
        }
        for block in &mut blocks {
            self.connect(block, &index_of);
        }
        let entry = index_of.get(&self.entry).copied();
        move_to_front(&mut blocks, entry.unwrap_or(BlockId::ENTRY));
        let mut blocks = PerBlock::new(blocks);
        add_predecessors(&mut blocks);
        FunctionCode {
            blocks,
            callees: HashMap::new(),
            hooks: self.hooks,
            unresolved_jumps: self.unresolved_jumps,
            budget: self.image.budget.clone(),
        }
    }

    fn connect(&self, block: &mut Block, index_of: &HashMap<FileAddress, BlockId>) {
        let Some(last) = block.instructions.last() else { return };
        let next = [(next_address(last), EdgeKind::FallThrough)];
        let exits = self.ends.get(&address(last)).map_or(&next[..], Vec::as_slice);
        block.leaves =
            exits.is_empty() && matches!(last.flow_control(), FlowControl::Return | FlowControl::UnconditionalBranch);
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

/// How many instructions before its comparison the canary may be loaded.
const LOAD_DISTANCE: usize = 2;

/// Returns the edge that a branch takes if the canary is intact, if the branch depends on that.
/// `before` has the instructions before the branch, the nearest first.
pub fn intact_edge<'a>(branch: &Instruction, mut before: impl Iterator<Item = &'a Instruction>) -> Option<EdgeKind> {
    let edge = match branch.condition_code() {
        ConditionCode::e => EdgeKind::Taken,
        ConditionCode::ne => EdgeKind::FallThrough,
        _ => return None,
    };
    let comparison = before.next().filter(|last| compares(last))?;
    let before: Vec<_> = before.take(LOAD_DISTANCE).collect();
    let is_from = |operand, is_meant| is_from(comparison, &before, operand, is_meant);
    let is_check =
        (is_from(0, is_canary) && is_from(1, is_on_stack)) || (is_from(0, is_on_stack) && is_from(1, is_canary));
    is_check.then_some(edge)
}

fn compares(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Sub | Mnemonic::Xor | Mnemonic::Cmp)
}

/// Returns whether an operand of the comparison is, or was just loaded from, memory that `is_meant` accepts. (At a
/// function's entry the canary is stored in its slot, and then something else may be compared.)
fn is_from(
    comparison: &Instruction,
    before: &[&Instruction],
    operand: u32,
    is_meant: fn(&Instruction) -> bool,
) -> bool {
    match comparison.op_kind(operand) {
        OpKind::Memory => is_meant(comparison),
        OpKind::Register => {
            let register = comparison.op_register(operand).full_register();
            let mut writers = before.iter().filter(|writer| {
                writer.op0_kind() == OpKind::Register && writer.op0_register().full_register() == register
            });
            writers.next().is_some_and(|load| {
                load.mnemonic() == Mnemonic::Mov && load.op1_kind() == OpKind::Memory && is_meant(load)
            })
        }
        _ => false,
    }
}

/// Returns whether it reads the canary, which is at `%fs:0x28` in the x86-64 ABI of Linux.
fn is_canary(instruction: &Instruction) -> bool {
    instruction.memory_segment() == Register::FS
        && instruction.memory_displacement64() == 0x28
        && instruction.memory_base() == Register::None
}

fn is_on_stack(instruction: &Instruction) -> bool {
    matches!(instruction.memory_base(), Register::RSP | Register::RBP)
}
