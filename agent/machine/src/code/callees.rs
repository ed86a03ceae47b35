//! Finds out which registers a function takes arguments in, and which it changes.
//!
//! A register that a function reads before it writes it is an argument. One that it never reads is not, so an address
//! that a caller left there is not passed on. A register that it never writes keeps its value. Within one unit
//! compilers rely on that (gcc's `-fipa-ra`), whatever the ABI says.

use std::collections::HashMap;

use evictscope_model::FileAddress;

use super::graph::{Block, BlockId, Callee, FunctionCode};
use crate::elf::image::Image;
use crate::ir::{Flow, Instruction, RegisterSet, bit};

/// How deep to follow calls that pass an argument on; below that every register counts as read.
const MAX_DEPTH: u32 = 3;
/// The most functions to look at for one caller.
const MAX_FUNCTIONS: usize = 64;

/// Returns what each function that `blocks` of `code` call directly does with registers.
pub fn of(
    image: &Image<'_>,
    code: &FunctionCode,
    blocks: impl IntoIterator<Item = BlockId>,
) -> HashMap<FileAddress, Callee> {
    let mut survey = Survey { image, known: HashMap::new() };
    let callees = blocks.into_iter().flat_map(|block| &code.blocks[block].instructions).filter_map(Instruction::callee);
    callees.map(|callee| (callee, survey.look_at(callee, MAX_DEPTH))).collect()
}

struct Survey<'a, 'data> {
    image: &'a Image<'data>,
    known: HashMap<FileAddress, Callee>,
}

impl Survey<'_, '_> {
    fn look_at(&mut self, function: FileAddress, depth: u32) -> Callee {
        if let Some(known) = self.known.get(&function) {
            return *known;
        }
        let Some(depth) = depth.checked_sub(1) else { return Callee::UNKNOWN };
        if self.known.len() >= MAX_FUNCTIONS {
            return Callee::UNKNOWN;
        }
        // While a function is being analysed, nothing is known about it: it may call itself.
        self.known.insert(function, Callee::UNKNOWN);
        let callee =
            FunctionCode::decode(self.image, function).map_or(Callee::UNKNOWN, |code| self.registers_of(&code, depth));
        self.known.insert(function, callee);
        callee
    }

    fn registers_of(&mut self, code: &FunctionCode, depth: u32) -> Callee {
        if !code.unresolved_jumps.is_empty() {
            return Callee::UNKNOWN;
        }
        Callee { reads: self.read_by(code, depth), writes: self.written_by(code, depth) }
    }

    fn written_by(&mut self, code: &FunctionCode, depth: u32) -> RegisterSet {
        let mut written = code.architecture.convention().link.map_or(0, bit);
        for function in code.blocks.iter().filter_map(Block::tail_callee) {
            written |= self.look_at(function, depth).writes;
        }
        for instruction in code.blocks.iter().flat_map(|block| code.without_hooks(block)) {
            written |= match instruction.flow {
                Flow::Call(function) => self.look_at(function, depth).writes,
                Flow::IndirectCall(_) | Flow::Stop => RegisterSet::MAX,
                _ => instruction.effects().iter().fold(0, |written, effect| written | effect.writes()),
            };
        }
        written
    }

    fn read_by(&mut self, code: &FunctionCode, depth: u32) -> RegisterSet {
        let mut read = 0;
        // The registers written on every path to a block so far. A block is visited again if a new path wrote fewer.
        let mut written: HashMap<BlockId, RegisterSet> = HashMap::new();
        let mut pending = vec![(BlockId::ENTRY, 0)];
        while let Some((id, mut gone)) = pending.pop() {
            match written.get_mut(&id) {
                // The paths seen before wrote no more than this one: nothing new can be read.
                Some(seen) if *seen & gone == *seen => continue,
                Some(seen) => {
                    *seen &= gone;
                    gone = *seen;
                }
                None => {
                    written.insert(id, gone);
                }
            }
            let block = &code.blocks[id];
            self.image.budget.spend(4 * block.instructions.len() as u64);
            for instruction in code.without_hooks(block) {
                read |= !gone
                    & match &instruction.flow {
                        Flow::Call(function) => self.look_at(*function, depth).reads,
                        Flow::IndirectCall(_) => RegisterSet::MAX,
                        Flow::IndirectJump(to) => to.reads(),
                        Flow::Branch(test, _) => test.reads(),
                        _ => 0,
                    };
                for effect in instruction.effects() {
                    read |= effect.reads() & !gone;
                    // Of a register of which a part is set, the rest is still there to be read.
                    if !effect.sets_part() {
                        gone |= effect.writes() & !effect.reads();
                    }
                }
            }
            if let Some(function) = block.tail_callee() {
                read |= self.look_at(function, depth).reads & !gone;
            }
            pending.extend(block.successors.iter().map(|(successor, _)| (*successor, gone)));
        }
        read
    }
}
