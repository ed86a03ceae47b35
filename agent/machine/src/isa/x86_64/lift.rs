//! The effects of one instruction.
//!
//! What is not followed by name is clobbered: whatever iced-x86 says that the instruction writes.

use iced_x86::{
    Code, ConditionCode, Instruction as Decoded, InstructionInfoFactory, MemorySize, Mnemonic, OpAccess, OpKind,
    Register,
};

use super::decode::decoded;
use super::operands::{
    address, address_of, general_register, is_high_byte, operand, operand_bits, relation, set, store,
};
use super::tables::{RAX, RBP, RCX, RDX, RSP};
use super::vector;
use crate::ir::{Address, Clobber, Effect, Expression, Instruction, Operation, RegisterSet, Relation, Test, bit};

/// Returns the effects of an instruction.
pub fn lift(instruction: &Instruction) -> Vec<Effect> {
    let decoded = decoded(instruction);
    let mut lifter = Lifter { instruction: &decoded, effects: Vec::new() };
    lifter.read_high_bytes();
    lifter.lift();
    lifter.effects
}

/// An instruction, and those of its effects that are known.
struct Lifter<'a> {
    instruction: &'a Decoded,
    effects: Vec<Effect>,
}

/// What the first and only temporary of most instructions is called.
const RESULT: u8 = 0;
/// What a temporary is called that keeps a load.
const LOADED: u8 = 1;

