//! Recipes, evaluated on the registers at a probe site.

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::bpf_probe_read_user;
use evictscope_abi::{Recipe, Term, TermKind};

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

/// A value that may not be known. Not an `Option`, whose absent payload the compiler leaves
/// undefined: the verifier refuses a program that so much as copies it.
#[derive(Clone, Copy)]
pub struct Known {
    /// The value; 0 where it is not known.
    pub value: u64,
    /// Whether it is.
    pub is_known: bool,
}

impl Known {
    /// Not known.
    pub const NOT: Self = Self {
        value: 0,
        is_known: false,
    };
}

/// The value of one term; not known where its memory cannot be read.
#[inline(always)]
pub fn term(term: &Term, registers: &[u64; 16]) -> Known {
    let on_register = term.kind == TermKind::Register as u8 || term.kind == TermKind::Memory as u8;
    let in_memory = term.kind == TermKind::Memory as u8 || term.kind == TermKind::Absolute as u8;
    let base = if on_register {
        registers[usize::from(term.register & 15)]
    } else {
        0
    };
    let mut value = base.wrapping_add(term.displacement as u64);
    if in_memory {
        match read_user(value) {
            Some(read) => value = read,
            None => return Known::NOT,
        }
    }
    if term.width == 4 {
        value = value as u32 as u64;
    }
    if term.negative != 0 {
        value = value.wrapping_neg();
    }
    Known {
        value,
        is_known: true,
    }
}

/// The value of a recipe; not known where memory that it needs cannot be read.
#[inline(always)]
pub fn recipe(recipe: &Recipe, registers: &[u64; 16]) -> Known {
    let mut sum = Known {
        value: 0,
        is_known: true,
    };
    for each in &recipe.terms {
        let Known { value, is_known } = term(each, registers);
        sum.value = sum.value.wrapping_add(value);
        sum.is_known &= is_known;
    }
    sum
}

/// The 8 bytes at an address of the traced process.
#[inline(always)]
pub fn read_user(address: u64) -> Option<u64> {
    // SAFETY: the helper checks the address and fails where it cannot be read.
    unsafe { bpf_probe_read_user(address as *const u64) }.ok()
}
