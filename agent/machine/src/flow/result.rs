//! Where the result of a call is, at a point on its way out.
//!
//! A register or stack slot holds it if, for each possible result, every path that is possible when
//! the place holds that result returns it.

use std::cell::Cell;
use std::collections::BTreeSet;

use evictscope_model::FileAddress;
use iced_x86::{Code, Instruction, OpKind, Register};

use super::atom::Atom;
use super::condition::Flags;
use super::cut::Point;
use super::execution::Execution;
use super::operand::Operand;
use super::operands::place;
use super::state::{Frame, State};
use super::value::{AtomId, Value};
use super::{operands, paths};
use crate::code::graph::{BlockId, InstructionId};

/// How many merges to take apart, one after the other.
const MAX_SPLITS: u32 = 5;
/// The most states to ask about for one function: an executable with a check at every access has too many paths for
/// more.
const MAX_STATES: u32 = 512;
/// Registers by their x86-64 numbers, callee-saved ones first: they hold what is kept.
const ORDER: [u8; 15] = [3, 5, 12, 13, 14, 15, 0, 1, 2, 6, 7, 8, 9, 10, 11];
/// In place of an address, for the unknown content of a stack slot.
const SLOT_CONTENT: FileAddress = FileAddress::new(u64::MAX - 1);

/// The results that a function can have, and where they can be.
pub struct Results<'a> {
    possible: &'a [u64],
    /// Stack slots, by their offset from the stack pointer at entry.
    slots: BTreeSet<i64>,
    /// How many more states can be asked about.
    left: Cell<u32>,
}

impl<'a> Results<'a> {
    /// Looks for the stack slots from which `blocks` load results. `possible` has all results that the function can
    /// have, over 32 bits.
    pub fn new(execution: &mut Execution<'_>, blocks: &BTreeSet<BlockId>, possible: &'a [u64]) -> Self {
        Self { possible, slots: loaded_slots(execution, blocks, is_load_of_result), left: Cell::new(MAX_STATES) }
    }

    /// Returns what holds the result at `point`: always the same number, or a register, or a register plus 1 (compilers
    /// tell the results apart by `result - 1 ≤ 1`), or a stack slot (as without optimisation).
    pub fn at(&self, execution: &mut Execution<'_>, point: Point) -> Option<Operand> {
        if self.possible.is_empty() {
            return None;
        }
        let state = state_at(execution, point)?;
        let returned = returned_from(execution, state.clone(), point)?;
        if let [only] = returned.as_slice()
            && let Some(result) = self.possible_constant(only)
        {
            return Some(Operand::Constant(result.cast_signed()));
        }
        let state = with_slots(execution, &state, &self.slots, 4);
        let place = (self.places()).find(|place| self.is_held(execution, &state, point, *place, MAX_SPLITS))?;
        match place {
            Place::Register { number, plus } => Some(Operand::Register { number, width: 4, plus: i64::from(plus) }),
            Place::Slot(offset) => Frame::of(&state, &mut execution.atoms)?.slot(offset, 4),
        }
    }

    fn possible_constant(&self, value: &Value) -> Option<u64> {
        let result = value.as_constant()?;
        self.possible.contains(&result).then_some(result)
    }