impl Lifter<'_> {
    /// Says that the registers of high bytes are read. What is in those is not followed.
    fn read_high_bytes(&mut self) {
        let registers = (0..self.instruction.op_count()).map(|operand| self.instruction.op_register(operand));
        let numbers = registers.filter(|register| is_high_byte(*register)).filter_map(general_register);
        let reads = numbers.fold(0, |reads, number| reads | bit(number));
        if reads != 0 {
            self.effects.push(Effect::Clobber(Clobber { reads, ..Clobber::default() }));
        }
    }

    fn lift(&mut self) {
        let instruction = self.instruction;
        match instruction.mnemonic() {
            Mnemonic::Mov => self.write(operand(instruction, 1)),
            Mnemonic::Movzx => match operand(instruction, 1) {
                Expression::Unknown => {
                    let bits = operand_bits(instruction, 1);
                    self.write(Expression::of_one(Operation::ZeroExtend(bits), Expression::Unknown));
                }
                value => self.write(value),
            },
            Mnemonic::Movsx | Mnemonic::Movsxd => {
                let extension = Operation::SignExtend(operand_bits(instruction, 1));
                self.write(Expression::of_one(extension, operand(instruction, 1)));
            }
            Mnemonic::Lea => {
                let has_segment = !matches!(instruction.segment_prefix(), Register::None);
                let address = address(instruction);
                // A segment does not matter to it.
                let is_elsewhere = address.is_elsewhere && !has_segment;
                self.write(Expression::Address(Address { is_elsewhere, ..address }));
            }
            Mnemonic::Sub | Mnemonic::Xor if is_from_itself(instruction) => {
                self.compare(Expression::Constant(0), Expression::Constant(0));
                self.write(Expression::Constant(0));
            }
            Mnemonic::Add => self.sum(Operation::Add, operand(instruction, 1)),
            Mnemonic::Inc => self.sum(Operation::Add, Expression::Constant(1)),
            Mnemonic::Dec => self.sum(Operation::Subtract, Expression::Constant(1)),
            Mnemonic::Sub => {
                let (left, right) = (self.loaded(0), self.loaded(1));
                self.difference(left, right);
            }
            Mnemonic::Neg => {
                let right = self.loaded(0);
                self.difference(Expression::Constant(0), right);
            }
            // It leaves -1 if there was a borrow, else 0.
            Mnemonic::Sbb if is_from_itself(instruction) => {
                let borrow = Expression::Truth(Test::Compared(Relation::Below));
                self.result(Expression::of_two(Operation::Subtract, Expression::Constant(0), borrow));
                self.zero_and_sign();
            }
            Mnemonic::Cmp => self.compare(operand(instruction, 0), operand(instruction, 1)),
            // Logic clears carry and overflow, as a comparison with zero does.
            Mnemonic::Test => {
                let (left, right) = (operand(instruction, 0), operand(instruction, 1));
                let both = if left == right { left } else { Expression::of_two(Operation::And, left, right) };
                self.compare(both, Expression::Constant(0));
            }
            Mnemonic::And => self.logic(Operation::And),
            Mnemonic::Or => self.logic(Operation::Or),
            Mnemonic::Xor => self.logic(Operation::Xor),
            Mnemonic::Push if instruction.stack_pointer_increment() == -8 => {
                self.effects.push(Effect::Push(operand(instruction, 0)));
            }
            Mnemonic::Pop if instruction.stack_pointer_increment() == 8 => self.pop(),
            Mnemonic::Leave if instruction.code() == Code::Leaveq => self.leave(),
            Mnemonic::Nop | Mnemonic::Endbr64 => {}
            _ if instruction.is_jcc_short_or_near() || instruction.is_jmp_short_or_near() => {}
            _ if self.choice() || self.arithmetic() => {}
            _ => match vector::lift(instruction) {
                Some(effects) => self.effects.extend(effects),
                None => self.unfollowed(),
            },
        }
    }

    /// Returns an operand. One in memory is loaded first, so that it can be used more than once.
    fn loaded(&mut self, index: u32) -> Expression {
        match operand(self.instruction, index) {
            value @ Expression::Load { .. } => {
                self.effects.push(Effect::Let { temporary: LOADED, value });
                Expression::Temporary(LOADED)
            }
            value => value,
        }
    }

    /// Writes the first operand.
    fn write(&mut self, value: Expression) {
        let effect = match self.instruction.op0_kind() {
            OpKind::Memory => store(self.instruction, value),
            _ => set(self.instruction.op0_register(), value),
        };
        self.effects.push(effect);
    }

    /// Writes the first operand, and keeps what it became.
    fn result(&mut self, value: Expression) {
        self.effects.push(Effect::Let { temporary: RESULT, value });
        self.write(Expression::Temporary(RESULT));
    }

    fn compare(&mut self, left: Expression, right: Expression) {
        self.effects.push(Effect::Compare { left, right, bits: operand_bits(self.instruction, 0) });
    }

    fn zero_and_sign(&mut self) {
        let bits = operand_bits(self.instruction, 0);
        self.effects.push(Effect::ZeroAndSign { of: Expression::Temporary(RESULT), bits });
    }

    fn forget_flags(&mut self, registers: u64) {
        self.effects.push(Effect::Clobber(Clobber { registers, flags: true, ..Clobber::default() }));
    }

    fn sum(&mut self, operation: Operation, right: Expression) {
        self.result(Expression::of_two(operation, operand(self.instruction, 0), right));
        self.zero_and_sign();
    }

    fn difference(&mut self, left: Expression, right: Expression) {
        self.compare(left.clone(), right.clone());
        self.write(Expression::of_two(Operation::Subtract, left, right));
    }

    fn logic(&mut self, operation: Operation) {
        self.result(Expression::of_two(operation, operand(self.instruction, 0), operand(self.instruction, 1)));
        self.compare(Expression::Temporary(RESULT), Expression::Constant(0));
    }

    fn pop(&mut self) {
        let address = Address { base: Some(RSP), ..Address::default() };
        let above = Expression::Address(address.offset(8));
        let value = Expression::Load { address, width: 8 };
        self.effects.push(Effect::Let { temporary: RESULT, value });
        self.effects.push(Effect::Set { register: RSP, width: 8, value: above });
        self.write(Expression::Temporary(RESULT));
    }

    fn leave(&mut self) {
        let address = Address { base: Some(RBP), ..Address::default() };
        self.effects.push(Effect::Let { temporary: LOADED, value: Expression::Load { address, width: 8 } });
        self.effects.push(Effect::Set { register: RSP, width: 8, value: Expression::Address(address.offset(8)) });
        self.effects.push(Effect::Set { register: RBP, width: 8, value: Expression::Temporary(LOADED) });
    }

    /// Lifts `cmovcc` and `setcc`. Returns `false` if it is another instruction.
    fn choice(&mut self) -> bool {
        let code = self.instruction.condition_code();
        if code == ConditionCode::None {
            return false;
        }
        let test = Test::Compared(relation(code));
        match (self.instruction.op_count(), self.instruction.op0_kind()) {
            (1, OpKind::Register | OpKind::Memory) => self.write(Expression::Truth(test)),
            (2, OpKind::Register) if general_register(self.instruction.op0_register()).is_some() => {
                let options = [operand(self.instruction, 1), operand(self.instruction, 0)];
                self.write(Expression::Select(test, Box::new(options)));
            }
            _ => return false,
        }
        true
    }

    /// Lifts multiplications, divisions, shifts and sign extensions. Returns `false` if it is another instruction, or
    /// is not followed.
    fn arithmetic(&mut self) -> bool {
        let instruction = self.instruction;
        let whole = |number| Expression::Register { number, width: 8 };
        let set = |register, value| Effect::Set { register, width: 8, value };
        let is_whole = || operand_bits(instruction, 0) == 64;
        match instruction.mnemonic() {
            Mnemonic::Cdqe => {
                self.effects.push(set(RAX, Expression::of_one(Operation::SignExtend(32), whole(RAX))));
            }
            Mnemonic::Cqo => {
                let sign = Operation::ShiftRightSigned(64);
                self.effects.push(set(RDX, Expression::of_two(sign, whole(RAX), Expression::Constant(63))));
            }
            Mnemonic::Imul if instruction.op_count() == 1 && is_whole() => {
                let value = Expression::of_two(Operation::UpperHalf, whole(RAX), operand(instruction, 0));
                self.effects.push(Effect::Let { temporary: RESULT, value });
                self.forget_flags(bit(RAX));
                self.effects.push(set(RDX, Expression::Temporary(RESULT)));
            }
            Mnemonic::Imul if instruction.op_count() > 1 => {
                let right = instruction.op_count() - 1;
                let (left, right) = (operand(instruction, right - 1), operand(instruction, right));
                self.write(Expression::of_two(Operation::Multiply, left, right));
                self.forget_flags(0);
            }
            Mnemonic::Idiv if is_whole() => {
                let of = Box::new([whole(RDX), whole(RAX), operand(instruction, 0)]);
                let value = Expression::Computed(Operation::Whole, of);
                self.effects.push(Effect::Let { temporary: RESULT, value });
                self.forget_flags(bit(RDX));
                self.effects.push(set(RAX, Expression::Temporary(RESULT)));
            }
            Mnemonic::Shl | Mnemonic::Sal => return self.shift(Operation::ShiftLeft),
            Mnemonic::Shr => return self.shift(Operation::ShiftRight),
            Mnemonic::Sar => return self.shift(Operation::ShiftRightSigned),
            _ => return false,
        }
        true
    }

    /// Lifts a shift. One by 0 bits leaves the flags as they are, and a short number can be shifted out altogether.
    fn shift(&mut self, operation: fn(u8) -> Operation) -> bool {
        let bits = operand_bits(self.instruction, 0);
        let operation = operation(bits);
        let value = operand(self.instruction, 0);
        match self.instruction.try_immediate(1) {
            Ok(by) if (1..u64::from(bits)).contains(&by) => {
                self.result(Expression::of_two(operation, value, Expression::Constant(by)));
                self.zero_and_sign();
            }
            Err(_) if bits >= 32 => {
                let by = Expression::Register { number: RCX, width: 1 };
                self.result(Expression::of_two(operation, value, by));
                self.forget_flags(0);
            }
            _ => return false,
        }
        true
    }

    fn unfollowed(&mut self) {
        let instruction = self.instruction;
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(instruction);
        for memory in info.used_memory() {
            let (base, index) = (memory.base(), memory.index());
            let address = address_of(base, index, memory.scale(), memory.displacement(), memory.segment());
            let size = u16::try_from(memory.memory_size().size()).ok().filter(|size| *size > 0);
            let bytes = size.filter(|_| !instruction.is_string_instruction());
            if reads(memory.access()) {
                self.effects.push(Effect::Read { address, bytes });
            }
            if writes(memory.access()) {
                self.effects.push(Effect::ClobberMemory { address, bytes });
            }
        }
        let mut clobber = Clobber { flags: instruction.rflags_modified() != 0, ..Clobber::default() };
        for used in info.used_registers() {
            let register = used.register();
            if let Some(number) = general_register(register) {
                let is_operand = (0..instruction.op_count()).any(|operand| {
                    instruction.op_kind(operand) == OpKind::Register
                        && general_register(instruction.op_register(operand)) == Some(number)
                });
                clobber.registers |= if writes(used.access()) { bit(number) } else { 0 };
                clobber.reads |= if reads(used.access()) { bit(number) } else { 0 };
                clobber.from |= if is_operand { bit(number) } else { 0 };
            } else if register.is_vector_register() && writes(used.access()) {
                clobber.vectors |= bit(register.full_register().number() as u8);
            }
        }
        // A whole state of the processor.
        if matches!(
            instruction.memory_size(),
            MemorySize::Fxsave_512Byte | MemorySize::Fxsave64_512Byte | MemorySize::Xsave | MemorySize::Xsave64
        ) {
            clobber.vectors = RegisterSet::MAX;
        }
        if clobber != Clobber::default() {
            self.effects.push(Effect::Clobber(clobber));
        }
    }
}

/// Returns whether an access changes what it accesses.
pub fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

fn reads(access: OpAccess) -> bool {
    !matches!(access, OpAccess::Write | OpAccess::NoMemAccess | OpAccess::None)
}

/// Returns whether both operands are the same register.
fn is_from_itself(instruction: &Decoded) -> bool {
    let is_register = |operand| instruction.op_kind(operand) == OpKind::Register;
    is_register(0) && is_register(1) && instruction.op0_register() == instruction.op1_register()
}
