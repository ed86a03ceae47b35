//! Where a cycle that does anything begins: after the early returns, before the loop over databases.
//!
//! Where the type of a cycle is: 0 for a slow one, 1 for a fast one. Likewise, which of its jobs it is.
//!
//! The function is executed once for each type. A place that holds 0 in one run and 1 in the other holds the
//! type, whatever happened to the argument on the way.

use std::collections::BTreeSet;

use evictscope_machine::code::{BlockId, EdgeKind, FunctionCode, InstructionId};
use evictscope_machine::flow::{Atoms, Execution, Operand, SlotBase, State, Value};
use evictscope_machine::ir::{Hit, Instruction};
use evictscope_machine::isa::Register;
use evictscope_machine::sites::Calls;
use evictscope_model::FileAddress;

use crate::plan::CycleStartPlan;

/// A place for the start site.
pub struct StartSite {
    pub block: BlockId,
    pub instruction: Instruction,
    /// What is read there.
    pub plan: CycleStartPlan,
}

/// The part of a function after the early returns.
pub struct CycleWork {
    /// From these blocks the function returns only through its end.
    blocks: BTreeSet<BlockId>,
    /// The edges that lead there.
    entered_by: Vec<(BlockId, EdgeKind)>,
}

impl CycleWork {
    /// Looks for the blocks from which the function returns only through one of `ends`.
    pub fn before(code: &FunctionCode, ends: &[BlockId]) -> Self {
        let returning = code.returning(ends);
        let mut blocks: BTreeSet<BlockId> = code.blocks.ids().collect();
        blocks.retain(|block| !returning.contains(block));
        let edges =
            (code.blocks.entries()).flat_map(|(id, block)| block.successors.iter().map(move |edge| (id, *edge)));
        let entering = edges.filter(|(from, (to, _))| !blocks.contains(from) && blocks.contains(to));
        Self { entered_by: entering.map(|(from, (_, kind))| (from, kind)).collect(), blocks }
    }

    /// Returns the calls that pass `start`, and may do their work in `jobs`.
    pub fn calls<'a>(&'a self, start: &StartSite, jobs: &'a [FileAddress]) -> Calls<'a> {
        Calls {
            block: start.block,
            by: &self.entered_by,
            inner: Some(start.instruction.address),
            ends_at_inner: false,
            work: jobs,
        }
    }

    /// Returns the first of the cheapest instructions that every call that comes here passes, before any loop and up to
    /// the first of `jobs`; those at which the type is known, and which job it is, come first. Compilers give calls
    /// that find no database a path of their own. No such call is ever made, so the site is on the path of the others.
    pub fn start(
        &self,
        code: &FunctionCode,
        ends: &[BlockId],
        jobs: &[FileAddress],
        by_type: &mut ByType<'_>,
        mut by_job: Option<&mut ByType<'_>>,
    ) -> Option<StartSite> {
        let looping: BTreeSet<BlockId> = code.loops().into_iter().flatten().collect();
        let loops: Vec<BlockId> = looping.intersection(&self.blocks).copied().collect();
        if loops.is_empty() && jobs.is_empty() {
            return None;
        }
        let before = |places: &[BlockId]| {
            let mut blocks = code.passed_before(places);
            blocks.retain(|block| {
                let is_before = !jobs.is_empty() || !ends.contains(block);
                self.blocks.contains(block) && !looping.contains(block) && is_before
            });
            blocks
        };
        let all = before(&[ends, &loops].concat());
        let blocks = if all.is_empty() { before(&loops) } else { all };
        let mut found: Option<((bool, bool, u32), StartSite)> = None;
        for block in blocks {
            let places = by_type.places(block);
            let jobs_here = by_job.as_mut().map(|by_job| by_job.places(block)).unwrap_or_default();
            for (index, instruction) in code.blocks[block].instructions.iter().enumerate() {
                if instruction.hit == Hit::Forbidden {
                    continue;
                }
                let cycle_type = places.get(index).cloned().flatten();
                let job = jobs_here.get(index).cloned().flatten();
                let cost = instruction.hit.cost();
                let weight = (cycle_type.is_none(), job.is_none(), cost);
                if found.as_ref().is_none_or(|(least, _)| weight < *least) {
                    let plan = CycleStartPlan { cycle_type, job, expired: None };
                    found = Some((weight, StartSite { block, instruction: instruction.clone(), plan }));
                }
                if jobs.contains(&instruction.address) {
                    break;
                }
            }
        }
        found.map(|(_, start)| start)
    }
}

/// Bytes of the type, which is an `int`.
const WIDTH: u8 = 4;

/// A function, executed for each type.
pub struct ByType<'a> {
    slow: Execution<'a>,
    fast: Execution<'a>,
}

impl<'a> ByType<'a> {
    /// Executes `code`, which is called with the type in these registers.
    pub fn run(code: &'a FunctionCode, registers: &[usize]) -> Self {
        let run = |number| {
            let mut atoms = Atoms::new(code.architecture, code.budget.clone());
            let mut entry = State::at_entry(&mut atoms);
            for register in registers {
                entry.registers[*register] = Value::constant(number);
            }
            Execution::run_from(code, entry, atoms, None)
        };
        Self { slow: run(0), fast: run(1) }
    }

    /// Returns what holds the type before each instruction of a block: a register, or else a stack slot.
    pub fn places(&mut self, block: BlockId) -> Vec<Option<Operand>> {
        self.states(block).iter().map(|(slow, fast)| self.place(slow, fast)).collect()
    }

    fn place(&mut self, slow: &State, fast: &State) -> Option<Operand> {
        if let Some(number) = holding(slow, fast).next() {
            let register = Register { architecture: self.slow.code.architecture, number: u8::try_from(number).ok()? };
            return Some(Operand::Register { register, width: WIDTH, plus: 0 });
        }
        let frame = SlotBase::of(slow, &mut self.slow.atoms)?;
        let other = SlotBase::of(fast, &mut self.fast.atoms)?;
        slow.stack.iter().find_map(|(offset, (value, width))| {
            let (other_value, other_width) = fast.stack.get(offset)?;
            let is_type = low(value) == Some(0) && low(other_value) == Some(1);
            let is_wide = *width >= WIDTH && *other_width >= WIDTH;
            let slot = frame.slot(*offset, WIDTH);
            slot.filter(|slot| is_type && is_wide && Some(slot) == other.slot(*offset, WIDTH).as_ref())
        })
    }

    /// Returns the numbers of the registers that hold the type before an instruction.
    pub fn registers(&mut self, at: InstructionId) -> Vec<usize> {
        self.states(at.block).get(at.index).map_or_else(Vec::new, |(slow, fast)| holding(slow, fast).collect())
    }

    /// Returns what is known before each instruction of a block, in a slow cycle and in a fast one.
    fn states(&mut self, block: BlockId) -> Vec<(State, State)> {
        self.slow.states_in(block).into_iter().zip(self.fast.states_in(block)).collect()
    }
}

/// Returns the numbers of the registers that hold the type.
fn holding<'s>(slow: &'s State, fast: &'s State) -> impl Iterator<Item = usize> + 's {
    let pairs = slow.registers.iter().zip(&fast.registers).enumerate();
    pairs.filter(|(_, (slow, fast))| low(slow) == Some(0) && low(fast) == Some(1)).map(|(number, _)| number)
}

/// Returns the number in the low 4 bytes, if the value is one.
fn low(value: &Value) -> Option<u32> {
    Some(value.as_constant()? as u32)
}
