//! Which servers run here, and what can be learnt of a process from `/proc`.
//!
//! [`Scanner`] finds the servers, [`label`] names them, [`Executable`] reads what they run,
//! [`find_debug_file`] the file with its debug information, and [`memory`] finds where an executable is
//! loaded and reads words of its memory. All functions here block; the first look at a server with
//! many connections takes a while, since all its file descriptors are looked at.
//!
//! Deliberately absent: what is in an executable (`evictscope-plan`), and anything that writes to a
//! process or talks to it.

mod debug_file;
mod executable;
mod labels;
mod matcher;
pub mod memory;
mod observed;
mod scan;
mod scheduling;
mod sockets;
mod unrelated;

pub use debug_file::{find_debug_file, root_of};
pub use executable::{Executable, ExecutableId};
pub use labels::label;
pub use matcher::{DEFAULT_PATTERN, Matcher};
pub use observed::Identity;
pub use scan::{Scan, Scanner, ServerProcess};
pub use scheduling::Scheduling;
