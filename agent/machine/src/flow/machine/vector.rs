//! The SSE and AVX instructions that compilers make of a loop that adds up 8-byte numbers.

use iced_x86::{EncodingKind, Instruction, Mnemonic, OpKind, Register};

use super::run::{Halt, Run};

/// Returns whether an instruction is about vector registers.
pub fn is_vector(instruction: &Instruction) -> bool {
    let has_vector = (0..instruction.op_count()).any(|operand| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand).is_vector_register()
    });
    has_vector || instruction.mnemonic() == Mnemonic::Vzeroupper
}

/// Returns whether an instruction is one of SSE: its result is in its first operand too, and it leaves
/// the upper half of the register.
fn is_old(instruction: &Instruction) -> bool {
    instruction.code().encoding() == EncodingKind::Legacy
}

fn halves(value: u128) -> [u64; 2] {
    [value as u64, (value >> 64) as u64]
}

fn whole([low, high]: [u64; 2]) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

fn number(register: Register) -> Option<usize> {
    (register.is_xmm() || register.is_ymm())
        .then(|| register.number())
        .filter(|number| *number < 16)
}

impl Run<'_, '_> {
    /// Executes an instruction on vector registers.
    pub fn vector(&mut self, instruction: &Instruction) -> Result<(), Halt> {
        let unknown = || Halt::at(instruction);
        if instruction.has_op_mask() {
            return Err(unknown());
        }
        match instruction.mnemonic() {
            Mnemonic::Movdqa
            | Mnemonic::Movdqu
            | Mnemonic::Lddqu
            | Mnemonic::Movaps
            | Mnemonic::Movups
            | Mnemonic::Movapd
            | Mnemonic::Movupd
            | Mnemonic::Vmovdqa
            | Mnemonic::Vmovdqu
            | Mnemonic::Vlddqu
            | Mnemonic::Vmovaps
            | Mnemonic::Vmovups
            | Mnemonic::Vmovapd
            | Mnemonic::Vmovupd => {
                let value = self.read_vector(instruction, 1)?;
                self.write_vector(instruction, value)
            }
            // The upper half is cleared, except of `movsd` from register to register.
            Mnemonic::Movq
            | Mnemonic::Movd
            | Mnemonic::Movsd
            | Mnemonic::Vmovq
            | Mnemonic::Vmovd => {
                let between = (0..2).all(|operand| {
                    instruction.op_kind(operand) == OpKind::Register
                        && instruction.op_register(operand).is_xmm()
                });
                if instruction.mnemonic() == Mnemonic::Movsd && between {
                    return Err(unknown());
                }
                let value = match instruction.op1_kind() {
                    OpKind::Register if instruction.op1_register().is_xmm() => {
                        halves(self.read_vector(instruction, 1)?[0])[0]
                    }
                    _ => self.read(instruction, 1)?,
                };
                match number(instruction.op0_register()) {
                    Some(_) => self.write_vector(instruction, [u128::from(value), 0]),
                    None => self.write(instruction, 0, value),
                }
            }
            Mnemonic::Movhps | Mnemonic::Movhpd | Mnemonic::Movlps | Mnemonic::Movlpd => {
                if instruction.op1_kind() != OpKind::Memory {
                    return Err(unknown());
                }
                let loaded = self.read(instruction, 1)?;
                let [low, high] = halves(self.read_vector(instruction, 0)?[0]);
                let value = match instruction.mnemonic() {
                    Mnemonic::Movhps | Mnemonic::Movhpd => [low, loaded],
                    _ => [loaded, high],
                };
                self.write_vector(instruction, [whole(value), 0])
            }
            Mnemonic::Vextracti128
            | Mnemonic::Vextractf128
            | Mnemonic::Vextracti64x2
            | Mnemonic::Vextracti32x4 => {
                let from = self.read_vector(instruction, 1)?;
                let which = usize::from(instruction.immediate8() & 1);
                self.write_vector(instruction, [from[which], 0])
            }
            Mnemonic::Vzeroupper => {
                for [_, upper] in &mut self.vectors {
                    *upper = 0;
                }
                Ok(())
            }
            Mnemonic::Pextrq | Mnemonic::Vpextrq => {
                let value = halves(self.read_vector(instruction, 1)?[0]);
                let which = usize::from(instruction.immediate8() & 1);
                self.write(instruction, 0, value[which])
            }
            mnemonic => {
                let (left, right) = match mnemonic {
                    Mnemonic::Vpshufd => (1, 1),
                    _ if is_old(instruction) => (0, 1),
                    _ => (1, 2),
                };
                let left = self.read_vector(instruction, left)?;
                let right = self.read_vector(instruction, right)?;
                let half = |half: usize| {
                    combined(instruction, left[half], right[half]).ok_or_else(unknown)
                };
                let value = [half(0)?, half(1)?];
                self.write_vector(instruction, value)
            }
        }
    }

