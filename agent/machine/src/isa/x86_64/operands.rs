//! The operands of instructions: registers, memory, numbers, conditions.

use iced_x86::{ConditionCode, Instruction as Decoded, OpKind, Register};

use crate::ir::{Address, Clobber, Effect, Expression, Index, Relation, bit};

/// Returns the width of an operand in bits.
pub fn operand_bits(instruction: &Decoded, operand: u32) -> u8 {
    let bytes = match instruction.op_kind(operand) {
        OpKind::Register => instruction.op_register(operand).size(),
        _ => instruction.memory_size().size(),
    };
    u8::try_from(bytes.saturating_mul(8)).unwrap_or(u8::MAX)
}

/// Returns what an operand is before the instruction.
pub fn operand(instruction: &Decoded, index: u32) -> Expression {
    let register = || instruction.op_register(index);
    match instruction.op_kind(index) {
        OpKind::Register if !is_high_byte(register()) => match general_register(register()) {
            Some(number) => Expression::Register { number, width: register().size() as u8 },
            None => Expression::Unknown,
        },
        OpKind::Memory => match instruction.memory_size().size() {
            width @ (1 | 2 | 4 | 8) => Expression::Load { address: address(instruction), width: width as u8 },
            _ => Expression::Unknown,
        },
        _ => instruction.try_immediate(index).map_or(Expression::Unknown, Expression::Constant),
    }
}

/// Returns the effect of setting a register, or a part of one.
pub fn set(register: Register, value: Expression) -> Effect {
    match general_register(register) {
        Some(number) if is_high_byte(register) => {
            Effect::Clobber(Clobber { registers: bit(number), reads: value.reads(), ..Clobber::default() })
        }
        Some(number) => Effect::Set { register: number, width: register.size() as u8, value },
        None => Effect::Clobber(Clobber { from: value.reads(), reads: value.reads(), ..Clobber::default() }),
    }
}

/// Returns the effect of storing to the memory operand.
pub fn store(instruction: &Decoded, value: Expression) -> Effect {
    let address = address(instruction);
    match instruction.memory_size().size() {
        width @ (1 | 2 | 4 | 8) => Effect::Store { address, width: width as u8, value },
        size => Effect::ClobberMemory { address, bytes: u16::try_from(size).ok().filter(|size| *size > 0) },
    }
}

/// Returns the address of the memory operand.
pub fn address(instruction: &Decoded) -> Address {
    let segment = match instruction.memory_segment() {
        segment @ (Register::FS | Register::GS) => segment,
        _ => Register::None,
    };
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    address_of(base, index, instruction.memory_index_scale(), instruction.memory_displacement64(), segment)
}

/// Returns the address that registers and a number make.
pub fn address_of(base: Register, index: Register, scale: u32, displacement: u64, segment: Register) -> Address {
    let part = |register: Register| general_register(register).filter(|_| register != Register::None);
    let is_whole = |register: Register| matches!(register, Register::None | Register::RIP) || register.is_gpr64();
    Address {
        base: part(base),
        index: part(index).map(|index| Index::whole(index, scale as u8)),
        displacement,
        is_elsewhere: matches!(segment, Register::FS | Register::GS) || !is_whole(base) || !is_whole(index),
    }
}

/// Returns what a condition says of a comparison.
pub fn relation(code: ConditionCode) -> Relation {
    match code {
        ConditionCode::e => Relation::Equal,
        ConditionCode::ne => Relation::NotEqual,
        ConditionCode::b => Relation::Below,
        ConditionCode::be => Relation::BelowOrEqual,
        ConditionCode::a => Relation::Above,
        ConditionCode::ae => Relation::AboveOrEqual,
        ConditionCode::l => Relation::Less,
        ConditionCode::le => Relation::LessOrEqual,
        ConditionCode::g => Relation::Greater,
        ConditionCode::ge => Relation::GreaterOrEqual,
        ConditionCode::s => Relation::Negative,
        ConditionCode::ns => Relation::NotNegative,
        // Overflow and parity.
        other => Relation::Other((other as u8).saturating_sub(ConditionCode::o as u8)),
    }
}

/// Returns the number of a general register, given the whole register or any part of it.
pub fn general_register(register: Register) -> Option<u8> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number() as u8)
}

/// Returns whether a register is a high byte, such as `ah`.
pub fn is_high_byte(register: Register) -> bool {
    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH)
}