    /// Returns where it can be, the most likely first.
    fn places(&self) -> impl Iterator<Item = Place> + '_ {
        let registers = [0, 1].into_iter().flat_map(|plus| ORDER.map(|number| Place::Register { number, plus }));
        registers.chain(self.slots.iter().copied().map(Place::Slot))
    }

    /// Returns whether, for each possible result, every path that is possible when the place holds it returns it. If
    /// registers and flags come from several paths, each is checked.
    fn is_held(&self, execution: &mut Execution<'_>, state: &State, point: Point, place: Place, splits: u32) -> bool {
        let (value, plus) = match place {
            Place::Register { number, plus } => (state.registers.get(usize::from(number)), u64::from(plus)),
            Place::Slot(offset) => (state.stack.get(&offset).map(|(value, _)| value), 0),
        };
        let Some(value) = value.cloned() else {
            return false;
        };
        let low = execution.atoms.zero_extended(&value, 32);
        let held = low.offset(plus);
        let held = execution.atoms.zero_extended(&held, 32);
        if held.as_constant().is_some() {
            return self
                .possible_constant(&held)
                .is_some_and(|result| returns_only(execution, state.clone(), point, result));
        }
        let Some(left) = self.left.get().checked_sub(1) else {
            return false;
        };
        self.left.set(left);
        let Some((atom, constant)) = variable_part(execution, &value) else {
            return false;
        };
        let each_result = self.possible.iter().all(|result| {
            let by = Value::constant(*result)
                .minus(&Value::constant(plus))
                .minus(&Value::constant(constant.cast_unsigned()));
            let mut assumed = state.clone();
            substitute_state(execution, &mut assumed, atom, &by);
            returns_only(execution, assumed, point, *result)
        });
        if each_result || splits == 0 {
            return each_result;
        }
        let Some(Atom::Merged { address, options }) = execution.atoms.get(atom).cloned() else {
            return false;
        };
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
pub fn state_at(execution: &mut Execution<'_>, point: Point) -> Option<State> {
    let (block, index) = match point {
        Point::Instruction(InstructionId { block, index }) => (block, index),
        Point::Way(block, _) => {
            let last = execution.code.blocks[block].instructions.len();
            (block, last.checked_sub(1)?)
        }
    };
    execution.states_in(block).into_iter().nth(index)
}

/// Returns where paths continue from a point before whose instruction `state` holds, and what holds there; `None` if
/// that rules them out.
pub fn from_point(execution: &mut Execution<'_>, state: State, point: Point) -> Option<(State, InstructionId)> {
    let (from, kind) = match point {
        Point::Instruction(id) => return Some((state, id)),
        Point::Way(from, kind) => (&execution.code.blocks[from], kind),
    };
    let (to, _) = from.successors.iter().find(|(_, own)| *own == kind)?;
    Some((execution.along_edge(&state, from, kind)?, to.first()))
}

/// What can hold the result.
#[derive(Clone, Copy)]
enum Place {
    /// A register, by its x86-64 number, and what to add to it.
    Register { number: u8, plus: u8 },
    /// A stack slot, by its offset from the stack pointer at entry.
    Slot(i64),
}

/// Returns whether an instruction loads 4 bytes into the register for results.
fn is_load_of_result(instruction: &Instruction) -> bool {
    instruction.code() == Code::Mov_r32_rm32
        && instruction.op0_register() == Register::EAX
        && instruction.op1_kind() == OpKind::Memory
}

/// Returns the stack slots, by their offset from the stack pointer at entry, to which those instructions of `blocks`
/// refer for which `is_load` is true.
pub fn loaded_slots(
    execution: &mut Execution<'_>,
    blocks: &BTreeSet<BlockId>,
    is_load: fn(&Instruction) -> bool,
) -> BTreeSet<i64> {
    let code = execution.code;
    let mut slots = BTreeSet::new();
    for block in blocks {
        let instructions = &code.blocks[*block].instructions;
        if !instructions.iter().any(is_load) {
            continue;
        }
        let states = execution.states_in(*block);
        for (load, state) in instructions.iter().zip(&states) {
            if !is_load(load) {
                continue;
            }
            if let operands::Place::Stack(offset) = place(&mut execution.atoms, state, load) {
                slots.insert(offset);
            }
        }
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

fn returns_only(execution: &mut Execution<'_>, state: State, point: Point, result: u64) -> bool {
    returned_from(execution, state, point)
        .is_some_and(|returned| returned.iter().all(|value| value.as_constant() == Some(result)))
}

fn substitute_state(execution: &mut Execution<'_>, state: &mut State, atom: AtomId, by: &Value) {
    for register in &mut state.registers {
        *register = execution.atoms.substitute(register, atom, by);
    }
    for (value, _) in state.stack.values_mut() {
        *value = execution.atoms.substitute(value, atom, by);
    }
    match &mut state.flags {
        Flags::Unknown => {}
        Flags::Comparison { left, right, .. } => {
            *left = execution.atoms.substitute(left, atom, by);
            *right = execution.atoms.substitute(right, atom, by);
        }
        Flags::ZeroAndSign { of, .. } => *of = execution.atoms.substitute(of, atom, by),
    }
}

/// Returns what the function can return on the paths from `point`, over 32 bits: nothing if `state` rules them out.
fn returned_from(execution: &mut Execution<'_>, state: State, point: Point) -> Option<Vec<Value>> {
    let mut returned: Vec<Value> = Vec::new();
    let Some((state, next)) = from_point(execution, state, point) else {
        return Some(returned);
    };
    for state in paths::to_returns(execution, state, next)? {
        let value = execution.atoms.zero_extended(&state.registers[0], 32);
        if !returned.contains(&value) {
            returned.push(value);
        }
    }
    Some(returned)
}
