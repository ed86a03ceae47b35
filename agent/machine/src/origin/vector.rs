//! The instructions on vector registers by which compilers move two values or more at once.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::{Before, Holder, Origin, Origins};
use crate::code::block::InstructionId;
use crate::code::instruction::is_call;

impl Origins<'_> {
    /// Returns what 8 bytes of a vector register were before the instruction at `at`.
    pub(super) fn before_lane(
        &mut self,
        at: InstructionId,
        instruction: &Instruction,
        vector: usize,
        lane: usize,
        depth: u32,
    ) -> Option<Before> {
        if is_call(instruction) {
            return None;
        }
        let unchanged = Some(Before::Held(Holder::Lane { vector, lane }, 0));
        let is_own = |register: Register| {
            register.is_vector_register() && register.full_register().number() == vector
        };
        if instruction.mnemonic() == Mnemonic::Vzeroupper && lane < 2 {
            return unchanged;
        }
        if !self.writes_register(instruction, is_own) {
            return unchanged;
        }
        if instruction.op0_kind() != OpKind::Register || !is_own(instruction.op0_register()) {
            return None;
        }
        if is_move(instruction.mnemonic()) {
            let width = instruction.op0_register().size();
            return match 8 * lane < width && instruction.op_count() == 2 {
                true => self.operand(at, instruction, 1, lane, depth),
                false => None,
            };
        }
        // Both halves of a vector of 16 bytes; the older instructions have their result in the
        // first operand too.
        let immediate = instruction.op_kind(instruction.op_count().checked_sub(1)?);
        let has_immediate = u32::from(immediate == OpKind::Immediate8);
        let inputs = instruction.op_count().checked_sub(has_immediate)?;
        let right = inputs.checked_sub(1)?;
        let left = u32::from(inputs == 3);
        let order = match has_immediate {
            1 => usize::from(instruction.immediate8()),
            _ => 0,
        };
        let is_load = instruction.op_kind(right) == OpKind::Memory;
        if let (Mnemonic::Mulsd | Mnemonic::Vmulsd, 0) = (instruction.mnemonic(), lane) {
            return self.multiplied(at, instruction, depth);
        }
        let (operand, from) = match (instruction.mnemonic(), lane) {
            (Mnemonic::Movq | Mnemonic::Vmovq, 0) => (right, 0),
            (Mnemonic::Movsd | Mnemonic::Vmovsd, 0) => (right, 0),
            (Mnemonic::Movq | Mnemonic::Vmovq, 1) => {
                return Some(Before::Origin(Origin::Number(0)));
            }
            (Mnemonic::Movhps | Mnemonic::Movhpd | Mnemonic::Vmovhps | Mnemonic::Vmovhpd, _)
            | (Mnemonic::Movlps | Mnemonic::Movlpd | Mnemonic::Vmovlps | Mnemonic::Vmovlpd, _)
                if !is_load =>
            {
                return None;
            }
            (Mnemonic::Movhps | Mnemonic::Movhpd | Mnemonic::Vmovhps | Mnemonic::Vmovhpd, 1)
            | (Mnemonic::Movlps | Mnemonic::Movlpd | Mnemonic::Vmovlps | Mnemonic::Vmovlpd, 0) => {
                (right, 0)
            }
            (Mnemonic::Movhps | Mnemonic::Movhpd | Mnemonic::Vmovhps | Mnemonic::Vmovhpd, 0)
            | (Mnemonic::Movlps | Mnemonic::Movlpd | Mnemonic::Vmovlps | Mnemonic::Vmovlpd, 1) => {
                (left, lane)
            }
            (
                Mnemonic::Punpcklqdq
                | Mnemonic::Vpunpcklqdq
                | Mnemonic::Unpcklpd
                | Mnemonic::Vunpcklpd
                | Mnemonic::Movlhps
                | Mnemonic::Vmovlhps,
                0 | 1,
            ) => ([left, right][lane], 0),
            (
                Mnemonic::Punpckhqdq
                | Mnemonic::Vpunpckhqdq
                | Mnemonic::Unpckhpd
                | Mnemonic::Vunpckhpd,
                0 | 1,
            ) => ([left, right][lane], 1),
            (Mnemonic::Movhlps | Mnemonic::Vmovhlps, 0 | 1) => ([right, left][lane], 1),
            (Mnemonic::Pinsrq | Mnemonic::Vpinsrq, 0 | 1) => match order & 1 == lane {
                true => (right, 0),
                false => (left, lane),
            },
            (Mnemonic::Shufpd | Mnemonic::Vshufpd, 0 | 1) => {
                ([left, right][lane], order >> lane & 1)
            }
            // It moves 4 bytes at a time.
            (Mnemonic::Pshufd | Mnemonic::Vpshufd, 0 | 1) => match order >> (4 * lane) & 15 {
                0b01_00 => (right, 0),
                0b11_10 => (right, 1),
                _ => return None,
            },
            _ => return None,
        };
        self.operand(at, instruction, operand, from, depth)
    }

    /// Returns which 8 bytes of the register are stored as number `lane` of what is stored.
    pub(super) fn lane_stored(instruction: &Instruction, lane: usize) -> Option<usize> {
        match instruction.mnemonic() {
            mnemonic if is_move(mnemonic) => Some(lane),
            Mnemonic::Movq
            | Mnemonic::Vmovq
            | Mnemonic::Movsd
            | Mnemonic::Vmovsd
            | Mnemonic::Movlps
            | Mnemonic::Vmovlps
            | Mnemonic::Movlpd
            | Mnemonic::Vmovlpd => Some(0),
            Mnemonic::Movhps | Mnemonic::Vmovhps | Mnemonic::Movhpd | Mnemonic::Vmovhpd => Some(1),
            _ => None,
        }
    }
}

/// Returns whether an instruction moves a whole vector.
fn is_move(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
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
            | Mnemonic::Vlddqu
    )
}
