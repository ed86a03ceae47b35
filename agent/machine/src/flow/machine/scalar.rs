//! Instructions on general registers.

use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind};

use super::flags::Flags;
use super::run::{Halt, Run};
use crate::code::registers::{RBP, RSP};
use crate::flow::bits;

impl Run<'_, '_> {
    /// Executes an instruction on general registers.
    pub fn scalar(&mut self, instruction: &Instruction) -> Result<(), Halt> {
        let width = Self::width(instruction, 0);
        match instruction.mnemonic() {
            Mnemonic::Nop | Mnemonic::Endbr64 => Ok(()),
            Mnemonic::Mov | Mnemonic::Movzx => {
                let value = self.read(instruction, 1)?;
                self.write(instruction, 0, value)
            }
            Mnemonic::Movsx | Mnemonic::Movsxd => {
                let from = Self::width(instruction, 1);
                let value = sign_extended(self.read(instruction, 1)?, from);
                self.write(instruction, 0, value)
            }
            Mnemonic::Cdqe => {
                self.registers[0] = sign_extended(self.registers[0], 4);
                Ok(())
            }
            Mnemonic::Lea => {
                let address = self.address(instruction)?;
                self.write(instruction, 0, address)
            }
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec | Mnemonic::Cmp => {
                self.sum(instruction, width)
            }
            Mnemonic::And | Mnemonic::Test | Mnemonic::Or | Mnemonic::Xor => {
                let left = self.read(instruction, 0)?;
                let right = self.read(instruction, 1)?;
                let result = match instruction.mnemonic() {
                    Mnemonic::Or => left | right,
                    Mnemonic::Xor => left ^ right,
                    _ => left & right,
                };
                self.flags = Flags::of_logic(result, width);
                match instruction.mnemonic() {
                    Mnemonic::Test => Ok(()),
                    _ => self.write(instruction, 0, result),
                }
            }
            Mnemonic::Shl | Mnemonic::Sal | Mnemonic::Shr | Mnemonic::Sar => {
                self.shift(instruction, width)
            }
            Mnemonic::Imul if instruction.op_count() >= 2 => {
                let last = instruction.op_count() - 1;
                let left = sign_extended(self.read(instruction, last - 1)?, width);
                let right = sign_extended(self.read(instruction, last)?, width);
                self.flags = Flags::default();
                self.write(instruction, 0, left.wrapping_mul(right))
            }
            Mnemonic::Push | Mnemonic::Pop | Mnemonic::Leave => self.stack(instruction),
            _ if instruction.condition_code() != ConditionCode::None => self.choice(instruction),
            _ => Err(Halt::at(instruction)),
        }
    }

    fn sum(&mut self, instruction: &Instruction, width: u64) -> Result<(), Halt> {
        let mnemonic = instruction.mnemonic();
        let left = self.read(instruction, 0)?;
        let right = match mnemonic {
            Mnemonic::Inc | Mnemonic::Dec => 1,
            _ => self.read(instruction, 1)?,
        };
        let adds = matches!(mnemonic, Mnemonic::Add | Mnemonic::Inc);
        let (result, flags) = if adds {
            (left.wrapping_add(right), Flags::of_sum(left, right, width))
        } else {
            let flags = Flags::of_difference(left, right, width);
            (left.wrapping_sub(right), flags)
        };
        self.flags = match mnemonic {
            Mnemonic::Inc | Mnemonic::Dec => flags.keeping_carry_of(self.flags),
            _ => flags,
        };
        match mnemonic {
            Mnemonic::Cmp => Ok(()),
            _ => self.write(instruction, 0, result),
        }
    }

    fn shift(&mut self, instruction: &Instruction, width: u64) -> Result<(), Halt> {
        let bits = 8 * width;
        let mask = if bits == 64 { 63 } else { 31 };
        let value = self.read(instruction, 0)?;
        let by = self.read(instruction, 1)? & mask;
        if by == 0 {
            return Ok(());
        }
        if by >= bits {
            return Err(Halt::at(instruction));
        }
        let (result, carry) = match instruction.mnemonic() {
            Mnemonic::Shr => (value >> by, value >> (by - 1) & 1),
            Mnemonic::Sar => {
                let signed = sign_extended(value, width).cast_signed();
                ((signed >> by).cast_unsigned(), value >> (by - 1) & 1)
            }
            _ => (value << by, value >> (bits - by) & 1),
        };
        self.flags = Flags::of_shift(result, carry == 1, width);
        self.write(instruction, 0, result)
    }

    fn stack(&mut self, instruction: &Instruction) -> Result<(), Halt> {
        match instruction.mnemonic() {
            Mnemonic::Push => {
                let value = self.read(instruction, 0)?;
                let top = self.registers[RSP].wrapping_sub(8);
                self.registers[RSP] = top;
                self.store(instruction, top, 8, value)
            }
            Mnemonic::Pop => {
                let top = self.registers[RSP];
                let value = self.load(instruction, top, 8)?;
                self.registers[RSP] = top.wrapping_add(8);
                self.write(instruction, 0, value)
            }
            _ => {
                let frame = self.registers[RBP];
                self.registers[RBP] = self.load(instruction, frame, 8)?;
                self.registers[RSP] = frame.wrapping_add(8);
                Ok(())
            }
        }
    }

    /// `cmovcc` and `setcc`.
    fn choice(&mut self, instruction: &Instruction) -> Result<(), Halt> {
        let holds = self.flags.condition(instruction.condition_code());
        let holds = holds.ok_or(Halt::at(instruction))?;
        if instruction.op_count() == 1 {
            return self.write(instruction, 0, u64::from(holds));
        }
        // A load is made whether or not the condition holds, and the upper half is cleared.
        if instruction.op0_kind() != OpKind::Register {
            return Err(Halt::at(instruction));
        }
        let [kept, moved] = [self.read(instruction, 0)?, self.read(instruction, 1)?];
        self.write(instruction, 0, if holds { moved } else { kept })
    }
}

fn sign_extended(value: u64, width: u64) -> u64 {
    bits::sign_extended(value, 8 * width).cast_unsigned()
}
