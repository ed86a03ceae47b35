//! Multiplications of numbers of type `double` by a constant, and the two integers whose quotient is multiplied.
//!
//! A place holds these integers if, on every path from there to a return, the divisor of the only division is what it
//! holds, or is known to be 0 if nothing is divided. No other integers come to that division.

use std::collections::BTreeSet;

use super::cut::CutPoint;
use super::operand::{Operand, SlotBase};
use super::returns;
use super::returns::{from_point, loaded_slots, state_at, with_slots};
use crate::code::graph::{Block, BlockId, FunctionCode, InstructionId};
use crate::elf::image::Image;
use crate::flow::joins::execution::Execution;
use crate::flow::state::State;
use crate::flow::values::atoms::Atoms;
use crate::flow::values::condition;
use crate::flow::values::condition::{Condition, Relation};
use crate::flow::values::value::Value;
use crate::ir::{Address, Effect, Expression, Instruction, Operation};
use crate::isa::Register;

/// Returns the blocks in which something is multiplied by `factor`.
pub fn blocks_multiplying(image: &Image<'_>, code: &FunctionCode, factor: f64) -> Vec<BlockId> {
    let multiplies = |(_, block): &(_, &Block)| block.instructions.iter().any(multiplies);
    let mut blocks: Vec<_> = code.blocks.entries().filter(multiplies).collect();
    if blocks.is_empty() {
        return Vec::new();
    }
    let mut execution = Execution::new(code, Atoms::new(code.architecture, code.budget.clone()), None);
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
    let multiplied = |effect: &Effect| {
        let Effect::SetLane { vector, lane, .. } = effect else { return None };
        let product = state.lanes.get(&(*vector, *lane))?;
        let alone = atoms.computed::<2>(product, Operation::DoubleProduct);
        let and_sum = || atoms.computed::<3>(product, Operation::DoubleProductAndSum);
        let [left, right, ..] = alone.map(|factors| factors.as_slice()).or_else(|| Some(and_sum()?.as_slice()))? else {
            return None;
        };
        match [left, right].map(|value| is_number(image, atoms, value, factor)) {
            [true, _] => Some(right.clone()),
            [_, true] => Some(left.clone()),
            _ => None,
        }
    };
    instruction.effects().iter().filter(|effect| is_product(effect)).filter_map(multiplied).collect()
}

/// Returns by which operation an effect makes a lane.
fn operation(effect: &Effect) -> Option<Operation> {
    match effect {
        Effect::SetLane { value: Expression::Computed(operation, _), .. } => Some(*operation),
        _ => None,
    }
}

/// Returns whether an effect multiplies numbers of type `double`.
fn is_product(effect: &Effect) -> bool {
    matches!(operation(effect), Some(Operation::DoubleProduct | Operation::DoubleProductAndSum))
}

/// Returns whether an effect divides them.
fn is_division(effect: &Effect) -> bool {
    operation(effect) == Some(Operation::DoubleQuotient)
}

fn multiplies(instruction: &Instruction) -> bool {
    instruction.effects().iter().any(is_product)
}

/// Returns whether a value is a number of type `double`: itself, or a constant in the file.
pub fn is_number(image: &Image<'_>, atoms: &Atoms, value: &Value, number: f64) -> bool {
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
            let effects = block.instructions.iter().flat_map(Instruction::effects);
            effects.filter(|effect| is_division(effect)).map(move |_| id)
        });
        let [division] = divisions.collect::<Vec<BlockId>>()[..] else { return None };
        Some(Self { weight, slots: loaded_slots(execution, blocks, loaded), divided: code.reachable(division, &[]) })
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
        let register = Register { architecture: execution.code.architecture, number: u8::try_from(number).ok()? };
        return Some(Operand::Register { register, width: WIDTH, plus: 0 });
    }
    let frame = SlotBase::of(state, &mut execution.atoms)?;
    state.stack.iter().find_map(|(offset, (held, width))| {
        let is_held = held == value && *width == WIDTH;
        is_held.then(|| frame.slot(*offset, WIDTH)).flatten()
    })
}

/// Returns where an effect loads an integer of this width from: into a register, to convert it, or to compare it.
fn loaded(effect: &Effect) -> Option<Address> {
    let whole = |value: &Expression| match value {
        Expression::Load { address, width: WIDTH } => Some(*address),
        _ => None,
    };
    match effect {
        Effect::Set { value, .. } => whole(value),
        Effect::SetLane { value: Expression::Computed(Operation::Double, of), .. } => of.first().and_then(whole),
        Effect::Compare { left, right, .. } | Effect::CompareIf { left, right, .. } => {
            whole(left).or_else(|| whole(right))
        }
        _ => None,
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
        if instruction.is_call() {
            let is_double = |value| (execution.atoms).computed::<1>(value, Operation::Double).is_some();
            let spilled = state.stack.iter().filter(|(_, (value, _))| is_double(value));
            self.spilled = spilled.map(|(at, (value, _))| (*at, value.clone())).collect();
        }
        self.has_divided |= instruction.effects().iter().any(is_division);
        if !multiplies(instruction) {
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
    let [dividend, divisor] = atoms.computed(quotient, Operation::DoubleQuotient)?;
    let integer = |double| Some(atoms.computed::<1>(double, Operation::Double)?[0].clone());
    Some(Division { dividend: integer(dividend)?, divisor: integer(divisor)? })
}
