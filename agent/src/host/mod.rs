//! Which servers run here, and what can be learnt of a process from `/proc`.
//!
//! [`Scanner`] finds the servers, [`label`] names them, [`Executable`] reads what they run, [`find_debug_file`] the file with its debug information, and
//! [`memory`] finds where that is loaded and reads words of it. All functions here block; the
//! first look at a server with many connections takes a while, since all its file descriptors are
//! looked at.
//!
//! Deliberately absent: what is in an executable (`binary`), and anything that writes to a process
//! or talks to it.

mod debug_file;
mod executable;
mod labels;
mod matcher;
pub mod memory;
mod observed;
mod scan;
mod scheduling;
mod sockets;
#[cfg(test)]
mod testing;
mod unrelated;

pub use debug_file::{Search, Wanted, find_debug_file};
pub use executable::{Executable, ExecutableId};
pub use labels::label;
pub use matcher::{DEFAULT_PATTERN, Matcher, MatcherError};
pub use scan::{Identity, Scan, Scanner, ServerProcess};
pub use scheduling::Scheduling;
