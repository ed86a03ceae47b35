//! Two integers that a function divides by each other, as numbers of type `double`, to multiply the quotient by a
//! constant, its weight.
//!
//! A place holds them if, on every path from there to a return, the divisor of that division is what it
//! holds, or is known to be 0 where nothing is divided. Other integers never come to that division.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Code, Instruction, Mnemonic, OpKind};

use super::condition::{self, Condition, Relation};
use super::cut::Point;
use super::execution::Execution;
use super::factor;
use super::operands::{self, place};
use super::paths;
use super::recipe::Operand;
use super::result::{loaded_slots, state_at, with_slots};
use super::state::State;
use super::value::Value;
use crate::code::block::{BlockId, InstructionId};
use crate::code::instruction::is_call;
use crate::code::registers::{RSP, general_register};
use crate::elf::image::Image;

/// Bytes of such an integer.
const WIDTH: u8 = 8;

/// A quotient, and the places that its operands can be looked for in.
pub struct Quotient {
    /// What it is multiplied by.
    weight: f64,
    /// Stack slots, by their offset from the stack pointer at entry.
    slots: BTreeSet<i64>,
    /// The blocks that come after the division.
    divided: BTreeSet<BlockId>,
}

impl Quotient {
    /// Looks for the stack slots that `blocks` load numbers from. Returns `None` unless the function divides
    /// just once, as it would not be certain which quotient is meant.
    pub fn find(
        execution: &mut Execution<'_>,
        blocks: &BTreeSet<BlockId>,
        weight: f64,
    ) -> Option<Self> {
        let code = execution.code;
        let divisions = code.blocks.entries().flat_map(|(id, block)| {
            let instructions = block.instructions.iter();
            let divisions = instructions.filter(|own| own.mnemonic() == Mnemonic::Divsd);
            divisions.map(move |_| id)
        });
        let [division] = divisions.collect::<Vec<BlockId>>()[..] else {
            return None;
        };
        Some(Self {
            weight,
            slots: loaded_slots(execution, blocks, is_load),
            divided: code.reachable(division, &[]),
        })
    }

    /// Returns what holds dividend and divisor at `point`: two times 0, where nothing is divided any more.
    pub fn at(
        &self,
        image: &Image<'_>,
        execution: &mut Execution<'_>,
        point: Point,
    ) -> Option<[Option<Operand>; 2]> {
        let (block, begin) = match point {
            Point::Instruction(id) => (id.block, Some(id)),
            Point::Way(block, _) => (block, None),
        };
        if self.divided.contains(&block) {
            return None;
        }
        let state = state_at(execution, point)?;
        let state = with_slots(execution, &state, &self.slots, WIDTH);
        let (from, begin) = match (begin, point) {
            (None, Point::Way(block, kind)) => {
                let own = &execution.code.blocks[block];
                let (to, _) = own.successors.iter().find(|(_, own)| *own == kind)?;
                (execution.along_edge(&state, own, kind)?, to.first())
            }
            (Some(begin), _) => (state.clone(), begin),
            (None, Point::Instruction(_)) => return None,
        };
        let divided = divisions(image, execution, from, begin, self.weight)?;
        let Some(division) = divided else {
            return Some([const { Some(Operand::Constant(0)) }; 2]);
        };
        let operands = [division.dividend, division.divisor];
        Some(operands.map(|own| holder(execution, &state, &own)))
    }
}

/// Two integers, as numbers of type `double` divided by each other.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Division {
    dividend: Value,
    divisor: Value,
}

/// Returns the division that all paths from `begin` make, except those on which its divisor is known to be 0;
/// `Some(None)` where none makes any. Fails where paths differ, or cannot be followed, also behind a division.
fn divisions(
    image: &Image<'_>,
    execution: &mut Execution<'_>,
    state: State,
    begin: InstructionId,
    weight: f64,
) -> Option<Option<Division>> {
    let look =
        |execution: &mut Execution<'_>,
         state: &State,
         instruction: &Instruction,
         notes: &mut Notes| { notes.look(image, execution, state, instruction, weight) };
    let ends = paths::watch(execution, state, begin, &Notes::default(), look)?;
    if (ends.iter()).any(|(_, notes)| notes.has_divided && notes.made.is_none()) {
        return None;
    }
    let mut made = ends.iter().filter_map(|(_, notes)| notes.made.as_ref());
    let Some(first) = made.next() else {
        return Some(None);
    };
    let is_nothing = Condition {
        relation: Relation::Equal,
        left: first.divisor.clone(),
        right: Value::constant(0),
        bits: 64,
    };
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
    let mut registers = state.registers.iter();
    if let Some(number) = registers.position(|own| own == value) {
        return Some(Operand::Register {
            number: u8::try_from(number).ok()?,
            width: WIDTH,
            plus: 0,
        });
    }
    let top = execution.atoms.stack_offset(&state.registers[RSP])?;
    let mut slots = state.stack.iter().filter(|(offset, _)| **offset >= top);
    let (offset, _) = slots.find(|(_, (own, width))| own == value && *width == WIDTH)?;
    Some(Operand::Memory {
        base: RSP as u8,
        displacement: offset.wrapping_sub(top),
        width: WIDTH,
    })
}

