//! How unwind tables, debug information and the kernel number registers.

use gimli::{Register, Vendor};

/// The numbers that one instruction set has there.
pub struct Unwinding {
    /// The number of the stack pointer.
    pub stack_pointer: Register,
    /// The number of what says where a frame's caller goes on.
    pub return_address: Register,
    /// The number of what says where a frame itself goes on.
    pub instruction_pointer: Register,
    /// The bits of an address; others of a return address can be its signature.
    pub addresses: u64,
    /// Whose additions to unwind tables are understood.
    pub vendor: Vendor,
    /// The numbers of the registers that a function preserves.
    pub preserved: &'static [Register],
    /// By its number there: the number that instructions use for a register.
    pub numbers: &'static [u8],
    /// The places of registers among those that the kernel keeps of an interrupted thread.
    pub interrupted: &'static [(Register, usize)],
}

/// What the loader does at a place that a relocation names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Relocation {
    /// It stores an address in the file.
    Relative,
    /// It stores the address of a symbol.
    Symbol,
    /// It stores the address of a function, of another file if the symbol is not in this one.
    Import,
}
