//! Vector registers as rows of 8 bytes, their lanes: what each lane of an instruction's result is made of.
//!
//! These are the instructions with which compilers move several values at once and add up 8-byte numbers, and the
//! arithmetic of numbers of type `double`.

use iced_x86::{Code, EncodingKind, Instruction, Mnemonic, OpKind};

use super::atom::Operation;

/// An operand, and which of its lanes.
pub type Lane = (u32, usize);

/// What a lane of a result is made of.
pub enum Source {
    Zero,
    /// The same 8 bytes.
    Lane(Lane),
    /// The sum of two whole numbers.
    Sum([Lane; 2]),
    Computed(Operation, Vec<Lane>),
}

/// Returns whether an instruction belongs to SSE: it leaves the upper half of a register as it is.
pub fn is_old(instruction: &Instruction) -> bool {
    instruction.code().encoding() == EncodingKind::Legacy
}

/// Returns what a lane of the first operand, which the instruction writes, becomes; `None` if that is not understood.
pub fn source(instruction: &Instruction, lane: usize) -> Option<Source> {
    if instruction.has_op_mask() {
        return None;
    }
    let last = instruction.op_count().checked_sub(1)?;
    let has_immediate = instruction.op_kind(last) == OpKind::Immediate8;
    let order = match has_immediate {
        true => usize::from(instruction.immediate8()),
        false => 0,
    };
    let inputs = instruction.op_count() - u32::from(has_immediate);
    // In the older instructions the first operand is also an input.
    let (left, right) = (u32::from(inputs == 3), inputs.checked_sub(1)?);
    let is_store = instruction.op0_kind() == OpKind::Memory;
    let is_load = !is_store && instruction.op_kind(right) == OpKind::Memory;
    // Most work on the halves of each 16 bytes.
    let (first, half) = (lane & !1, lane & 1);
    let both = || vec![(left, lane), (right, lane)];
    let source = match instruction.mnemonic() {
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
        Mnemonic::Movq | Mnemonic::Vmovq | Mnemonic::Movd | Mnemonic::Vmovd if lane == 0 => {
            (right, 0)
        }
        Mnemonic::Movq | Mnemonic::Vmovq | Mnemonic::Movd | Mnemonic::Vmovd => {
            return Some(Source::Zero);
        }
        Mnemonic::Movsd | Mnemonic::Vmovsd => match lane {
            0 => (right, 0),
            _ if is_load => return Some(Source::Zero),
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
        | Mnemonic::Vmovlhps => ([left, right][half], first),
        Mnemonic::Punpckhqdq | Mnemonic::Vpunpckhqdq | Mnemonic::Unpckhpd | Mnemonic::Vunpckhpd => {
            ([left, right][half], first + 1)
        }
        Mnemonic::Movhlps | Mnemonic::Vmovhlps => ([right, left][half], 1),
        Mnemonic::Pinsrq | Mnemonic::Vpinsrq => match order & 1 == lane {
            true => (right, 0),
            false => (left, lane),
        },
        Mnemonic::Pextrq | Mnemonic::Vpextrq => (right, order & 1),
        Mnemonic::Vextracti128
        | Mnemonic::Vextractf128
        | Mnemonic::Vextracti64x2
        | Mnemonic::Vextracti32x4 => (right, 2 * (order & 1) + lane),
        Mnemonic::Shufpd | Mnemonic::Vshufpd => ([left, right][half], first + (order >> lane & 1)),
        // It moves 4 bytes at a time.
        Mnemonic::Pshufd | Mnemonic::Vpshufd => match order >> (4 * half) & 15 {
            0b01_00 => (right, first),
            0b11_10 => (right, first + 1),
            _ => return None,
        },
        Mnemonic::Psrldq | Mnemonic::Vpsrldq if order == 8 => match half {
            0 => (right, first + 1),
            _ => return Some(Source::Zero),
        },
        Mnemonic::Pxor
        | Mnemonic::Xorps
        | Mnemonic::Xorpd
        | Mnemonic::Vpxor
        | Mnemonic::Vxorps
        | Mnemonic::Vxorpd
            if !is_load && instruction.op_register(left) == instruction.op_register(right) =>
        {
            return Some(Source::Zero);
        }
        Mnemonic::Paddq | Mnemonic::Vpaddq => {
            return Some(Source::Sum([(left, lane), (right, lane)]));
        }
        Mnemonic::Mulpd | Mnemonic::Vmulpd => {
            return Some(Source::Computed(Operation::Product, both()));
        }
        Mnemonic::Mulsd | Mnemonic::Vmulsd if lane == 0 => {
            return Some(Source::Computed(Operation::Product, both()));
        }
        Mnemonic::Vfmadd132sd if lane == 0 => return Some(product_and_sum([0, 2, 1])),
        Mnemonic::Vfmadd213sd if lane == 0 => return Some(product_and_sum([1, 0, 2])),
        Mnemonic::Vfmadd231sd if lane == 0 => return Some(product_and_sum([1, 2, 0])),
        Mnemonic::Vfmadd132sd | Mnemonic::Vfmadd213sd | Mnemonic::Vfmadd231sd => (0, lane),
        Mnemonic::Divsd | Mnemonic::Vdivsd if lane == 0 => {
            return Some(Source::Computed(Operation::Quotient, both()));
        }
        Mnemonic::Cvtsi2sd | Mnemonic::Vcvtsi2sd if lane == 0 => match instruction.code() {
            Code::Cvtsi2sd_xmm_rm64 | Code::VEX_Vcvtsi2sd_xmm_xmm_rm64 => {
                return Some(Source::Computed(Operation::Double, vec![(right, 0)]));
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
    Some(Source::Lane(source))
}

/// Makes the product of the first two of these operands, plus the third.
fn product_and_sum(operands: [u32; 3]) -> Source {
    let lanes = operands.map(|operand| (operand, 0));
    Source::Computed(Operation::ProductAndSum, lanes.to_vec())
}
