//! How unwind tables, debug information and the kernel number registers.

use gimli::Register;

/// The numbers that one instruction set has there.
pub struct Unwinding {
    /// The number of the stack pointer.
    pub stack_pointer: Register,
    /// The number of what says where a frame goes on.
    pub return_address: Register,
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
