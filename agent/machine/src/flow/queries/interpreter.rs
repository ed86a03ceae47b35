//! Runs one small function along the path that its numbers decide, to find out what it computes.
//!
//! What it loads is not known, except what the file initialises and one global that the caller chooses. So its result
//! is a sum of globals, whatever its instructions look like: unrolled, vectorised or as written. This is how a loop
//! that adds up counters is understood.
//!
//! An instruction that does something else, a call, a store to anything but the stack, a branch that is not known, or
//! too many steps end the run.

use std::rc::Rc;

use crate::ir::Instruction;
use evictscope_model::FileAddress;
use iced_x86::{FlowControl, InstructionInfoFactory, Register};

use crate::code::graph::{BlockId, FunctionCode};
use crate::code::instruction::{address, writes};
use crate::elf::image::Image;
use crate::flow::joins::execution::Execution;
use crate::flow::state::State;
use crate::flow::transfer::operands::{MemoryPlace, place};
use crate::flow::values::atoms::{Atoms, Limits};
use crate::flow::values::value::{Value, low_bits};

/// The most instructions in one run.
const MAX_STEPS: usize = 1 << 14;
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
        }
    }

    /// Runs the function with the chosen number in one global, and returns the 8-byte globals whose sum it returns;
    /// `None` if it returns anything else. Fails if it does anything that the machine does not know.
    pub fn run(&mut self, chosen: Option<(Load, u64)>) -> Result<Option<Vec<FileAddress>>, Halt> {
        self.loads.clear();
        self.execution.known.loads = chosen.into_iter().collect();
        let code = self.execution.code;
        let mut state = State::at_entry(&mut self.execution.atoms);
        let mut block = &code.blocks[BlockId::ENTRY];
        let mut steps = 0;
        loop {
            for instruction in &block.instructions {
                steps += 1;
                if steps > MAX_STEPS {
                    return Err(Halt::Endless);
                }
                self.look_at_memory(&state, instruction)?;
                match instruction.flow_control() {
                    FlowControl::Return => return Ok(self.sum(&state.registers[0])),
                    FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {}
                    _ if code.hooks.contains(&address(instruction)) => {}
                    _ => return Err(Halt::Instruction(address(instruction))),
                }
                self.execution.step(&mut state, instruction);
            }
            let ways = block.successors.iter().filter_map(|(to, kind)| {
                let state = self.execution.along_edge(&state, block, *kind)?;
                Some((&code.blocks[*to], state))
            });
            let ways: Vec<_> = ways.collect();
            let [(next, end)] = &ways[..] else {
                let last = block.instructions.last();
                return Err(Halt::Branch(last.map(address).unwrap_or_default()));
            };
            (block, state) = (*next, end.clone());
            // Relations between known numbers say nothing new.
            state.facts = Rc::default();
        }
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
        let begin = match place(&mut self.execution.atoms, state, instruction) {
            MemoryPlace::Stack(_) => return Ok(()),
            MemoryPlace::Global(begin) if used.iter().all(|used| !writes(used.access())) => begin,
            _ => return halt,
        };
        let bytes = u8::try_from(instruction.memory_size().size()).unwrap_or(0);
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
