//! Executes single instructions.
//!
//! A call returns an atom that names it, and changes what the System V ABI lets it change. An instruction that is not
//! modelled makes opaque whatever it writes, so it never leads to a wrong value.
//!
//! Executes multiplications, divisions, shifts and sign extensions.

use crate::ir::Instruction;
use iced_x86::{ConditionCode, InstructionInfoFactory, Mnemonic, OpKind, Register, UsedRegister};

use super::operands::{MemoryPlace, Step};
use crate::code::instruction::{
    self, CALLER_SAVED, Callee, PASSED, RAX, RDI, RDX, RSP, general_register, is_call, operand_bits, writes,
};
use crate::flow::values::atoms::{Atom, Operation};
use crate::flow::values::condition::Flags;
use crate::flow::values::value::{Value, sign_extended};

/// Bytes that an instruction without a repeat prefix is assumed to write to memory, if their number is not known.
const WIDEST_STORE: i64 = 64;
/// How far an aligned stack pointer is assumed to be from where it was: farther than any frame is large.
const ALIGNED: u64 = 1 << 32;

impl Step<'_> {
    /// Executes the instruction; `callee` is what it calls, if anything.
    pub fn execute(mut self, callee: Callee, info: &mut InstructionInfoFactory) {
        let instruction = self.instruction;
        match instruction.mnemonic() {
            Mnemonic::Mov => {
                let value = self.read(1);
                self.write(0, value);
            }
            Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => self.extend(),
            Mnemonic::Lea => {
                let value = self.address().unwrap_or_else(|| self.unknown_address());
                self.write(0, value);
            }
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec => self.sum(),
            Mnemonic::Sbb if is_from_itself(instruction) => self.borrow(),
            Mnemonic::Neg => self.negate(),
            Mnemonic::Cmp => self.compare(),
            Mnemonic::And if self.is_alignment() => {
                let aligned = self.state.registers[RSP].offset(ALIGNED.wrapping_neg());
                self.state.registers[RSP] = aligned;
                self.state.flags = Flags::Unknown;
            }
            Mnemonic::Test | Mnemonic::And | Mnemonic::Or | Mnemonic::Xor => self.logic(),
            Mnemonic::Push => {
                let value = self.read(0);
                self.push(value);
            }
            Mnemonic::Pop => {
                let value = self.pop();
                self.write(0, value);
            }
            Mnemonic::Nop | Mnemonic::Endbr64 | Mnemonic::Ret => {}
            _ if instruction.is_jcc_short_or_near() || instruction.is_jmp_short_or_near() => {}
            _ if instruction.condition_code() != ConditionCode::None && self.is_choice() => self.choice(),
            _ if is_call(instruction) => self.call(callee),
            _ if self.arithmetic() || self.vector() => {}
            _ => self.unmodelled(info),
        }
    }

    fn extend(&mut self) {
        let bits = operand_bits(self.instruction, 1);
        let value = self.read(1);
        let value = match self.instruction.mnemonic() {
            Mnemonic::Movzx => self.atoms.zero_extended(&value, bits),
            _ => self.atoms.sign_extended(&value, bits),
        };
        self.write(0, value);
    }

    /// Makes an unknown address. If it may be on the stack, any slot escapes.
    fn unknown_address(&mut self) -> Value {
        if let MemoryPlace::SomewhereOnStack = self.place() {
            self.state.escape(i64::MIN, self.atoms);
        }
        self.opaque(0)
    }

    fn call(&mut self, known: Callee) {
        let site = instruction::address(self.instruction);
        let callee = instruction::callee(self.instruction);
        self.hand_out(known);
        self.state.lanes.clear();
        for number in CALLER_SAVED.into_iter().filter(|number| known.writes(*number)) {
            let index = u32::try_from(number).unwrap_or(u32::MAX);
            self.state.registers[number] = self.opaque(index);
        }
        self.state.registers[0] = self.atoms.value(Atom::Call { site, callee });
        self.state.flags = Flags::Unknown;
        self.state.clobber_memory(site, self.atoms);
        for (offset, value) in self.known.calls.get(&site).into_iter().flatten() {
            self.state.store_slot(*offset, 8, value.clone());
        }
    }

    /// Lets the addresses on the stack escape that a callee can find in registers. Those that it can find on the stack
    /// escaped when they were stored there. What is below the stack pointer is gone.
    fn hand_out(&mut self, callee: Callee) {
        if let Some(top) = self.atoms.stack_offset(&self.state.registers[RSP]) {
            self.state.stack.retain(|at, _| *at >= top);
        }
        for number in PASSED.into_iter().filter(|number| callee.reads(*number)) {
            let value = self.state.registers[number].clone();
            self.state.escape_value(&value, self.atoms);
        }
    }

    fn unmodelled(&mut self, info: &mut InstructionInfoFactory) {
        let info = info.info(self.instruction);
        let stores = (info.used_memory().iter()).any(|memory| writes(memory.access()));
        if stores {
            self.unmodelled_store();
        }
        // What is computed from an address on the stack may be one, too.
        self.escape_operands();
        let written = (info.used_registers().iter()).filter(|used| writes(used.access()));
        for register in written.map(UsedRegister::register) {
            if let Some(number) = general_register(register) {
                let index = u32::try_from(number).unwrap_or(u32::MAX);
                self.state.registers[number] = self.opaque(index);
            } else if register.is_vector_register() {
                let number = register.full_register().number();
                self.state.lanes.retain(|(vector, _), _| *vector != number);
            }
        }
        if self.instruction.rflags_modified() != 0 {
            self.state.flags = Flags::Unknown;
        }
    }

    fn unmodelled_store(&mut self) {
        if !self.instruction.is_string_instruction() {
            let place = self.place();
            let width = match self.instruction.memory_size().size() {
                0 => WIDEST_STORE,
                known => i64::try_from(known).unwrap_or(i64::MAX),
            };
            return self.store_unknown(&place, width);
        }
        // It stores upwards from where `rdi` points.
        if let Some(lowest) = self.atoms.reach_on_stack(&self.state.registers[RDI]) {
            self.state.forget_slots(lowest, self.atoms);
        }
        self.store_unknown(&MemoryPlace::Unknown, 0);
    }

    /// Executes `add`, `sub`, `inc` and `dec`.
    fn sum(&mut self) {
        let bits = operand_bits(self.instruction, 0);
        let left = self.read(0);
        let right = match self.instruction.mnemonic() {
            Mnemonic::Inc | Mnemonic::Dec => Value::constant(1),
            _ => self.read(1),
        };
        let result = match self.instruction.mnemonic() {
            Mnemonic::Sub | Mnemonic::Dec => left.minus(&right),
            _ => left.plus(&right, 1),
        };
        let result = if self.atoms.is_short(&result) { result } else { self.lose(&[&left, &right]) };
        self.write(0, result.clone());
        self.state.flags = match self.instruction.mnemonic() {
            Mnemonic::Sub => Flags::Comparison { left, right, bits },
            _ => Flags::ZeroAndSign { of: result, bits },
        };
    }

    /// Executes `neg`.
    fn negate(&mut self) {
        let bits = operand_bits(self.instruction, 0);
        let (left, right) = (Value::constant(0), self.read(0));
        self.write(0, left.minus(&right));
        self.state.flags = Flags::Comparison { left, right, bits };
    }

    /// Executes `cmp`.
    fn compare(&mut self) {
        self.state.flags =
            Flags::Comparison { left: self.read(0), right: self.read(1), bits: operand_bits(self.instruction, 0) };
    }

    /// Executes `and`, `or`, `xor` and `test`.
    fn logic(&mut self) {
        let bits = operand_bits(self.instruction, 0);
        let (left, right) = (self.read(0), self.read(1));
        let mnemonic = self.instruction.mnemonic();
        let result = match (left.as_constant(), right.as_constant()) {
            _ if left == right && mnemonic == Mnemonic::Xor => Value::constant(0),
            _ if left == right => left,
            (Some(left), Some(right)) => Value::constant(match mnemonic {
                Mnemonic::Or => left | right,
                Mnemonic::Xor => left ^ right,
                _ => left & right,
            }),
            (_, Some(u64::MAX)) if mnemonic == Mnemonic::Or => Value::constant(u64::MAX),
            _ => match self.combine(&left, &right) {
                Some(value) => value,
                None if mnemonic == Mnemonic::Test => self.opaque(0),
                None => self.lose(&[&left, &right]),
            },
        };
        if mnemonic != Mnemonic::Test {
            self.write(0, result.clone());
        }
        // Logic clears carry and overflow, as a comparison with zero does.
        self.state.flags = Flags::Comparison { left: result, right: Value::constant(0), bits };
    }

    /// Returns the result of a bitwise operation on numbers that say whether conditions hold.
    fn combine(&mut self, left: &Value, right: &Value) -> Option<Value> {
        let is_one = right.as_constant() == Some(1);
        match self.instruction.mnemonic() {
            Mnemonic::Xor if is_one => self.atoms.inverted(left),
            Mnemonic::Or => self.atoms.combined(false, left, right),
            Mnemonic::And | Mnemonic::Test if is_one => {
                let low = self.atoms.zero_extended(left, 8);
                self.atoms.as_truth(&low).is_some().then_some(low)
            }
            Mnemonic::And | Mnemonic::Test => self.atoms.combined(true, left, right),
            _ => None,
        }
    }

    /// Executes `sbb` of a register from itself, which leaves -1 if there was a borrow, else 0.
    fn borrow(&mut self) {
        let bits = operand_bits(self.instruction, 0);
        let value = match self.state.flags.condition(ConditionCode::b) {
            Some(condition) => Value::constant(0).minus(&self.atoms.truth(condition)),
            None => self.opaque(0),
        };
        self.write(0, value.clone());
        self.state.flags = Flags::ZeroAndSign { of: value, bits };
    }

    /// Executes `cmovcc` and `setcc`.
    fn choice(&mut self) {
        let condition = self.state.flags.condition(self.instruction.condition_code());
        let value = if self.instruction.op_count() == 1 {
            match condition {
                Some(condition) => self.atoms.truth(condition),
                None => {
                    let byte = self.opaque(0);
                    self.atoms.zero_extended(&byte, 8)
                }
            }
        } else {
            let (then, otherwise) = (self.read(1), self.read(0));
            match condition {
                Some(condition) => self.atoms.select(condition, then, otherwise),
                None if then == otherwise => then,
                None => self.lose(&[&then, &otherwise]),
            }
        };
        self.write(0, value);
    }

    /// Returns whether it aligns the stack pointer, and objects are told apart by what they are reached from.
    fn is_alignment(&self) -> bool {
        self.instruction.op0_register() == Register::RSP && self.atoms.limits.reach.is_some()
    }

    /// Returns whether it is `cmovcc` or `setcc`, if it has a condition at all.
    fn is_choice(&self) -> bool {
        matches!(self.instruction.op0_kind(), OpKind::Register | OpKind::Memory) && self.instruction.op_count() <= 2
    }

    /// Makes the result opaque. Addresses on the stack from which it was made escape.
    fn lose(&mut self, operands: &[&Value]) -> Value {
        for operand in operands {
            self.state.escape_value(operand, self.atoms);
        }
        self.opaque(0)
    }
}

