//! The effects of instructions on vector registers, 8 bytes at a time.
//!
//! These are the instructions with which compilers move several values at once and add up 8-byte numbers, and the
//! arithmetic of numbers of type `double`.

use iced_x86::{Code, EncodingKind, Instruction as Decoded, Mnemonic, OpKind};

use super::operands::{address, general_register, operand, set};
use crate::ir::{Effect, Expression, Operation};

/// How many lanes of a register are followed.
const LANES: u8 = 4;

/// Returns the effects of an instruction on vector registers; `None` if it is another, or is not followed.
pub fn lift(instruction: &Decoded) -> Option<Vec<Effect>> {
    let unknown = |vector, lane| Effect::SetLane { vector, lane, value: Expression::Unknown };
    if instruction.mnemonic() == Mnemonic::Vzeroupper {
        return Some((0..16).flat_map(|vector| [unknown(vector, 2), unknown(vector, 3)]).collect());
    }
    if !is_vector(instruction) || source(instruction, 0).is_none() {
        return None;
    }
    let mut effects = Vec::new();
    let to = instruction.op0_register();
    let bytes = match instruction.op0_kind() {
        OpKind::Register => to.size(),
        _ => instruction.memory_size().size(),
    };
    let lanes = u8::try_from(bytes / 8).unwrap_or(LANES).min(LANES);
    let mut values: Vec<_> = (0..lanes).map(|lane| source(instruction, lane).unwrap_or(Expression::Unknown)).collect();
    match instruction.op0_kind() {
        _ if values.is_empty() => return None,
        OpKind::Memory if bytes % 8 == 0 && bytes <= 8 * usize::from(LANES) => {
            let to = address(instruction);
            let stored = (0..).step_by(8).zip(values);
            let store = |(at, value)| Effect::Store { address: to.offset(at), width: 8, value };
            effects.extend(stored.map(store));
        }
        OpKind::Register if general_register(to).is_some() => effects.push(set(to, values.swap_remove(0))),
        OpKind::Register if to.is_vector_register() => {
            let vector = to.full_register().number() as u8;
            // SSE leaves the upper half of a register as it is.
            if instruction.code().encoding() != EncodingKind::Legacy {
                values.resize(LANES.into(), Expression::Constant(0));
            }
            keep_overwritten(&mut effects, vector, &mut values);
            let lanes = (0..).zip(values);
            effects.extend(lanes.map(|(lane, value)| Effect::SetLane { vector, lane, value }));
        }
        _ => return None,
    }
    Some(effects)
}

/// Keeps what lanes are made of if one of them needs what an earlier one was.
fn keep_overwritten(effects: &mut Vec<Effect>, vector: u8, values: &mut [Expression]) {
    let mut needs = false;
    for (lane, value) in (0..).zip(values.iter()) {
        value.visit(&mut |part| {
            needs |= matches!(part, Expression::Lane { vector: other, lane: from } if *other == vector && *from < lane);
        });
    }
    for (temporary, value) in (0..).zip(values).filter(|_| needs) {
        let value = std::mem::replace(value, Expression::Temporary(temporary));
        effects.push(Effect::Let { temporary, value });
    }
}

fn is_vector(instruction: &Decoded) -> bool {
    (0..instruction.op_count()).any(|operand| {
        instruction.op_kind(operand) == OpKind::Register && instruction.op_register(operand).is_vector_register()
    })
}

/// Returns what 8 bytes of an operand are.
fn lane_of(instruction: &Decoded, index: u32, lane: u8) -> Expression {
    let register = instruction.op_register(index);
    match instruction.op_kind(index) {
        OpKind::Register if register.is_vector_register() => {
            Expression::Lane { vector: register.full_register().number() as u8, lane }
        }
        OpKind::Memory if instruction.memory_size().size() >= 8 * (usize::from(lane) + 1) => {
            Expression::Load { address: address(instruction).offset(8 * u64::from(lane)), width: 8 }
        }
        _ if lane == 0 => operand(instruction, index),
        _ => Expression::Unknown,
    }
}

