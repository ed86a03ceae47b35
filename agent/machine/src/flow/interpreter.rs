//! Runs one small function along the path that its numbers decide, to find out what it computes.
//!
//! What it loads is not known, except what the file initialises and one global that the caller chooses. So its result
//! is a sum of globals, whatever its instructions look like: unrolled, vectorised or as written. This is how a loop
//! that adds up counters is understood.
//!
//! What compilers add leaves the result alone: calls and branches that check something, and counters of their own. An
//! instruction that does something else, a store by an unknown address, a branch on which the result depends and that
//! is not known, or too many steps end the run.

use std::collections::BTreeSet;
use std::rc::Rc;

use evictscope_model::FileAddress;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Register};

use super::atoms::{Atoms, Limits};
use super::execution::Execution;
use super::operands::{MemoryPlace, place};
use super::state::State;
use super::value::{Value, low_bits};
use crate::code::graph::{BlockId, FunctionCode};
use crate::code::instruction::{address, writes};
use crate::elf::image::Image;

/// The most instructions in one run.
const MAX_STEPS: usize = 1 << 14;
/// The most ways, at branches that are not known, that wait to be followed: each must come to the same.
const MAX_WAYS: usize = 16;
/// The most numbers whose sum a result can be.
const MAX_SUMMANDS: usize = 1 << 10;

/// Why a run ended without a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "their messages say what they are")]
pub enum Halt {
    #[error("the instruction at {0:#x} is not understood")]
    Instruction(FileAddress),
    #[error("where the branch at {0:#x} goes is not known")]
    Branch(FileAddress),
    #[error("the instruction at {0:#x} reads or writes memory it should not")]
    Memory(FileAddress),
    #[error("it does not end within {MAX_STEPS} instructions")]
    Endless,
}

/// A load of a global variable: its address and width in bytes; each 8 bytes of a vector are a load of their own.
pub type Load = (FileAddress, u8);

/// A function that can be run.
pub struct Interpreter<'a, 'data> {
    image: &'a Image<'data>,
    execution: Execution<'a>,
    info: InstructionInfoFactory,
    /// The globals that the last run loaded, in order, with repetitions.
    pub loads: Vec<Load>,
    /// The globals that it wrote.
    written: BTreeSet<FileAddress>,
}

impl<'a, 'data> Interpreter<'a, 'data> {
    /// Makes a machine for a function of `image`.
    pub fn new(image: &'a Image<'data>, code: &'a FunctionCode) -> Self {
        let mut atoms = Atoms::new(code.budget.clone());
        atoms.limits = Limits { summands: MAX_SUMMANDS, ..Limits::default() };
        Self {
            image,
            execution: Execution::new(code, atoms, None),
            info: InstructionInfoFactory::new(),
            loads: Vec::new(),
            written: BTreeSet::new(),
        }
    }

    /// Runs the function with the chosen number in one global, and returns the 8-byte globals whose sum it returns;
    /// `None` if it returns anything else. Fails if it does anything that the machine does not know.
    pub fn run(&mut self, chosen: Option<(Load, u64)>) -> Result<Option<Vec<FileAddress>>, Halt> {
        self.loads.clear();
        self.written.clear();
        self.execution.known.loads = chosen.into_iter().collect();
        let code = self.execution.code;
        let mut pending = vec![(&code.blocks[BlockId::ENTRY], State::at_entry(&mut self.execution.atoms))];
        let mut result = None;
        let mut steps = 0;
        while let Some((block, mut state)) = pending.pop() {
            // Relations between known numbers say nothing new.
            state.facts = Rc::default();
            let mut has_ended = false;
            for instruction in &block.instructions {
                steps += 1;
                if steps > MAX_STEPS {
                    return Err(Halt::Endless);
                }
                self.look_at_memory(&state, instruction)?;
                match instruction.flow_control() {
                    FlowControl::Return => {
                        let sum = self.sum(&state.registers[0]);
                        if result.get_or_insert_with(|| sum.clone()) != &sum {
                            return Err(Halt::Branch(address(instruction)));
                        }
                        has_ended = true;
                    }
                    FlowControl::Next
                    | FlowControl::Call
                    | FlowControl::ConditionalBranch
                    | FlowControl::UnconditionalBranch => {}
                    _ if code.hooks.contains(&address(instruction)) => {}
                    _ => return Err(Halt::Instruction(address(instruction))),
                }
                self.execution.step(&mut state, instruction);
            }
            let ways = block.successors.iter().filter_map(|(to, kind)| {
                let state = self.execution.along_edge(&state, block, *kind)?;
                Some((&code.blocks[*to], state))
            });
            let others = pending.len();
            pending.extend(ways);
            if pending.len() > MAX_WAYS || !has_ended && pending.len() == others {
                let last = block.instructions.last();
                return Err(Halt::Branch(last.map(address).unwrap_or_default()));
            }
        }
        let sum: Option<Vec<FileAddress>> = result.flatten();
        Ok(sum.filter(|globals| globals.iter().all(|global| !self.written.contains(global))))
    }

    fn sum(&self, result: &Value) -> Option<Vec<FileAddress>> {
        let mut globals = self.execution.atoms.as_sum_of_globals(result)?;
        globals.sort_unstable();
        Some(globals)
    }

    /// Notes the globals that an instruction loads, and finds out what is known about them.
    fn look_at_memory(&mut self, state: &State, instruction: &Instruction) -> Result<(), Halt> {
        let used = self.info.info(instruction).used_memory();
        // The stack protector's canary can be any number.
        let is_canary = instruction.segment_prefix() == Register::FS;
        if instruction.is_stack_instruction() || is_canary || used.is_empty() {
            return Ok(());
        }
        let halt = Err(Halt::Memory(address(instruction)));
        let bytes = u8::try_from(instruction.memory_size().size()).unwrap_or(0);
        let begin = match place(&mut self.execution.atoms, state, instruction) {
            MemoryPlace::Stack(_) => return Ok(()),
            MemoryPlace::Global(begin) if used.iter().any(|used| writes(used.access())) => {
                self.loads.retain(|(load, _)| *load != begin);
                self.written.extend((0..bytes.max(1)).step_by(8).map(|at| begin.wrapping_add(at.into())));
                return Ok(());
            }
            MemoryPlace::Global(begin) => begin,
            _ => return halt,
        };
        for at in (0..bytes).step_by(8) {
            let load = (begin.wrapping_add(at.into()), bytes.min(8));
            if self.execution.known.loads.contains_key(&load) {
                self.loads.push(load);
                continue;
            }
            match self.initial(load) {
                Some(number) => {
                    self.execution.known.loads.insert(load, number);
                }
                None if self.image.is_writable(load.0) => self.loads.push(load),
                None => return halt,
            }
        }
        Ok(())
    }

    /// Returns the content of a global that stays as the file initialises it: one that cannot be written, or, as is
    /// assumed, a pointer to data.
    fn initial(&self, (address, width): Load) -> Option<u64> {
        if self.image.is_writable(address) {
            let pointer = self.image.pointer_at(address).filter(|_| width == 8)?;
            return self.image.is_writable(pointer).then(|| pointer.get());
        }
        Some(low_bits(self.image.constant_at(address)?, 8 * u64::from(width)))
    }
}
