//! Executes instructions on vector registers, lane by lane.
//!
//! Vector registers as rows of 8 bytes, their lanes: what each lane of an instruction's result is made of.
//!
//! These are the instructions with which compilers move several values at once and add up 8-byte numbers, and the
//! arithmetic of numbers of type `double`.

use crate::ir::Instruction;
use iced_x86::{Code, EncodingKind, Mnemonic, OpKind};

use super::operands::{MemoryPlace, Step};
use crate::code::instruction::general_register;
use crate::flow::values::atoms::{Atom, Operation};
use crate::flow::values::value::Value;

/// Bytes of a lane.
const WIDTH: u8 = 8;
/// Numbers of what one instruction makes opaque in vectors begin here.
const OPAQUE: u32 = 128;
/// How many lanes of a register to follow.
const LANES: usize = 4;

fn is_vector(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|operand| {
        instruction.op_kind(operand) == OpKind::Register && instruction.op_register(operand).is_vector_register()
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
        let values: Vec<_> = (0..LANES.min(bytes / 8)).map(|lane| self.made(lane)).collect();
        match (instruction.op0_kind(), values.first()) {
            (OpKind::Memory, Some(_)) if bytes % 8 == 0 && bytes / 8 <= LANES => self.store_lanes(values),
            (OpKind::Register, Some(Some(value))) if general_register(to).is_some() => self.write(0, value.clone()),
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
            LaneSource::Zero => Some(Value::constant(0)),
            LaneSource::Lane(lane) => self.lane(lane),
            LaneSource::Sum([left, right]) => {
                let sum = self.lane(left)?.plus(&self.lane(right)?, 1);
                self.atoms.is_short(&sum).then_some(sum)
            }
            LaneSource::Computed(operation, of) => {
                let of = of.into_iter().map(|lane| self.lane_or_opaque(lane)).collect();
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
                lanes.get(&(register.full_register().number(), lane)).cloned()
            }
            OpKind::Memory if self.instruction.memory_size().size() >= 8 => {
                let further = 8 * lane as u64;
                match self.place() {
                    MemoryPlace::Stack(offset) => {
                        let offset = offset.wrapping_add_unsigned(further);
                        let (value, width) = self.state.stack.get(&offset)?;
                        (*width == WIDTH).then(|| value.clone())
                    }
                    MemoryPlace::Global(address) => Some(self.load_global(address.wrapping_add(further), WIDTH)),
                    MemoryPlace::SomewhereOnStack | MemoryPlace::Unknown => None,
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
        let MemoryPlace::Stack(offset) = place else { return self.store_unknown(&place, 0) };
        for (at, value) in (offset..).step_by(8).zip(values) {
            match value {
                Some(value) => self.state.store_slot(at, WIDTH, value),
                None => self.state.overwrite_slots(at, i64::from(WIDTH)),
            }
        }
    }
}

/// An operand, and which of its lanes.
pub type Lane = (u32, usize);

/// What a lane of a result is made of.
pub enum LaneSource {
    Zero,
    /// The same 8 bytes.
    Lane(Lane),
    /// The sum of two whole numbers.
    Sum([Lane; 2]),
    Computed(Operation, Vec<Lane>),
}

/// Returns whether an instruction belongs to SSE: it leaves the upper half of a register as it is.
pub fn is_old(instruction: &Instruction) -> bool {
    instruction.code().encoding() == EncodingKind::Legacy
}

/// Returns what a lane of the first operand, which the instruction writes, becomes; `None` if that is not understood.
pub fn source(instruction: &Instruction, lane: usize) -> Option<LaneSource> {
    if instruction.has_op_mask() {
        return None;
    }
    let last = instruction.op_count().checked_sub(1)?;
    let has_immediate = instruction.op_kind(last) == OpKind::Immediate8;
    let order = if has_immediate { usize::from(instruction.immediate8()) } else { 0 };
    let inputs = instruction.op_count() - u32::from(has_immediate);
    // In the older instructions the first operand is also an input.
    let (left, right) = (u32::from(inputs == 3), inputs.checked_sub(1)?);
    let is_store = instruction.op0_kind() == OpKind::Memory;
    let is_load = !is_store && instruction.op_kind(right) == OpKind::Memory;
    // Most work on the halves of each 16 bytes.
    let (first, half) = (lane & !1, lane & 1);
    let both = || vec![(left, lane), (right, lane)];
    let source = match instruction.mnemonic() {
        Mnemonic::Movaps
        | Mnemonic::Movups
        | Mnemonic::Movapd
        | Mnemonic::Movupd
        | Mnemonic::Movdqa
        | Mnemonic::Movdqu
        | Mnemonic::Lddqu
        | Mnemonic::Vmovaps
        | Mnemonic::Vmovups
        | Mnemonic::Vmovapd
        | Mnemonic::Vmovupd
        | Mnemonic::Vmovdqa
        | Mnemonic::Vmovdqu
        | Mnemonic::Vlddqu => (right, lane),
        Mnemonic::Movq | Mnemonic::Vmovq | Mnemonic::Movd | Mnemonic::Vmovd if lane == 0 => (right, 0),
        Mnemonic::Movq | Mnemonic::Vmovq | Mnemonic::Movd | Mnemonic::Vmovd => return Some(LaneSource::Zero),
        Mnemonic::Movsd | Mnemonic::Vmovsd => match lane {
            0 => (right, 0),
            _ if is_load => return Some(LaneSource::Zero),
            _ => (left, lane),
        },
        Mnemonic::Movhps | Mnemonic::Movhpd | Mnemonic::Vmovhps | Mnemonic::Vmovhpd => match lane {
            _ if is_store => (right, 1),
            1 if is_load => (right, 0),
            _ if is_load => (left, lane),
            _ => return None,
        },
        Mnemonic::Movlps | Mnemonic::Movlpd | Mnemonic::Vmovlps | Mnemonic::Vmovlpd => match lane {
            0 if is_load || is_store => (right, 0),
            _ if is_load => (left, lane),
            _ => return None,
        },
        Mnemonic::Punpcklqdq
        | Mnemonic::Vpunpcklqdq
        | Mnemonic::Unpcklpd
        | Mnemonic::Vunpcklpd
        | Mnemonic::Movlhps
        | Mnemonic::Vmovlhps => ([left, right][half], first),
        Mnemonic::Punpckhqdq | Mnemonic::Vpunpckhqdq | Mnemonic::Unpckhpd | Mnemonic::Vunpckhpd => {
            ([left, right][half], first + 1)
        }
        Mnemonic::Movhlps | Mnemonic::Vmovhlps => ([right, left][half], 1),
        Mnemonic::Pinsrq | Mnemonic::Vpinsrq => {
            if order & 1 == lane {
                (right, 0)
            } else {
                (left, lane)
            }
        }
        Mnemonic::Pextrq | Mnemonic::Vpextrq => (right, order & 1),
        Mnemonic::Vextracti128 | Mnemonic::Vextractf128 | Mnemonic::Vextracti64x2 | Mnemonic::Vextracti32x4 => {
            (right, 2 * (order & 1) + lane)
        }
        Mnemonic::Shufpd | Mnemonic::Vshufpd => ([left, right][half], first + (order >> lane & 1)),
        // It moves 4 bytes at a time.
        Mnemonic::Pshufd | Mnemonic::Vpshufd => match order >> (4 * half) & 15 {
            0b01_00 => (right, first),
            0b11_10 => (right, first + 1),
            _ => return None,
        },
        Mnemonic::Psrldq | Mnemonic::Vpsrldq if order == 8 => match half {
            0 => (right, first + 1),
            _ => return Some(LaneSource::Zero),
        },
        Mnemonic::Pxor | Mnemonic::Xorps | Mnemonic::Xorpd | Mnemonic::Vpxor | Mnemonic::Vxorps | Mnemonic::Vxorpd
            if !is_load && instruction.op_register(left) == instruction.op_register(right) =>
        {
            return Some(LaneSource::Zero);
        }
        Mnemonic::Paddq | Mnemonic::Vpaddq => return Some(LaneSource::Sum([(left, lane), (right, lane)])),
        Mnemonic::Mulpd | Mnemonic::Vmulpd => return Some(LaneSource::Computed(Operation::Product, both())),
        Mnemonic::Mulsd | Mnemonic::Vmulsd if lane == 0 => {
            return Some(LaneSource::Computed(Operation::Product, both()));
        }
        Mnemonic::Vfmadd132sd if lane == 0 => return Some(product_and_sum([0, 2, 1])),
        Mnemonic::Vfmadd213sd if lane == 0 => return Some(product_and_sum([1, 0, 2])),
        Mnemonic::Vfmadd231sd if lane == 0 => return Some(product_and_sum([1, 2, 0])),
        Mnemonic::Vfmadd132sd | Mnemonic::Vfmadd213sd | Mnemonic::Vfmadd231sd => (0, lane),
        Mnemonic::Divsd | Mnemonic::Vdivsd if lane == 0 => {
            return Some(LaneSource::Computed(Operation::Quotient, both()));
        }
        Mnemonic::Cvtsi2sd | Mnemonic::Vcvtsi2sd if lane == 0 => match instruction.code() {
            Code::Cvtsi2sd_xmm_rm64 | Code::VEX_Vcvtsi2sd_xmm_xmm_rm64 => {
                return Some(LaneSource::Computed(Operation::Double, vec![(right, 0)]));
            }
            _ => return None,
        },
        Mnemonic::Mulsd
        | Mnemonic::Vmulsd
        | Mnemonic::Divsd
        | Mnemonic::Vdivsd
        | Mnemonic::Cvtsi2sd
        | Mnemonic::Vcvtsi2sd => (left, lane),
        _ => return None,
    };
    Some(LaneSource::Lane(source))
}

/// Makes the product of the first two of these operands, plus the third.
fn product_and_sum(operands: [u32; 3]) -> LaneSource {
    let lanes = operands.map(|operand| (operand, 0));
    LaneSource::Computed(Operation::ProductAndSum, lanes.to_vec())
}
