//! The effects of instructions on vector registers, 8 bytes at a time.
//!
//! These are the instructions with which compilers move several values at once and add up 8-byte numbers, and the
//! arithmetic of numbers of type `double`. One that writes fewer than 16 bytes of a register clears the others.

use fARM64::{Code, Operand, VectorArrangement};

use super::operands::{Lifter, RA, RD, RM, RN};
use crate::ir::{Effect, Expression, Operation};

/// Lifts an instruction on vector registers. Returns `false` if it is another, or is not followed.
pub fn lift(lifter: &mut Lifter<'_>) -> bool {
    let decoded = lifter.decoded;
    let of = |at, lane| Expression::Lane { vector: lifter.field(at), lane };
    let zero = || Expression::Constant(0);
    let scalar = |value| Some([value, zero()]);
    let of_two = |operation, lane| Expression::of_two(operation, of(RN, lane), of(RM, lane));
    // Which 8 bytes of a register of 16 an operand names, or all of them.
    let element = |index| match decoded.op(index) {
        Operand::Reg { arr: Some(VectorArrangement::V2D), lane, .. } => Some(lane),
        _ => None,
    };
    let lane = |index| element(index).flatten();
    let is_whole = || element(0) == Some(None);
    let is_zero = || matches!(decoded.op(1), Operand::ImmUnsigned(0) | Operand::ImmShiftedMove { imm: 0, .. });
    let is_from_itself = lifter.field(RN) == lifter.field(RM);
    let is_double = decoded.op_register(0).width_bits() == 64 && element(0).is_none();
    let lanes = match decoded.code() {
        Code::FmovD => scalar(of(RN, 0)),
        Code::FmovFromGp64 => scalar(lifter.part(RN, 8)),
        Code::FmovFromGp32 => scalar(lifter.part(RN, 4)),
        Code::FmovImmD => match decoded.op(1) {
            Operand::FpImm(number) => scalar(Expression::Constant(f64::from(number).to_bits())),
            _ => None,
        },
        Code::MoviVec2D | Code::MoviScalarD | Code::MoviVector if is_zero() => scalar(zero()),
        Code::EorVec if is_from_itself => scalar(zero()),
        Code::OrrVec if is_from_itself => {
            // It has 16 bytes, or 8.
            let is_all = lifter.word & 1 << 30 != 0;
            Some([of(RN, 0), if is_all { of(RN, 1) } else { zero() }])
        }
        Code::DupElementScalar => lane(1).and_then(|from| scalar(of(RN, from))),
        Code::DupElement if is_whole() => lane(1).map(|from| [of(RN, from), of(RN, from)]),
        Code::DupGeneral if is_whole() => Some([lifter.part(RN, 8), lifter.part(RN, 8)]),
        Code::AddVec if is_whole() => Some([of_two(Operation::Add, 0), of_two(Operation::Add, 1)]),
        Code::AddVec if is_double => scalar(of_two(Operation::Add, 0)),
        Code::AddpVec if is_double => scalar(Expression::of_two(Operation::Add, of(RN, 0), of(RN, 1))),
        Code::Zip1 if is_whole() => Some([of(RN, 0), of(RM, 0)]),
        Code::Zip2 if is_whole() => Some([of(RN, 1), of(RM, 1)]),
        Code::ScvtfD64 => scalar(Expression::of_one(Operation::Double, lifter.part(RN, 8))),
        Code::ScvtfD32 => {
            let number = Expression::of_one(Operation::SignExtend(32), lifter.part(RN, 4));
            scalar(Expression::of_one(Operation::Double, number))
        }
        Code::ScvtfVec if is_double => scalar(Expression::of_one(Operation::Double, of(RN, 0))),
        Code::FmulD => scalar(of_two(Operation::DoubleProduct, 0)),
        Code::FdivD => scalar(of_two(Operation::DoubleQuotient, 0)),
        Code::FmaddD => {
            let of = Box::new([of(RN, 0), of(RM, 0), of(RA, 0)]);
            scalar(Expression::Computed(Operation::DoubleProductAndSum, of))
        }
        _ => None,
    };
    if let Some(lanes) = lanes {
        write(lifter, lanes);
        return true;
    }
    let one = match decoded.code() {
        Code::FmovTopFromGp => Some((1, lifter.part(RN, 8))),
        Code::InsGeneral => lane(0).map(|to| (to, lifter.part(RN, 8))),
        Code::InsElement => lane(0).zip(lane(1)).map(|(to, from)| (to, of(RN, from))),
        _ => None,
    };
    if let Some((lane, value)) = one {
        lifter.effects.push(Effect::SetLane { vector: lifter.field(RD), lane, value });
        return true;
    }
    let (width, from) = match decoded.code() {
        Code::FmovToGp64 => (8, Some(0)),
        Code::FmovToGp32 => (4, Some(0)),
        Code::FmovTopToGp => (8, Some(1)),
        Code::Umov => (8, lane(1)),
        _ => return false,
    };
    let Some(from) = from else { return false };
    let value = of(RN, from);
    lifter.set(width, value);
    true
}

/// Writes both halves of the result. The second can need what the first was.
fn write(lifter: &mut Lifter<'_>, mut lanes: [Expression; 2]) {
    let vector = lifter.field(RD);
    let overwritten = Expression::Lane { vector, lane: 0 };
    let mut needs = false;
    lanes[1].visit(&mut |part| needs |= *part == overwritten);
    if needs {
        let value = std::mem::replace(&mut lanes[1], Expression::Temporary(0));
        lifter.effects.push(Effect::Let { temporary: 0, value });
    }
    let lanes = (0..).zip(lanes);
    lifter.effects.extend(lanes.map(|(lane, value)| Effect::SetLane { vector, lane, value }));
}
