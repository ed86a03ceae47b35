//! The SSE instructions that compilers make of a loop that adds up 8-byte numbers.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::run::{Halt, Run};

/// Returns whether an instruction has an operand of 16 bytes or more in a vector register.
pub fn is_vector(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|operand| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand).is_vector_register()
    })
}

fn halves(value: u128) -> [u64; 2] {
    [value as u64, (value >> 64) as u64]
}

fn whole([low, high]: [u64; 2]) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

fn number(register: Register) -> Option<usize> {
    register
        .is_xmm()
        .then(|| register.number())
        .filter(|number| *number < 16)
}

impl Run<'_, '_> {
    /// Executes an instruction on vector registers.
    pub fn vector(&mut self, instruction: &Instruction) -> Result<(), Halt> {
        let unknown = || Halt::at(instruction);
        match instruction.mnemonic() {
            Mnemonic::Movdqa
            | Mnemonic::Movdqu
            | Mnemonic::Lddqu
            | Mnemonic::Movaps
            | Mnemonic::Movups
            | Mnemonic::Movapd
            | Mnemonic::Movupd => {
                let value = self.read_vector(instruction, 1)?;
                self.write_vector(instruction, value)
            }
            // The upper half is cleared, except of `movsd` from register to register.
            Mnemonic::Movq | Mnemonic::Movd | Mnemonic::Movsd => {
                let between = (0..2).all(|operand| {
                    instruction.op_kind(operand) == OpKind::Register
                        && instruction.op_register(operand).is_xmm()
                });
                if instruction.mnemonic() == Mnemonic::Movsd && between {
                    return Err(unknown());
                }
                let value = match instruction.op1_kind() {
                    OpKind::Register if instruction.op1_register().is_xmm() => {
                        halves(self.read_vector(instruction, 1)?)[0]
                    }
                    _ => self.read(instruction, 1)?,
                };
                match number(instruction.op0_register()) {
                    Some(to) => {
                        self.vectors[to] = u128::from(value);
                        Ok(())
                    }
                    None => self.write(instruction, 0, value),
                }
            }
            Mnemonic::Movhps | Mnemonic::Movhpd | Mnemonic::Movlps | Mnemonic::Movlpd => {
                if instruction.op1_kind() != OpKind::Memory {
                    return Err(unknown());
                }
                let loaded = self.read(instruction, 1)?;
                let [low, high] = halves(self.read_vector(instruction, 0)?);
                let value = match instruction.mnemonic() {
                    Mnemonic::Movhps | Mnemonic::Movhpd => [low, loaded],
                    _ => [loaded, high],
                };
                self.write_vector(instruction, whole(value))
            }
            Mnemonic::Pextrq => {
                let value = halves(self.read_vector(instruction, 1)?);
                let which = usize::from(instruction.immediate8() & 1);
                self.write(instruction, 0, value[which])
            }
            _ => {
                let left = self.read_vector(instruction, 0)?;
                let right = self.read_vector(instruction, 1)?;
                let value = combined(instruction, left, right).ok_or_else(unknown)?;
                self.write_vector(instruction, value)
            }
        }
    }

    fn read_vector(&mut self, instruction: &Instruction, operand: u32) -> Result<u128, Halt> {
        match instruction.op_kind(operand) {
            OpKind::Register => number(instruction.op_register(operand))
                .map(|number| self.vectors[number])
                .ok_or(Halt::at(instruction)),
            OpKind::Memory if Self::width(instruction, operand) == 16 => {
                let address = self.address(instruction)?;
                let low = self.load(instruction, address, 8)?;
                let high = self.load(instruction, address.wrapping_add(8), 8)?;
                Ok(whole([low, high]))
            }
            OpKind::Immediate8 => Ok(u128::from(instruction.immediate8())),
            _ => Err(Halt::at(instruction)),
        }
    }

    fn write_vector(&mut self, instruction: &Instruction, value: u128) -> Result<(), Halt> {
        if instruction.op0_kind() == OpKind::Memory {
            let address = self.address(instruction)?;
            let [low, high] = halves(value);
            self.store(instruction, address, 8, low)?;
            return self.store(instruction, address.wrapping_add(8), 8, high);
        }
        let number = number(instruction.op0_register()).ok_or(Halt::at(instruction))?;
        self.vectors[number] = value;
        Ok(())
    }
}

/// Computes the result of an instruction on two vectors.
fn combined(instruction: &Instruction, left: u128, right: u128) -> Option<u128> {
    let [left_low, left_high] = halves(left);
    let [right_low, right_high] = halves(right);
    Some(match instruction.mnemonic() {
        Mnemonic::Pxor | Mnemonic::Xorps | Mnemonic::Xorpd => left ^ right,
        Mnemonic::Paddq => whole([
            left_low.wrapping_add(right_low),
            left_high.wrapping_add(right_high),
        ]),
        Mnemonic::Psrldq => left
            .checked_shr(8 * u32::try_from(right).ok()?)
            .unwrap_or(0),
        Mnemonic::Punpcklqdq | Mnemonic::Unpcklpd | Mnemonic::Movlhps => {
            whole([left_low, right_low])
        }
        Mnemonic::Punpckhqdq | Mnemonic::Unpckhpd => whole([left_high, right_high]),
        Mnemonic::Movhlps => whole([right_high, left_high]),
        Mnemonic::Pshufd => {
            let order = instruction.immediate8();
            (0..4).rev().fold(0, |value, index| {
                let which = u32::from(order >> (2 * index) & 3);
                value << 32 | (right >> (32 * which)) & 0xffff_ffff
            })
        }
        Mnemonic::Shufpd => {
            let order = instruction.immediate8();
            let pick = |halves: [u64; 2], bit: u8| halves[usize::from(order >> bit & 1)];
            whole([pick(halves(left), 0), pick(halves(right), 1)])
        }
        _ => return None,
    })
}
