//! Executes instructions on vector registers, lane by lane.

use iced_x86::{Instruction, Mnemonic, OpKind};

use super::atom::Atom;
use super::lanes::{Lane, Source, is_old, source};
use super::operands::{Place, Step};
use super::value::Value;
use crate::code::registers::general_register;

/// Bytes of a lane.
const WIDTH: u8 = 8;
/// Numbers of what one instruction makes opaque in vectors begin here.
const OPAQUE: u32 = 128;
/// How many lanes of a register to follow.
const LANES: usize = 4;

/// Returns whether an instruction operates on vector registers.
fn is_vector(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|operand| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand).is_vector_register()
    })
}

impl Step<'_> {
    /// Executes an instruction on vector registers. Returns `false` if it is another, or not understood.
    pub fn vector(&mut self) -> bool {
        let instruction = self.instruction;
        if instruction.mnemonic() == Mnemonic::Vzeroupper {
            self.state.lanes.retain(|(_, lane), _| *lane < 2);
            return true;
        }
        if !is_vector(instruction) || source(instruction, 0).is_none() {
            return false;
        }
        let to = instruction.op0_register();
        let bytes = match instruction.op0_kind() {
            OpKind::Register => to.size(),
            _ => instruction.memory_size().size(),
        };
        let values: Vec<_> = (0..LANES.min(bytes / 8))
            .map(|lane| self.made(lane))
            .collect();
        match (instruction.op0_kind(), values.first()) {
            (OpKind::Memory, Some(_)) if bytes % 8 == 0 && bytes / 8 <= LANES => {
                self.store_lanes(values);
            }
            (OpKind::Register, Some(Some(value))) if general_register(to).is_some() => {
                self.write(0, value.clone());
            }
            (OpKind::Register, Some(_)) if to.is_vector_register() => {
                self.escape_operands();
                let register = to.full_register().number();
                let mut values = values;
                if !is_old(instruction) {
                    values.resize(LANES, Some(Value::constant(0)));
                }
                for (lane, value) in values.into_iter().enumerate() {
                    match value {
                        Some(value) => self.state.lanes.insert((register, lane), value),
                        None => self.state.lanes.remove(&(register, lane)),
                    };
                }
            }
            _ => return false,
        }
        true
    }

    /// Returns what a lane of the result is, if that is known.
    fn made(&mut self, lane: usize) -> Option<Value> {
        match source(self.instruction, lane)? {
            Source::Zero => Some(Value::constant(0)),
            Source::Lane(lane) => self.lane(lane),
            Source::Sum([left, right]) => {
                let sum = self.lane(left)?.plus(&self.lane(right)?, 1);
                self.atoms.is_short(&sum).then_some(sum)
            }
            Source::Computed(operation, of) => {
                let of = of
                    .into_iter()
                    .map(|lane| self.lane_or_opaque(lane))
                    .collect();
                Some(self.atoms.value(Atom::Computed { operation, of }))
            }
        }
    }

    /// Returns what a lane of an operand holds, if that is known.
    fn lane(&mut self, (operand, lane): Lane) -> Option<Value> {
        let register = self.instruction.op_register(operand);
        match self.instruction.op_kind(operand) {
            OpKind::Register if register.is_vector_register() => {
                let lanes = &self.state.lanes;
                lanes
                    .get(&(register.full_register().number(), lane))
                    .cloned()
            }
            OpKind::Memory if self.instruction.memory_size().size() >= 8 => {
                let further = 8 * lane as u64;
                match self.place() {
                    Place::Stack(offset) => {
                        let offset = offset.wrapping_add_unsigned(further);
                        let (value, width) = self.state.stack.get(&offset)?;
                        (*width == WIDTH).then(|| value.clone())
                    }
                    Place::Global(address) => {
                        Some(self.load_global(address.wrapping_add(further), WIDTH))
                    }
                    Place::SomewhereOnStack | Place::Unknown => None,
                }
            }
            _ => (lane == 0).then(|| self.read(operand)),
        }
    }

    fn lane_or_opaque(&mut self, (operand, lane): Lane) -> Value {
        let known = self.lane((operand, lane));
        let index = u32::try_from(LANES * lane).unwrap_or(u32::MAX) + operand;
        known.unwrap_or_else(|| self.opaque(OPAQUE + index))
    }

    fn store_lanes(&mut self, values: Vec<Option<Value>>) {
        let place = self.place();
        for value in values.iter().flatten() {
            self.hand_over(value, &place);
        }
        let Place::Stack(offset) = place else {
            return self.store_unknown(&place, 0);
        };
        for (at, value) in (offset..).step_by(8).zip(values) {
            match value {
                Some(value) => self.state.store_slot(at, WIDTH, value),
                None => self.state.overwrite_slots(at, i64::from(WIDTH)),
            }
        }
    }
}
