//! Recipes, evaluated on the registers at a probe site.

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::bpf_probe_read_user;
use evictscope_ebpf::{Recipe, Term, TermKind};

/// Copies the registers to where they can be chosen at run time: the verifier allows no variable
/// offset into the context itself.
#[inline(always)]
pub fn copy_registers(to: &mut [u64; 16], regs: &pt_regs) {
    to[0] = regs.rax;
    to[1] = regs.rcx;
    to[2] = regs.rdx;
    to[3] = regs.rbx;
    to[4] = regs.rsp;
    to[5] = regs.rbp;
    to[6] = regs.rsi;
    to[7] = regs.rdi;
    to[8] = regs.r8;
    to[9] = regs.r9;
    to[10] = regs.r10;
    to[11] = regs.r11;
    to[12] = regs.r12;
    to[13] = regs.r13;
    to[14] = regs.r14;
    to[15] = regs.r15;
}

/// The value of one term; `None` where its memory cannot be read.
#[inline(always)]
pub fn term(term: &Term, registers: &[u64; 16]) -> Option<u64> {
    let register = registers[usize::from(term.register & 15)];
    let value = match term.kind {
        kind if kind == TermKind::Register as u8 => register,
        kind if kind == TermKind::Memory as u8 => {
            read_user(register.wrapping_add(term.displacement as u64))?
        }
        kind if kind == TermKind::Absolute as u8 => read_user(term.displacement as u64)?,
        _ => 0,
    };
    let value = if term.width == 4 {
        value as u32 as u64
    } else {
        value
    };
    Some(if term.negative != 0 {
        value.wrapping_neg()
    } else {
        value
    })
}

/// The value of a recipe; `None` where memory that it needs cannot be read.
#[inline(always)]
pub fn recipe(recipe: &Recipe, registers: &[u64; 16]) -> Option<u64> {
    let mut sum = 0_u64;
    for each in &recipe.terms {
        sum = sum.wrapping_add(term(each, registers)?);
    }
    Some(sum)
}

/// The 8 bytes at an address of the traced process.
#[inline(always)]
pub fn read_user(address: u64) -> Option<u64> {
    // SAFETY: the helper checks the address and fails where it cannot be read.
    unsafe { bpf_probe_read_user(address as *const u64) }.ok()
}
