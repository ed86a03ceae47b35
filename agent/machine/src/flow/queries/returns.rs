//! The returns of a function: the paths to them from one point, the numbers that it returns, and where the result of a
//! call is, at a point on its way out.
//!
//! A register or stack slot holds the result if, for each possible result, every path that is possible when
//! the place holds that result returns it.

use std::cell::Cell;
use std::collections::BTreeSet;

use evictscope_model::FileAddress;

use super::cut::CutPoint;
use super::operand::{Operand, SlotBase};
use crate::code::graph::{BlockId, FunctionCode, InstructionId};
use crate::flow::joins::execution::Execution;
use crate::flow::state::State;
use crate::flow::transfer::places::{MemoryPlace, place};
use crate::flow::values::atoms::Atom;
use crate::flow::values::condition::{Condition, Relation};
use crate::flow::values::value::{AtomId, Value};
use crate::ir::{Address, Effect, Expression, Flow, Instruction};
use crate::isa::Register;

/// The most steps over all paths from one point. `getMaxmemoryState()` of Redis 8.6 takes over 2,000 if built by clang.
const MAX_STEPS: usize = 20_000;

/// Finds the first block that all paths to the returns pass and that no loop can follow. That is the entry, or a block
/// after the last loop.
pub fn behind_loops(code: &FunctionCode) -> Option<BlockId> {
    let looping: BTreeSet<BlockId> = code.loops().into_iter().flatten().collect();
    let leaving = code.blocks.ids().filter(|block| code.blocks[*block].leaves);
    let from_the_returns = code.passed_before(&leaving.collect::<Vec<_>>()).into_iter().rev();
    from_the_returns.take_while(|block| code.reachable(*block, &[]).is_disjoint(&looping)).last()
}

/// Returns what is known at each return that can be reached from `point`, where `state` holds, on every path that is
/// not known to be impossible. Returns `None` if there are too many paths, or one of them loops or leaves in another
/// way.
pub fn to_returns(execution: &mut Execution<'_>, state: State, point: InstructionId) -> Option<Vec<State>> {
    Some(watch(execution, state, point, &(), |_, _, _, ()| {})?.into_iter().map(|(state, ())| state).collect())
}

/// Does the same, and shows `look` each instruction of a path before it is executed, with what is known there, to which
/// it may add. Its notes begin as `notes` on each path, and are returned with the path's end.
pub fn watch<N: Clone>(
    execution: &mut Execution<'_>,
    state: State,
    point: InstructionId,
    notes: &N,
    mut look: impl FnMut(&mut Execution<'_>, &mut State, &Instruction, &mut N),
) -> Option<Vec<(State, N)>> {
    let code = execution.code;
    let mut steps = 0;
    let mut returns = Vec::new();
    let mut pending = vec![(state, notes.clone(), point, Vec::new())];
    while let Some((mut state, mut notes, point, mut passed)) = pending.pop() {
        // What is known about a value holds only for one iteration of a loop.
        if passed.contains(&point.block) {
            return None;
        }
        passed.push(point.block);
        let here = &code.blocks[point.block];
        for instruction in here.instructions.get(point.index..)? {
            steps += 1;
            if steps > MAX_STEPS {
                return None;
            }
            look(execution, &mut state, instruction, &mut notes);
            if instruction.flow == Flow::Return {
                returns.push((state.clone(), notes.clone()));
            }
            execution.step(&mut state, instruction);
        }
        let last = here.instructions.last()?;
        if here.leaves && last.flow != Flow::Return {
            return None;
        }
        for (successor, kind) in &here.successors {
            if let Some(state) = execution.along_edge(&state, here, *kind) {
                pending.push((state, notes.clone(), successor.first(), passed.clone()));
            }
        }
    }
    (!returns.is_empty()).then_some(returns)
}

/// How many merges to take apart, one after the other.
const MAX_SPLITS: u32 = 5;
/// The most states to ask about for one function: an executable with a check at every access has too many paths for
/// more.
const MAX_STATES: u32 = 512;
/// In place of an address, for the unknown content of a stack slot.
const SLOT_CONTENT: FileAddress = FileAddress::new(u64::MAX - 1);

/// The results that a function can have, and where they can be.
pub struct Results<'a> {
    possible: &'a [u64],
    /// Registers in which it can be, the most likely first.
    registers: &'static [u8],
    /// Stack slots, by their offset from the stack pointer at entry.
    slots: BTreeSet<i64>,
    /// How many more states can be asked about.
    left: Cell<u32>,
}

