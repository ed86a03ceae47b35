//! What instructions do, in one small language for all instruction sets.
//!
//! An [`Instruction`] has an address, bytes, a [`Flow`] (how control goes on after it), a [`Hit`] (what a probe on it
//! costs), a text for people, and a list of [`Effect`]s. All that comes after an instruction set's own room in
//! [`crate::isa`] sees nothing else of it. Effects are made when they are first asked for, because most code is only
//! looked through.
//!
//! # Effects
//!
//! The effects of one instruction follow each other: an effect finds registers and memory as those before it left them,
//! and a [`Effect::Let`] keeps what they would have overwritten. There are few:
//!
//! - `Set` gives a general register a value, `SetLane` 8 bytes of a vector register, `Store` memory, and `Push` the
//!   place below the stack pointer, which it moves.
//! - `Compare` says what the two sides of the last comparison are, `CompareIf` that only if a test holds. `ZeroAndSign`
//!   says it of a result about which later tests can only learn whether it is zero, and its sign.
//! - `Clobber` and `ClobberMemory` say that something changes in a way that is not followed, and `Read` that memory is
//!   read for something that is not.
//!
//! Nothing is ever missing: what no effect mentions did not change. What is not followed is mentioned, by an effect
//! that clobbers it, or by [`Expression::Unknown`] as its value. So whoever executes effects may forget more than they
//! say, but never less. The test `processor` holds that against the processor itself.
//!
//! # Expressions
//!
//! An [`Expression`] is a number of 64 bits. A part of a register, and a load of fewer bytes, is zero-extended; whoever
//! takes fewer bits of a number takes its lowest. Arithmetic is modulo 2^64, so a sum of 4 bytes is the sum of two
//! zero-extended registers, of which `Set` takes 4 bytes. An [`Address`] is a sum of a register, a register times a
//! scale, and a number; one relative to the instruction is already that number. A [`Test`] asks for the last
//! comparison, whether a register is zero, or one bit of it.
//!
//! # Examples
//!
//! | x86-64 | effects |
//! |---|---|
//! | `mov 0x8(%rsp), %eax` | `Set rax, 4, Load(rsp + 8, 4)` |
//! | `sub %rbx, %rax` | `Compare rax, rbx, 64` · `Set rax, 8, rax - rbx` |
//! | `add $1, (%rdi)` | `Let 0, Load(rdi, 4) + 1` · `Store rdi, 4, 0` · `ZeroAndSign 0, 32` |
//! | `test %al, %al` | `Compare rax₁, 0, 8` |
//! | `cmovb %rcx, %rax` | `Set rax, 8, Select(Below, rcx, rax)` |
//! | `pop %rbx` | `Let 0, Load(rsp, 8)` · `Set rsp, 8, rsp + 8` · `Set rbx, 8, 0` |
//! | `je 0x1234` | none; its flow is `Branch(Equal, 0x1234)` |
//! | `rep stosb` | `Clobber rcx, rdi` · `ClobberMemory rdi, no limit` |
//! | `pxor %xmm0, %xmm0` | `SetLane 0, 0, 0` · `SetLane 0, 1, 0` |
//!
//! | aarch64 | effects |
//! |---|---|
//! | `ldr w0, [sp, #8]` | `Set x0, 4, Load(sp + 8, 4)` |
//! | `subs x0, x0, x1` | `Compare x0, x1, 64` · `Set x0, 8, x0 - x1` |
//! | `stp x29, x30, [sp, #-16]!` | `Set sp, 8, sp - 16` · `Store sp, 8, x29` · `Store sp + 8, 8, x30` |
//! | `csel x0, x1, x2, lo` | `Set x0, 8, Select(Below, x1, x2)` |
//! | `ccmp x0, #3, #4, ne` | `CompareIf NotEqual, x0, 3, 64, else Equal` and what else flags of 4 say |
//! | `cbz w0, 0x1234` | none; its flow is `Branch(Zero(x0, 4), 0x1234)` |
//! | `tbnz x3, #5, 0x1234` | none; its flow is `Branch(Bit(x3, 5), 0x1234)` |
//! | `adrp x0, 0x5000` | `Set x0, 8, 0x5000` |
//! | `bl 0x1000` | none; its flow is `Call(0x1000)` |

mod effect;
mod instruction;

pub use self::effect::{
    Access, AccessKind, Address, Clobber, Effect, Expression, Index, Operation, RegisterSet, Relation, Test, bit,
};
pub use self::instruction::{Flow, Hit, Instruction, MAX_BYTES};
