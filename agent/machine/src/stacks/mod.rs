//! Which functions a copied stack is made of: who called whom, by the unwind tables (`.eh_frame`), and what they are
//! called.
//!
//! Everything is by the tables: where they say nothing of an address, nothing is guessed. Files are not trusted: an
//! entry of a table, an expression and what is kept of a file have bounds. How many steps are made is up to the caller.
//!
//! Deliberately absent: which files a process has where in its memory.

mod file;
mod functions;
mod registers;
mod unwind;

pub use file::CodeFile;
pub use functions::{Function, Names, Traced};
pub use registers::Registers;
pub use unwind::{Caller, Work};