impl<'a> Results<'a> {
    /// Looks for the stack slots from which `blocks` load results. `possible` has all results that the function can
    /// have, over 32 bits.
    pub fn new(execution: &mut Execution<'_>, blocks: &BTreeSet<BlockId>, possible: &'a [u64]) -> Self {
        let convention = execution.atoms.convention();
        let load = |effect: &Effect| match effect {
            Effect::Set { register, width: 4, value: Expression::Load { address, .. } } => {
                (*register == convention.result).then_some(*address)
            }
            _ => None,
        };
        let slots = loaded_slots(execution, blocks, load);
        Self { possible, registers: convention.kept_first, slots, left: Cell::new(MAX_STATES) }
    }

    /// Returns what holds the result at `point`: always the same number, or a register, or a register plus 1 (compilers
    /// tell the results apart by `result - 1 ≤ 1`), or a stack slot (as without optimisation).
    pub fn at(&self, execution: &mut Execution<'_>, point: CutPoint) -> Option<Operand> {
        if self.possible.is_empty() {
            return None;
        }
        let state = state_at(execution, point)?;
        if let [only] = returned_from(execution, state.clone(), point)?.as_slice()
            && let Some(result) = self.possible_constant(only)
        {
            return Some(Operand::Constant(result.cast_signed()));
        }
        let state = with_slots(execution, &state, &self.slots, 4);
        let place = (self.places()).find(|place| self.is_held(execution, &state, point, *place, MAX_SPLITS))?;
        match place {
            ResultPlace::Register { number, plus } => {
                let register = Register { architecture: execution.code.architecture, number };
                Some(Operand::Register { register, width: 4, plus: i64::from(plus) })
            }
            ResultPlace::Slot(offset) => SlotBase::of(&state, &mut execution.atoms)?.slot(offset, 4),
        }
    }

    fn possible_constant(&self, value: &Value) -> Option<u64> {
        let result = value.as_constant()?;
        self.possible.contains(&result).then_some(result)
    }

    /// Returns where it can be, the most likely first.
    fn places(&self) -> impl Iterator<Item = ResultPlace> + '_ {
        let with = |plus| self.registers.iter().map(move |number| ResultPlace::Register { number: *number, plus });
        let registers = [0, 1].into_iter().flat_map(with);
        registers.chain(self.slots.iter().copied().map(ResultPlace::Slot))
    }

    /// Returns whether, for each possible result, every path that is possible when the place holds it returns it. If
    /// registers and flags come from several paths, each is checked.
    fn is_held(
        &self,
        execution: &mut Execution<'_>,
        state: &State,
        point: CutPoint,
        place: ResultPlace,
        splits: u32,
    ) -> bool {
        let (value, plus) = match place {
            ResultPlace::Register { number, plus } => (state.registers.get(usize::from(number)), u64::from(plus)),
            ResultPlace::Slot(offset) => (state.stack.get(&offset).map(|(value, _)| value), 0),
        };
        let Some(value) = value.cloned() else { return false };
        let held = execution.atoms.zero_extended(&value, 32).offset(plus);
        let held = execution.atoms.zero_extended(&held, 32);
        if held.as_constant().is_some() {
            let result = self.possible_constant(&held);
            return result.is_some_and(|result| returns_only(execution, state.clone(), point, result));
        }
        let Some(left) = self.left.get().checked_sub(1) else { return false };
        self.left.set(left);
        let Some((atom, constant)) = variable_part(execution, &value) else { return false };
        let each_result = self.possible.iter().all(|result| {
            let by = Value::constant(*result)
                .minus(&Value::constant(plus))
                .minus(&Value::constant(constant.cast_unsigned()));
            let Some(mut assumed) = assuming(execution, state, atom, &by) else { return true };
            substitute_state(execution, &mut assumed, atom, &by);
            returns_only(execution, assumed, point, *result)
        });
        if each_result || splits == 0 {
            return each_result;
        }
        let Some(Atom::Merged { address, options }) = execution.atoms.get(atom).cloned() else { return false };
        let merged = execution.atoms.merged_at(address);
        (0..options.len()).all(|way| {
            let mut on_way = state.clone();
            for (atom, options) in &merged {
                if let Some(option) = options.get(way) {
                    substitute_state(execution, &mut on_way, *atom, option);
                }
            }
            self.is_held(execution, &on_way, point, place, splits - 1)
        })
    }
}

