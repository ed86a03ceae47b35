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

use crate::code::graph::{BlockId, FunctionCode};
use crate::elf::image::Image;
use crate::flow::joins::execution::Execution;
use crate::flow::state::State;
use crate::flow::transfer::places::{MemoryPlace, place};
use crate::flow::values::atoms::{Atoms, Limits};
use crate::flow::values::value::low_bits;
use crate::ir::{Access, AccessKind, Address, Flow, Instruction};

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
    /// The globals that the last run loaded, in order, with repetitions.
    pub loads: Vec<Load>,
    /// The globals that it wrote.
    written: BTreeSet<FileAddress>,
}

impl<'a, 'data> Interpreter<'a, 'data> {
    /// Makes a machine for a function of `image`.
    pub fn new(image: &'a Image<'data>, code: &'a FunctionCode) -> Self {
        let mut atoms = Atoms::new(code.architecture, code.budget.clone());
        atoms.limits = Limits { summands: MAX_SUMMANDS, ..Limits::default() };
        Self { image, execution: Execution::new(code, atoms, None), loads: Vec::new(), written: BTreeSet::new() }
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
                match instruction.flow {
                    Flow::Return => {
                        let sum = self.sum(&state);
                        if result.get_or_insert_with(|| sum.clone()) != &sum {
                            return Err(Halt::Branch(instruction.address));
                        }
                        has_ended = true;
                    }
                    // Where a check fails.
                    Flow::Stop => has_ended = true,
                    Flow::Next | Flow::Call(_) | Flow::Branch(..) | Flow::Jump(_) => {}
                    _ if code.hooks.contains(&instruction.address) => {}
                    _ => return Err(Halt::Instruction(instruction.address)),
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
                return Err(Halt::Branch(last.map(|last| last.address).unwrap_or_default()));
            }
        }
        let sum: Option<Vec<FileAddress>> = result.flatten();
        Ok(sum.filter(|globals| globals.iter().all(|global| !self.written.contains(global))))
    }

    fn sum(&self, end: &State) -> Option<Vec<FileAddress>> {
        let result = &end.registers[self.execution.atoms.convention().result()];
        let mut globals = self.execution.atoms.as_sum_of_globals(result)?;
        globals.sort_unstable();
        Some(globals)
    }

    /// Notes the globals that an instruction loads, and finds out what is known about them.
    fn look_at_memory(&mut self, state: &State, instruction: &Instruction) -> Result<(), Halt> {
        let mut accesses = instruction.accesses();
        let is_known = accesses.all(|access| match access.kind {
            AccessKind::Named => true,
            _ if self.is_on_stack(state, &access.address) => true,
            AccessKind::Written => self.write(state, &access).is_some(),
            AccessKind::Read => self.load(state, &access.address, access.bytes.unwrap_or(0)).is_some(),
        });
        if is_known { Ok(()) } else { Err(Halt::Memory(instruction.address)) }
    }

    /// Notes that a global is written; `None` if it is more than that, or something else.
    fn write(&mut self, state: &State, access: &Access) -> Option<()> {
        let MemoryPlace::Global(global) = place(&mut self.execution.atoms, state, &access.address) else { return None };
        access.bytes.filter(|bytes| *bytes <= 8)?;
        if self.written.insert(global) {
            self.loads.retain(|(load, _)| *load != global);
        }
        Some(())
    }

    /// Notes the load of a global; `None` if it is another, or nothing is known about it.
    fn load(&mut self, state: &State, address: &Address, bytes: u16) -> Option<()> {
        // What each thread has of its own, such as the stack protector's canary, can be any number.
        if address.is_elsewhere {
            return Some(());
        }
        let MemoryPlace::Global(begin) = place(&mut self.execution.atoms, state, address) else { return None };
        if self.execution.known.linked.contains_key(&begin) {
            return Some(());
        }
        for at in (0..bytes).step_by(8) {
            let load = (begin.wrapping_add(at.into()), bytes.min(8) as u8);
            if !self.execution.known.loads.contains_key(&load)
                && let Some(number) = self.initial(load)
            {
                self.execution.known.loads.insert(load, number);
            } else if self.execution.known.loads.contains_key(&load) || self.image.is_writable(load.0) {
                if !self.written.contains(&load.0) {
                    self.loads.push(load);
                }
            } else {
                return None;
            }
        }
        Some(())
    }

    fn is_on_stack(&mut self, state: &State, address: &Address) -> bool {
        address.base == Some(self.execution.atoms.convention().stack_pointer)
            || matches!(place(&mut self.execution.atoms, state, address), MemoryPlace::Stack(_))
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
