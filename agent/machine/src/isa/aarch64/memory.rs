//! The effects of loads and stores of one register or two.

use fARM64::{ExtendType, Instruction as Decoded, MemIndexMode, Mnemonic, Operand, Register, UsedMemory};

use super::operands::{Lifter, general, somewhere, sum};
use crate::ir::{Address, Effect, Expression, Index, Operation};

/// The bits of what fARM64 says of a shifted index that say by how many bits.
const SHIFT: u8 = 0x7;

/// The most bytes that an instruction moves that has a limit: four vector registers.
pub const MOST_BYTES: u16 = 64;

/// What a load or store moves.
struct Access {
    is_load: bool,
    registers: usize,
    /// How many bytes of each register; all if that is 0.
    bytes: u8,
    is_signed: bool,
}

/// Lifts a load or a store. Returns `false` if it is another instruction, or is not followed.
pub fn lift(lifter: &mut Lifter<'_>) -> bool {
    let decoded = lifter.decoded;
    let Some(access) = access(decoded.code().mnemonic()) else { return false };
    let Some((address, moved_base)) = operand(&decoded.op(access.registers)) else { return false };
    // What is moved, each part to or from where it is.
    let mut parts: Vec<(Address, u8, Place)> = Vec::new();
    let mut offset = 0;
    for index in 0..access.registers {
        let register = decoded.op_register(index);
        let all = (register.width_bits() / 8) as u8;
        let bytes = if access.bytes == 0 { all } else { access.bytes };
        let lanes = if register.is_simd() { 1 + u8::from(bytes == 16) } else { 1 };
        for lane in 0..lanes {
            let place = match (general(register), register) {
                (Some(number), _) => Place::General { number, width: all },
                (None, Register::Xzr | Register::Wzr) => Place::Zero,
                (None, _) if register.is_simd() => Place::Lane { vector: register.number(), lane },
                (None, _) => return false,
            };
            let width = bytes / lanes;
            parts.push((address.offset(offset), width, place));
            offset += u64::from(width);
        }
    }
    if access.is_load {
        load(lifter, &access, parts, moved_base);
    } else {
        let moves_first = moved_base.as_ref().is_some_and(|moved| moved.is_first);
        let stored_at = |at: Address| {
            let moved = moved_base.as_ref().filter(|_| moves_first);
            moved.map_or(at, |moved| at.offset(moved.by.cast_unsigned().wrapping_neg()))
        };
        let stores = parts.into_iter().map(|(at, width, place)| Effect::Store {
            address: stored_at(at),
            width,
            value: place.value(),
        });
        let stores: Vec<Effect> = stores.collect();
        let moved = moved_base.as_ref().map(MovedBase::effect);
        if moves_first {
            lifter.effects.extend(moved.into_iter().chain(stores));
        } else {
            lifter.effects.extend(stores.into_iter().chain(moved));
        }
    }
    true
}

fn load(lifter: &mut Lifter<'_>, access: &Access, parts: Vec<(Address, u8, Place)>, moved_base: Option<MovedBase>) {
    let is_alone = parts.len() == 1 && moved_base.is_none();
    let mut loaded = Vec::new();
    for (temporary, (address, width, place)) in (0..).zip(parts) {
        let value = Expression::Load { address, width };
        let value = match access.is_signed {
            true => Expression::of_one(Operation::SignExtend(8 * width), value),
            false => value,
        };
        if is_alone {
            loaded.push((place, value));
        } else {
            lifter.effects.push(Effect::Let { temporary, value });
            loaded.push((place, Expression::Temporary(temporary)));
        }
    }
    lifter.effects.extend(moved_base.as_ref().map(MovedBase::effect));
    for (place, value) in loaded {
        match place {
            Place::General { number, width } => lifter.effects.push(Effect::Set { register: number, width, value }),
            Place::Lane { vector, lane } => {
                lifter.effects.push(Effect::SetLane { vector, lane, value });
                // The rest of the register becomes 0; a second part follows if there is one.
                let rest = Effect::SetLane { vector, lane: 1, value: Expression::Constant(0) };
                lifter.effects.extend((lane == 0).then_some(rest));
            }
            Place::Zero => {}
        }
    }
}

/// Where a part is moved to or from.
enum Place {
    General { number: u8, width: u8 },
    Lane { vector: u8, lane: u8 },
    Zero,
}