/// Returns the state before the instruction of a point.
pub fn state_at(execution: &mut Execution<'_>, point: CutPoint) -> Option<State> {
    let (block, index) = match point {
        CutPoint::Instruction(InstructionId { block, index }) => (block, index),
        CutPoint::Way(block, _) => (block, execution.code.blocks[block].instructions.len().checked_sub(1)?),
    };
    execution.states_in(block).into_iter().nth(index)
}

/// Returns where paths continue from a point before whose instruction `state` holds, and what holds there; `None` if
/// that rules them out.
pub fn from_point(execution: &mut Execution<'_>, state: State, point: CutPoint) -> Option<(State, InstructionId)> {
    let (from, kind) = match point {
        CutPoint::Instruction(id) => return Some((state, id)),
        CutPoint::Way(from, kind) => (&execution.code.blocks[from], kind),
    };
    let (to, _) = from.successors.iter().find(|(_, edge)| *edge == kind)?;
    Some((execution.along_edge(&state, from, kind)?, to.first()))
}

/// What can hold the result.
#[derive(Clone, Copy)]
enum ResultPlace {
    /// A register, by its number, and what to add to it.
    Register { number: u8, plus: u8 },
    /// A stack slot, by its offset from the stack pointer at entry.
    Slot(i64),
}

/// Returns the stack slots, by their offset from the stack pointer at entry, that `blocks` load, as `load` says of each
/// effect.
pub fn loaded_slots(
    execution: &mut Execution<'_>,
    blocks: &BTreeSet<BlockId>,
    load: impl Fn(&Effect) -> Option<Address>,
) -> BTreeSet<i64> {
    let code = execution.code;
    let mut slots = BTreeSet::new();
    for block in blocks {
        let instructions = &code.blocks[*block].instructions;
        if !instructions.iter().flat_map(Instruction::effects).any(|effect| load(effect).is_some()) {
            continue;
        }
        execution.watch(*block, |execution, instruction, state| {
            for address in instruction.effects().iter().filter_map(&load) {
                if let MemoryPlace::Stack(offset) = place(&mut execution.atoms, state, &address) {
                    slots.insert(offset);
                }
            }
        });
    }
    slots
}

/// Returns `state` with a value for each of the slots, of `width` bytes, whose content is not known.
pub fn with_slots(execution: &mut Execution<'_>, state: &State, slots: &BTreeSet<i64>, width: u8) -> State {
    let mut state = state.clone();
    for (index, offset) in (0..).zip(slots) {
        if !state.stack.contains_key(offset) {
            let value = execution.atoms.value(Atom::Opaque { address: SLOT_CONTENT, index });
            state.store_slot(*offset, width, value);
        }
    }
    state
}

/// Returns the one atom that a value depends on and what is added to it, over 32 bits.
fn variable_part(execution: &Execution<'_>, value: &Value) -> Option<(AtomId, i64)> {
    let (atom, constant) = value.as_atom_plus_constant()?;
    match execution.atoms.get(atom)? {
        Atom::ZeroExtended { bits: 32, of } if constant == 0 => of.as_atom_plus_constant().or(Some((atom, constant))),
        _ => Some((atom, constant)),
    }
}

fn returns_only(execution: &mut Execution<'_>, state: State, point: CutPoint, result: u64) -> bool {
    returned_from(execution, state, point)
        .is_some_and(|returned| returned.iter().all(|value| value.as_constant() == Some(result)))
}