    /// Reads an operand of 16 bytes, with 0 for the upper half, or of 32.
    fn read_vector(&mut self, instruction: &Instruction, operand: u32) -> Result<[u128; 2], Halt> {
        let width = Self::width(instruction, operand);
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let number = number(instruction.op_register(operand));
                let [low, high] = self.vectors[number.ok_or(Halt::at(instruction))?];
                Ok([low, if width == 32 { high } else { 0 }])
            }
            OpKind::Memory if matches!(width, 16 | 32) => {
                let address = self.address(instruction)?;
                let mut value = [0; 4];
                for (index, word) in (0..width / 8).zip(&mut value) {
                    *word = self.load(instruction, address.wrapping_add(8 * index), 8)?;
                }
                let [first, second, third, fourth] = value;
                Ok([whole([first, second]), whole([third, fourth])])
            }
            OpKind::Immediate8 => Ok([u128::from(instruction.immediate8()); 2]),
            _ => Err(Halt::at(instruction)),
        }
    }

    /// Writes the first operand: 16 bytes, or 32.
    fn write_vector(&mut self, instruction: &Instruction, value: [u128; 2]) -> Result<(), Halt> {
        let width = Self::width(instruction, 0);
        if instruction.op0_kind() == OpKind::Memory {
            let address = self.address(instruction)?;
            let words = value.into_iter().flat_map(halves);
            for (index, word) in (0..width / 8).zip(words) {
                self.store(instruction, address.wrapping_add(8 * index), 8, word)?;
            }
            return Ok(());
        }
        let number = number(instruction.op0_register()).ok_or(Halt::at(instruction))?;
        let [low, high] = value;
        let [_, before] = self.vectors[number];
        let high = match width {
            32 => high,
            _ if is_old(instruction) => before,
            _ => 0,
        };
        self.vectors[number] = [low, high];
        Ok(())
    }
}

/// Computes the result of an instruction on two vectors.
fn combined(instruction: &Instruction, left: u128, right: u128) -> Option<u128> {
    let [left_low, left_high] = halves(left);
    let [right_low, right_high] = halves(right);
    Some(match instruction.mnemonic() {
        Mnemonic::Pxor
        | Mnemonic::Xorps
        | Mnemonic::Xorpd
        | Mnemonic::Vpxor
        | Mnemonic::Vxorps
        | Mnemonic::Vxorpd => left ^ right,
        Mnemonic::Paddq | Mnemonic::Vpaddq => whole([
            left_low.wrapping_add(right_low),
            left_high.wrapping_add(right_high),
        ]),
        Mnemonic::Psrldq | Mnemonic::Vpsrldq => left
            .checked_shr(8 * u32::try_from(right).ok()?)
            .unwrap_or(0),
        Mnemonic::Punpcklqdq
        | Mnemonic::Unpcklpd
        | Mnemonic::Movlhps
        | Mnemonic::Vpunpcklqdq
        | Mnemonic::Vunpcklpd => whole([left_low, right_low]),
        Mnemonic::Punpckhqdq | Mnemonic::Unpckhpd | Mnemonic::Vpunpckhqdq | Mnemonic::Vunpckhpd => {
            whole([left_high, right_high])
        }
        Mnemonic::Movhlps => whole([right_high, left_high]),
        Mnemonic::Pshufd | Mnemonic::Vpshufd => {
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
