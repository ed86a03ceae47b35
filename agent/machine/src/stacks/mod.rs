//! Which functions a copied stack is made of: who called whom, according to the unwind tables (`.eh_frame`), and what
//! they are called.
//!
//! Only the tables count: if they say nothing about an address, nothing is guessed. Files are not trusted: a table
//! entry, an expression and what is kept of a file have bounds. The caller limits the number of steps.
//!
//! Deliberately absent: which files a process has mapped where.

mod file;
mod unwind;

pub use self::file::{CodeFile, NamedCode, TracedEntry};
pub use self::unwind::{Caller, FrameRegisters, Work};