/// Returns what a lane of the first operand, which the instruction writes, becomes; `None` if that is not followed.
fn source(instruction: &Decoded, lane: u8) -> Option<Expression> {
    if instruction.has_op_mask() || instruction.is_broadcast() {
        return None;
    }
    let last = instruction.op_count().checked_sub(1)?;
    let has_immediate = instruction.op_kind(last) == OpKind::Immediate8;
    let order = if has_immediate { instruction.immediate8() } else { 0 };
    let inputs = instruction.op_count() - u32::from(has_immediate);
    // In the older instructions the first operand is also an input.
    let (left, right) = (u32::from(inputs == 3), inputs.checked_sub(1)?);
    let is_store = instruction.op0_kind() == OpKind::Memory;
    let is_load = !is_store && instruction.op_kind(right) == OpKind::Memory;
    // Most work on the halves of each 16 bytes.
    let (first, half) = (lane & !1, lane & 1);
    let sides = [left, right];
    let side = |half: u8| sides[usize::from(half)];
    let of_both = |operation| {
        let [left, right] = sides.map(|operand| lane_of(instruction, operand, lane));
        Some(Expression::of_two(operation, left, right))
    };
    let product_and_sum = |operands: [u32; 3]| {
        let of = operands.map(|operand| lane_of(instruction, operand, 0));
        Some(Expression::Computed(Operation::DoubleProductAndSum, Box::new(of)))
    };
    let (from, lane) = match instruction.mnemonic() {
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
        Mnemonic::Movq | Mnemonic::Vmovq | Mnemonic::Movd | Mnemonic::Vmovd => return Some(Expression::Constant(0)),
        Mnemonic::Movsd | Mnemonic::Vmovsd => match lane {
            0 => (right, 0),
            _ if is_load => return Some(Expression::Constant(0)),
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
        | Mnemonic::Vmovlhps => (side(half), first),
        Mnemonic::Punpckhqdq | Mnemonic::Vpunpckhqdq | Mnemonic::Unpckhpd | Mnemonic::Vunpckhpd => {
            (side(half), first + 1)
        }
        Mnemonic::Movhlps | Mnemonic::Vmovhlps => (side(1 - half), 1),
        Mnemonic::Pinsrq | Mnemonic::Vpinsrq if order & 1 == lane => (right, 0),
        Mnemonic::Pinsrq | Mnemonic::Vpinsrq => (left, lane),
        Mnemonic::Pextrq | Mnemonic::Vpextrq => (right, order & 1),
        Mnemonic::Vextracti128 | Mnemonic::Vextractf128 | Mnemonic::Vextracti64x2 | Mnemonic::Vextracti32x4 => {
            (right, 2 * (order & 1) + lane)
        }
        Mnemonic::Shufpd | Mnemonic::Vshufpd => (side(half), first + (order >> lane & 1)),
        // It moves 4 bytes at a time.
        Mnemonic::Pshufd | Mnemonic::Vpshufd => match order >> (4 * half) & 15 {
            0b01_00 => (right, first),
            0b11_10 => (right, first + 1),
            _ => return None,
        },
        Mnemonic::Psrldq | Mnemonic::Vpsrldq if order == 8 => match half {
            0 => (right, first + 1),
            _ => return Some(Expression::Constant(0)),
        },
        Mnemonic::Pxor | Mnemonic::Xorps | Mnemonic::Xorpd | Mnemonic::Vpxor | Mnemonic::Vxorps | Mnemonic::Vxorpd
            if !is_load && instruction.op_register(left) == instruction.op_register(right) =>
        {
            return Some(Expression::Constant(0));
        }
        Mnemonic::Paddq | Mnemonic::Vpaddq => return of_both(Operation::Add),
        Mnemonic::Mulpd | Mnemonic::Vmulpd => return of_both(Operation::DoubleProduct),
        Mnemonic::Mulsd | Mnemonic::Vmulsd if lane == 0 => return of_both(Operation::DoubleProduct),
        Mnemonic::Vfmadd132sd if lane == 0 => return product_and_sum([0, 2, 1]),
        Mnemonic::Vfmadd213sd if lane == 0 => return product_and_sum([1, 0, 2]),
        Mnemonic::Vfmadd231sd if lane == 0 => return product_and_sum([1, 2, 0]),
        Mnemonic::Vfmadd132sd | Mnemonic::Vfmadd213sd | Mnemonic::Vfmadd231sd => (0, lane),
        Mnemonic::Divsd | Mnemonic::Vdivsd if lane == 0 => return of_both(Operation::DoubleQuotient),
        Mnemonic::Cvtsi2sd | Mnemonic::Vcvtsi2sd if lane == 0 => match instruction.code() {
            Code::Cvtsi2sd_xmm_rm64 | Code::VEX_Vcvtsi2sd_xmm_xmm_rm64 => {
                return Some(Expression::of_one(Operation::Double, lane_of(instruction, right, 0)));
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
    Some(lane_of(instruction, from, lane))
}
