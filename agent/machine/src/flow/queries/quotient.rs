//! Multiplications of numbers of type `double` by a constant, and the two integers whose quotient is multiplied.
//!
//! A place holds these integers if, on every path from there to a return, the divisor of the only division is what it
//! holds, or is known to be 0 if nothing is divided. No other integers come to that division.

use std::collections::BTreeSet;

use crate::ir::Instruction;
use iced_x86::{Code, Mnemonic, OpKind};

use super::cut::CutPoint;
use super::returns;
use super::returns::{from_point, loaded_slots, state_at, with_slots};
use crate::code::graph::{Block, BlockId, FunctionCode, InstructionId};
use crate::code::instruction::is_call;
use crate::elf::image::Image;
use crate::flow::joins::execution::Execution;
use crate::flow::state::{Operand, SlotBase, State};
use crate::flow::values::atoms::{Atoms, Operation};
use crate::flow::values::condition;
use crate::flow::values::condition::{Condition, Relation};
use crate::flow::values::value::Value;

/// Returns the blocks in which something is multiplied by `factor`.
pub fn blocks_multiplying(image: &Image<'_>, code: &FunctionCode, factor: f64) -> Vec<BlockId> {
    let multiplies = |(_, block): &(_, &Block)| block.instructions.iter().any(is_product);
    let mut blocks: Vec<_> = code.blocks.entries().filter(multiplies).collect();
    if blocks.is_empty() {
        return Vec::new();
    }
    let mut execution = Execution::new(code, Atoms::new(code.budget.clone()), None);
    let entry = State::at_entry(&mut execution.atoms);
    blocks.retain(|(_, block)| {
        let mut state = entry.clone();
        block.instructions.iter().any(|instruction| {
            execution.step(&mut state, instruction);
            !multiplied(image, &execution.atoms, &state, instruction, factor).is_empty()
        })
    });
    blocks.into_iter().map(|(id, _)| id).collect()
}

/// Returns what an instruction has multiplied by `factor`; `state` holds after it.
pub fn multiplied(
    image: &Image<'_>,
    atoms: &Atoms,
    state: &State,
    instruction: &Instruction,
    factor: f64,
) -> Vec<Value> {
    if !is_product(instruction) {
        return Vec::new();
    }
    let to = instruction.op0_register().full_register().number();
    let multiplied = |lane| {
        let product = state.lanes.get(&(to, lane))?;
        let alone = atoms.computed::<2>(product, Operation::Product);
        let and_sum = || atoms.computed::<3>(product, Operation::ProductAndSum);
        let [left, right, ..] = alone.map(|factors| factors.as_slice()).or_else(|| Some(and_sum()?.as_slice()))? else {
            return None;
        };
        match [left, right].map(|value| is_number(image, atoms, value, factor)) {
            [true, _] => Some(right.clone()),
            [_, true] => Some(left.clone()),
            _ => None,
        }
    };
    (0..2).filter_map(multiplied).collect()
}

/// Returns whether an instruction multiplies numbers of type `double`.
pub fn is_product(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Mulsd
            | Mnemonic::Mulpd
            | Mnemonic::Vmulsd
            | Mnemonic::Vmulpd
            | Mnemonic::Vfmadd132sd
            | Mnemonic::Vfmadd213sd
            | Mnemonic::Vfmadd231sd
    )
}

/// Returns whether a value is a number of type `double`: itself, or a constant in the file.
fn is_number(image: &Image<'_>, atoms: &Atoms, value: &Value, number: f64) -> bool {
    let in_file = || image.constant_at(atoms.as_global(value)?);
    value.as_constant().or_else(in_file) == Some(number.to_bits())
}

/// Bytes of such an integer.
const WIDTH: u8 = 8;

/// A quotient, and the places where its operands can be.
pub struct Quotient {
    /// What it is multiplied by.
    weight: f64,
    /// Stack slots, by their offset from the stack pointer at entry.
    slots: BTreeSet<i64>,
    /// The blocks that come after the division.
    divided: BTreeSet<BlockId>,
}

impl Quotient {
    /// Looks for the stack slots from which `blocks` load numbers. Returns `None` unless the function divides exactly
    /// once, because otherwise it is not certain which quotient is meant.
    pub fn find(execution: &mut Execution<'_>, blocks: &BTreeSet<BlockId>, weight: f64) -> Option<Self> {
        let code = execution.code;
        let divisions = code.blocks.entries().flat_map(|(id, block)| {
            block.instructions.iter().filter(|instruction| is_division(instruction)).map(move |_| id)
        });
        let [division] = divisions.collect::<Vec<BlockId>>()[..] else { return None };
        Some(Self { weight, slots: loaded_slots(execution, blocks, is_load), divided: code.reachable(division, &[]) })
    }