/// Returns whether both operands are the same register.
fn is_from_itself(instruction: &Instruction) -> bool {
    let is_register = |operand| instruction.op_kind(operand) == OpKind::Register;
    is_register(0) && is_register(1) && instruction.op0_register() == instruction.op1_register()
}

/// How many bits to shift a number by to leave only its sign.
const SIGN: u32 = 63;

impl Step<'_> {
    /// Executes one of these instructions. Returns `false` if it is another, or not understood.
    pub fn arithmetic(&mut self) -> bool {
        let instruction = self.instruction;
        match instruction.mnemonic() {
            Mnemonic::Cdqe => {
                let whole = self.state.registers[RAX].clone();
                self.state.registers[RAX] = self.atoms.sign_extended(&whole, 32);
                true
            }
            Mnemonic::Cqo => {
                let sign = self.state.registers[RAX].clone();
                self.state.registers[RDX] = self.shifted(sign, SIGN, true);
                true
            }
            Mnemonic::Imul if instruction.op_count() == 1 => self.wide_product(),
            Mnemonic::Idiv => self.whole_quotient(),
            Mnemonic::Imul => self.product(),
            Mnemonic::Shl | Mnemonic::Sal | Mnemonic::Shr | Mnemonic::Sar => self.shift(),
            _ => false,
        }
    }

    /// Executes `imul` of two 8-byte numbers, and keeps the upper half.
    fn wide_product(&mut self) -> bool {
        if operand_bits(self.instruction, 0) != 64 {
            return false;
        }
        self.escape_operands();
        let of = vec![self.state.registers[RAX].clone(), self.read(0)];
        self.state.registers[RDX] = self.atoms.value(Atom::Computed { operation: Operation::UpperHalf, of });
        self.state.registers[RAX] = self.opaque(0);
        self.state.flags = Flags::Unknown;
        true
    }

    /// Executes `idiv` of an 8-byte number.
    fn whole_quotient(&mut self) -> bool {
        let dividend = self.state.registers[RAX].clone();
        let sign = self.shifted(dividend.clone(), SIGN, true);
        if operand_bits(self.instruction, 0) != 64 || self.state.registers[RDX] != sign {
            return false;
        }
        let of = vec![dividend, self.read(0)];
        self.state.registers[RAX] = self.atoms.value(Atom::Computed { operation: Operation::Whole, of });
        self.state.registers[RDX] = self.opaque(0);
        self.state.flags = Flags::Unknown;
        true
    }

    /// Executes `imul` by a known number.
    fn product(&mut self) -> bool {
        let right = self.instruction.op_count() - 1;
        let (left, right) = (self.read(right - 1), self.read(right));
        let product = match (left.as_constant(), right.as_constant()) {
            (_, Some(factor)) => Value::constant(0).plus(&left, factor),
            (Some(factor), _) => Value::constant(0).plus(&right, factor),
            (None, None) => return false,
        };
        self.escape_operands();
        self.write(0, product);
        self.state.flags = Flags::Unknown;
        true
    }

    /// Executes a shift by a known number of bits.
    fn shift(&mut self) -> bool {
        let bits = operand_bits(self.instruction, 0);
        let by = self.number(1).and_then(|by| u32::try_from(by).ok());
        let Some(by) = by.filter(|by| (1..u32::from(bits)).contains(by)) else { return false };
        let value = self.read(0);
        let is_signed = self.instruction.mnemonic() == Mnemonic::Sar;
        let result = match self.instruction.mnemonic() {
            Mnemonic::Shl | Mnemonic::Sal => Value::constant(0).plus(&value, 1 << by),
            _ => match value.as_constant() {
                Some(number) if is_signed => {
                    let signed = sign_extended(number, u64::from(bits)) >> by;
                    Value::constant(signed.cast_unsigned())
                }
                Some(number) => Value::constant(number >> by),
                None if bits == 64 => self.shifted(value, by, is_signed),
                None => return false,
            },
        };
        self.escape_operands();
        self.write(0, result.clone());
        self.state.flags = Flags::ZeroAndSign { of: result, bits };
        true
    }

    /// Returns an 8-byte number shifted to the right.
    fn shifted(&mut self, value: Value, by: u32, is_signed: bool) -> Value {
        self.atoms.value(Atom::Computed { operation: Operation::Shifted { by, is_signed }, of: vec![value] })
    }
}