/// Returns `state` with what follows if `atom` is a number, because it says whether conditions hold; `None` if it
/// cannot be that.
fn assuming(execution: &mut Execution<'_>, state: &State, atom: AtomId, number: &Value) -> Option<State> {
    let (mut state, truth) = (state.clone(), Value::atom(atom));
    if execution.atoms.as_truth(&truth).is_some() {
        let holds = number.as_constant().filter(|number| *number <= 1)? == 1;
        let relation = if holds { Relation::NotEqual } else { Relation::Equal };
        let condition = Condition { relation, left: truth, right: Value::constant(0), bits: 64 };
        for fact in execution.atoms.consequences(&state.facts, condition)? {
            state.assume(fact, true);
        }
    }
    Some(state)
}

fn substitute_state(execution: &mut Execution<'_>, state: &mut State, atom: AtomId, by: &Value) {
    for register in &mut state.registers {
        *register = execution.atoms.substitute(register, atom, by);
    }
    for (value, _) in state.stack.values_mut() {
        *value = execution.atoms.substitute(value, atom, by);
    }
    for value in state.flags.values_mut() {
        *value = execution.atoms.substitute(value, atom, by);
    }
}

/// Returns what the function can return on the paths from `point`, over 32 bits: nothing if `state` rules them out.
fn returned_from(execution: &mut Execution<'_>, state: State, point: CutPoint) -> Option<Vec<Value>> {
    let mut returned: Vec<Value> = Vec::new();
    let Some((state, next)) = from_point(execution, state, point) else { return Some(returned) };
    let result = execution.atoms.convention().result();
    for state in to_returns(execution, state, next)? {
        let value = execution.atoms.zero_extended(&state.registers[result], 32);
        if !returned.contains(&value) {
            returned.push(value);
        }
    }
    Some(returned)
}

/// The most values to look at.
const MAX_VALUES: usize = 256;

/// Returns the numbers that the function's result is set to, over 32 bits.
pub fn numbers(execution: &mut Execution<'_>) -> BTreeSet<u32> {
    let code = execution.code;
    let result = execution.atoms.convention().result();
    let mut numbers = BTreeSet::new();
    let mut values: Vec<Value> = Vec::new();
    for (block, _) in code.blocks.entries().filter(|(_, block)| block.leaves) {
        values.extend(execution.states_in(block).pop().map(|state| state.registers[result].clone()));
    }
    // Each value once; its options come after it.
    let mut next = 0;
    while let Some(value) = values.get(next).cloned() {
        next += 1;
        if let Some(number) = value.as_constant() {
            numbers.insert(number as u32);
        }
        for option in options(execution, &value) {
            if values.len() < MAX_VALUES && !values.contains(&option) {
                values.push(option);
            }
        }
    }
    numbers
}

/// Returns the values that a value can be one of.
fn options(execution: &mut Execution<'_>, value: &Value) -> Vec<Value> {
    match value.as_atom().and_then(|atom| execution.atoms.get(atom)).cloned() {
        Some(Atom::ZeroExtended { bits: 32, of }) => vec![of],
        Some(Atom::Merged { options, .. }) => options,
        Some(Atom::Select { then, otherwise, .. }) => vec![then, otherwise],
        Some(Atom::Opaque { address, index }) => at_block(execution, address, index),
        _ => Vec::new(),
    }
}

/// Returns what a register holds on each path to the block at `address`; nothing if no block begins there.
fn at_block(execution: &mut Execution<'_>, address: FileAddress, register: u32) -> Vec<Value> {
    let Some((_, block)) = execution.code.blocks.entries().find(|(_, block)| block.address() == address) else {
        return Vec::new();
    };
    let register = usize::try_from(register).unwrap_or(usize::MAX);
    let predecessors: BTreeSet<BlockId> = block.predecessors.iter().copied().collect();
    let ends = predecessors.into_iter().filter_map(|from| execution.states_in(from).pop());
    ends.filter_map(|state| state.registers.get(register).cloned()).collect()
}
