//! General registers, by their numbers in x86-64 instructions, and who may change them.

use iced_x86::Register;

/// Number of the register of a function's result, and of the lower half of products.
pub const RAX: usize = 0;
/// Number of the register of the upper half of products.
pub const RDX: usize = 2;
/// Number of the stack pointer.
pub const RSP: usize = 4;
/// Number of the frame pointer, if a function has one.
pub const RBP: usize = 5;
/// Number of the register of a function's first argument, and of string instructions' destination.
pub const RDI: usize = 7;
/// Numbers of the registers that a call may change (System V ABI).
pub const CALLER_SAVED: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];
/// Numbers of the registers of a function's arguments, in their order.
pub const ARGUMENTS: [usize; 6] = [7, 6, 2, 1, 8, 9];
/// Numbers of the registers in which a callee can find something meant for it: the arguments and
/// the static chain. `rax` only holds the number of vector registers.
pub const PASSED: [usize; 7] = [1, 2, 6, 7, 8, 9, 10];

const NAMES_8: [&str; 16] =
    ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];
const NAMES_4: [&str; 16] = [
    "eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi", "r8d", "r9d", "r10d", "r11d", "r12d", "r13d", "r14d",
    "r15d",
];

/// A set of registers: bit i is number i.
pub type Registers = u16;

/// What a function does with registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Callee {
    /// The registers that it reads before it writes them.
    pub reads: Registers,
    /// The registers that it, or what it calls, writes.
    pub writes: Registers,
}

impl Callee {
    /// A function about which nothing is known.
    pub const UNKNOWN: Self = Self { reads: Registers::MAX, writes: Registers::MAX };

    /// Returns whether it may take an argument in a register.
    pub fn reads(self, number: usize) -> bool {
        self.reads & (1 << number) != 0
    }

    /// Returns whether a register may hold another value after the call.
    pub fn writes(self, number: usize) -> bool {
        self.writes & (1 << number) != 0
    }
}

/// Returns the number of a general register, given the whole register or any part of it.
pub fn general_register(register: Register) -> Option<usize> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number())
}

/// Returns whether a register is a high byte, such as `ah`.
pub fn is_high_byte(register: Register) -> bool {
    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH)
}

/// Returns what a register, or its low 4 bytes, is called.
pub fn register_name(number: u8, width: u8) -> &'static str {
    let names = if width == 4 { NAMES_4 } else { NAMES_8 };
    names.get(usize::from(number)).copied().unwrap_or("?")
}