/// Tells whether an instruction loads a whole number of that width.
fn is_load(instruction: &Instruction) -> bool {
    let is_source = |operand| instruction.op_kind(operand) == OpKind::Memory;
    match instruction.code() {
        Code::Mov_r64_rm64 | Code::Cvtsi2sd_xmm_rm64 | Code::Cmp_r64_rm64 => is_source(1),
        Code::Cmp_rm64_imm8 => is_source(0),
        _ => false,
    }
}

/// What is known of a number of type `double`.
#[derive(Clone, Debug)]
enum Number {
    Integer(Value),
    Quotient(Division),
    Weight,
}

/// Where numbers of type `double` are on a path, and what was made of them.
#[derive(Clone, Debug, Default)]
struct Notes {
    /// By the number of the register.
    registers: BTreeMap<usize, Number>,
    /// By the offset of the stack slot from the stack pointer at entry.
    slots: BTreeMap<i64, Number>,
    /// Whether something was divided.
    has_divided: bool,
    /// The division whose quotient was weighted.
    made: Option<Division>,
}

impl Notes {
    fn look(
        &mut self,
        image: &Image<'_>,
        execution: &mut Execution<'_>,
        state: &State,
        instruction: &Instruction,
        weight: f64,
    ) {
        if is_call(instruction) {
            self.registers.clear();
            return;
        }
        let source = instruction.op_count().saturating_sub(1);
        let new = match instruction.mnemonic() {
            Mnemonic::Cvtsi2sd => integer(execution, state, instruction).map(Number::Integer),
            Mnemonic::Divsd => {
                self.has_divided = true;
                let operands = [0, source].map(|own| self.get(execution, state, instruction, own));
                match operands {
                    [
                        Some(Number::Integer(dividend)),
                        Some(Number::Integer(divisor)),
                    ] => Some(Number::Quotient(Division { dividend, divisor })),
                    _ => None,
                }
            }
            _ if factor::is_product(instruction) => {
                let is_weight = factor::is_number(image, instruction, weight);
                let operands = [0, source].map(|own| self.get(execution, state, instruction, own));
                match operands {
                    [Some(Number::Quotient(made)), _] if is_weight => self.made = Some(made),
                    [Some(Number::Quotient(made)), Some(Number::Weight)]
                    | [Some(Number::Weight), Some(Number::Quotient(made))] => {
                        self.made = Some(made);
                    }
                    _ => {}
                }
                None
            }
            _ if factor::is_move(instruction) => {
                match factor::is_number(image, instruction, weight) {
                    true => Some(Number::Weight),
                    false => self.get(execution, state, instruction, source),
                }
            }
            _ => None,
        };
        self.set(execution, state, instruction, new);
    }

    /// Returns what is known of an operand.
    fn get(
        &self,
        execution: &mut Execution<'_>,
        state: &State,
        instruction: &Instruction,
        operand: u32,
    ) -> Option<Number> {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                let number = register.is_xmm().then(|| register.number())?;
                self.registers.get(&number).cloned()
            }
            OpKind::Memory => match place(&mut execution.atoms, state, instruction) {
                operands::Place::Stack(offset) => self.slots.get(&offset).cloned(),
                _ => None,
            },
            _ => None,
        }
    }

    /// Records what an instruction makes of its first operand.
    fn set(
        &mut self,
        execution: &mut Execution<'_>,
        state: &State,
        instruction: &Instruction,
        new: Option<Number>,
    ) {
        if instruction.op_count() == 0 || is_only_read(instruction) {
            return;
        }
        match instruction.op_kind(0) {
            OpKind::Register if instruction.op0_register().is_xmm() => {
                let number = instruction.op0_register().number();
                match new {
                    Some(new) => self.registers.insert(number, new),
                    None => self.registers.remove(&number),
                };
            }
            OpKind::Memory => match place(&mut execution.atoms, state, instruction) {
                operands::Place::Stack(offset) => {
                    let width = i64::try_from(instruction.memory_size().size()).unwrap_or(64);
                    let end = offset.saturating_add(width);
                    self.slots
                        .retain(|own, _| *own >= end || own.saturating_add(8) <= offset);
                    if let Some(new) = new {
                        self.slots.insert(offset, new);
                    }
                }
                operands::Place::Global(_) => {}
                _ => self.slots.clear(),
            },
            _ => {}
        }
    }
}

/// Tells whether an instruction only compares its operands.
fn is_only_read(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Comisd | Mnemonic::Ucomisd | Mnemonic::Push
    )
}

/// Returns the integer that an instruction converts.
fn integer(
    execution: &mut Execution<'_>,
    state: &State,
    instruction: &Instruction,
) -> Option<Value> {
    if instruction.code() != Code::Cvtsi2sd_xmm_rm64 {
        return None;
    }
    match instruction.op1_kind() {
        OpKind::Register => {
            let number = general_register(instruction.op1_register())?;
            state.registers.get(number).cloned()
        }
        OpKind::Memory => match place(&mut execution.atoms, state, instruction) {
            operands::Place::Stack(offset) => {
                let (value, width) = state.stack.get(&offset)?;
                (*width == WIDTH).then(|| value.clone())
            }
            _ => None,
        },
        _ => None,
    }
}