    /// Returns what holds the dividend and the divisor at `point`: 0 for both, if nothing is divided from there on.
    pub fn at(
        &self,
        image: &Image<'_>,
        execution: &mut Execution<'_>,
        point: CutPoint,
    ) -> Option<[Option<Operand>; 2]> {
        let (CutPoint::Instruction(InstructionId { block, .. }) | CutPoint::Way(block, _)) = point;
        if self.divided.contains(&block) {
            return None;
        }
        let state = state_at(execution, point)?;
        let state = with_slots(execution, &state, &self.slots, WIDTH);
        let (from, begin) = from_point(execution, state.clone(), point)?;
        let divided = divisions(image, execution, from, begin, self.weight)?;
        let Some(division) = divided else { return Some([const { Some(Operand::Constant(0)) }; 2]) };
        Some([division.dividend, division.divisor].map(|value| holder(execution, &state, &value)))
    }
}

/// Two integers, divided by each other as numbers of type `double`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Division {
    dividend: Value,
    divisor: Value,
}

/// Returns the division that all paths from `begin` make, except those on which its divisor is known to be 0;
/// `Some(None)` if none makes any. Fails if paths differ, or cannot be followed, even after a division.
fn divisions(
    image: &Image<'_>,
    execution: &mut Execution<'_>,
    state: State,
    begin: InstructionId,
    weight: f64,
) -> Option<Option<Division>> {
    let look = |execution: &mut Execution<'_>, state: &mut State, instruction: &Instruction, notes: &mut Notes| {
        notes.look(image, execution, state, instruction, weight)
    };
    let ends = returns::watch(execution, state, begin, &Notes::default(), look)?;
    if (ends.iter()).any(|(_, notes)| notes.has_divided && notes.made.is_none()) {
        return None;
    }
    let Some(first) = ends.iter().find_map(|(_, notes)| notes.made.as_ref()) else { return Some(None) };
    let is_nothing =
        Condition { relation: Relation::Equal, left: first.divisor.clone(), right: Value::constant(0), bits: 64 };
    let agrees = |(state, notes): &(State, Notes)| match &notes.made {
        Some(other) => other == first,
        None => condition::decide(&state.facts, &is_nothing) == Some(true),
    };
    ends.iter().all(agrees).then(|| Some(first.clone()))
}

/// Returns a place that holds `value`.
fn holder(execution: &mut Execution<'_>, state: &State, value: &Value) -> Option<Operand> {
    if let Some(number) = value.as_constant() {
        return Some(Operand::Constant(number.cast_signed()));
    }
    if let Some(number) = state.registers.iter().position(|held| held == value) {
        return Some(Operand::Register { number: u8::try_from(number).ok()?, width: WIDTH, plus: 0 });
    }
    let frame = SlotBase::of(state, &mut execution.atoms)?;
    state.stack.iter().find_map(|(offset, (held, width))| {
        let is_held = held == value && *width == WIDTH;
        is_held.then(|| frame.slot(*offset, WIDTH)).flatten()
    })
}

/// Returns whether an instruction divides numbers of type `double`.
fn is_division(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Divsd | Mnemonic::Vdivsd)
}

/// Returns whether an instruction loads an integer of this width.
fn is_load(instruction: &Instruction) -> bool {
    let is_source = |operand| instruction.op_kind(operand) == OpKind::Memory;
    match instruction.code() {
        Code::Mov_r64_rm64 | Code::Cvtsi2sd_xmm_rm64 | Code::Cmp_r64_rm64 => is_source(1),
        Code::VEX_Vcvtsi2sd_xmm_xmm_rm64 => is_source(2),
        Code::Cmp_rm64_imm8 => is_source(0),
        _ => false,
    }
}

/// What is known about the divisions on a path.
#[derive(Clone, Debug, Default)]
struct Notes {
    /// Whether something was divided.
    has_divided: bool,
    /// The division whose quotient was weighted.
    made: Option<Division>,
    /// The stack slots that kept an integer as a number of type `double` before the last call, with those numbers. A
    /// compiler puts them there only for the call: no callee has their address, even if it may have that of an object
    /// below them.
    spilled: Vec<(i64, Value)>,
}

impl Notes {
    fn look(
        &mut self,
        image: &Image<'_>,
        execution: &mut Execution<'_>,
        state: &mut State,
        instruction: &Instruction,
        weight: f64,
    ) {
        for (offset, number) in self.spilled.drain(..) {
            state.store_slot(offset, WIDTH, number);
        }
        if is_call(instruction) {
            let is_double = |value| (execution.atoms).computed::<1>(value, Operation::Double).is_some();
            let spilled = state.stack.iter().filter(|(_, (value, _))| is_double(value));
            self.spilled = spilled.map(|(at, (value, _))| (*at, value.clone())).collect();
        }
        self.has_divided |= is_division(instruction);
        if !is_product(instruction) {
            return;
        }
        let mut behind = state.clone();
        execution.step(&mut behind, instruction);
        let atoms = &execution.atoms;
        for quotient in multiplied(image, atoms, &behind, instruction, weight) {
            self.made = division(atoms, &quotient).or(self.made.take());
        }
    }
}

/// Returns the division of two integers that a value is the quotient of.
fn division(atoms: &Atoms, quotient: &Value) -> Option<Division> {
    let [dividend, divisor] = atoms.computed(quotient, Operation::Quotient)?;
    let integer = |double| Some(atoms.computed::<1>(double, Operation::Double)?[0].clone());
    Some(Division { dividend: integer(dividend)?, divisor: integer(divisor)? })
}