impl Place {
    fn value(self) -> Expression {
        match self {
            Self::General { number, width } => Expression::Register { number, width },
            Self::Lane { vector, lane } => Expression::Lane { vector, lane },
            Self::Zero => Expression::Constant(0),
        }
    }
}

/// A base that the instruction moves.
struct MovedBase {
    base: u8,
    by: i64,
    /// Whether it is moved before memory is accessed.
    is_first: bool,
}

impl MovedBase {
    fn effect(&self) -> Effect {
        let base = Expression::Register { number: self.base, width: 8 };
        let value = sum(false, base, Expression::Constant(self.by.cast_unsigned()));
        Effect::Set { register: self.base, width: 8, value }
    }
}

fn access(mnemonic: Mnemonic) -> Option<Access> {
    let load = |bytes| Access { is_load: true, registers: 1, bytes, is_signed: false };
    let signed = |bytes| Access { is_signed: true, ..load(bytes) };
    let store = |bytes| Access { is_load: false, ..load(bytes) };
    Some(match mnemonic {
        Mnemonic::Ldr | Mnemonic::Ldur | Mnemonic::Ldar | Mnemonic::Ldapr | Mnemonic::Ldapur => load(0),
        Mnemonic::Ldrb | Mnemonic::Ldurb | Mnemonic::Ldarb | Mnemonic::Ldaprb | Mnemonic::Ldapurb => load(1),
        Mnemonic::Ldrh | Mnemonic::Ldurh | Mnemonic::Ldarh | Mnemonic::Ldaprh | Mnemonic::Ldapurh => load(2),
        Mnemonic::Ldrsb | Mnemonic::Ldursb | Mnemonic::Ldapursb => signed(1),
        Mnemonic::Ldrsh | Mnemonic::Ldursh | Mnemonic::Ldapursh => signed(2),
        Mnemonic::Ldrsw | Mnemonic::Ldursw | Mnemonic::Ldapursw => signed(4),
        Mnemonic::Str | Mnemonic::Stur | Mnemonic::Stlr | Mnemonic::Stlur => store(0),
        Mnemonic::Strb | Mnemonic::Sturb | Mnemonic::Stlrb | Mnemonic::Stlurb => store(1),
        Mnemonic::Strh | Mnemonic::Sturh | Mnemonic::Stlrh | Mnemonic::Stlurh => store(2),
        Mnemonic::Ldp | Mnemonic::Ldnp => Access { registers: 2, ..load(0) },
        Mnemonic::Ldpsw => Access { registers: 2, ..signed(4) },
        Mnemonic::Stp | Mnemonic::Stnp => Access { registers: 2, ..store(0) },
        _ => return None,
    })
}

/// Returns the address of an operand in memory, and how its base is moved.
fn operand(operand: &Operand) -> Option<(Address, Option<MovedBase>)> {
    match *operand {
        Operand::MemImm { base, imm, mode } => {
            let base = general(base)?;
            let moved = |is_first| Some(MovedBase { base, by: imm, is_first });
            let (displacement, moved) = match mode {
                MemIndexMode::Offset => (imm, None),
                MemIndexMode::PreIndex => (imm, moved(true)),
                MemIndexMode::PostImm => (0, moved(false)),
                MemIndexMode::PreNoOffset | MemIndexMode::PostReg => return None,
            };
            let displacement = displacement.cast_unsigned();
            Some((Address { base: Some(base), displacement, ..Address::default() }, moved))
        }
        Operand::MemExt { base, index, extend, shift } => {
            let half = match extend {
                ExtendType::Uxtw => Some(false),
                ExtendType::Sxtw => Some(true),
                _ => None,
            };
            let scale = 1 << (shift & SHIFT);
            let index = general(index).map(|register| Index { register, scale, half });
            Some((Address { base: general(base), index, ..Address::default() }, None))
        }
        Operand::Label(at) => Some((Address { displacement: at, ..Address::default() }, None)),
        _ => None,
    }
}

/// Returns the address of memory that an instruction uses in a way that is not followed.
pub fn address(decoded: &Decoded, used: &UsedMemory) -> Address {
    let operands = (0..decoded.op_count()).map(|index| decoded.op(index));
    let known = operands.filter(|_| !used.base.is_sve()).find_map(|of| operand(&of));
    // One whose base is moved by a register begins there.
    known.map_or_else(|| somewhere(general(used.base)), |(address, _)| address)
}
