//! Finds the servers that run on this host, and reads what `/proc` says about a process.
//!
//! Start with [`Scanner`], which finds the servers. [`labels()`] names them, [`ContainerName`] names their containers,
//! [`Executable`] reads what they run, [`debug_places`] lists where its debug information may be, [`load_bias`] finds
//! where an executable is loaded, and [`Words`] reads a process's memory. All functions here block; the first look at a
//! server with many connections takes a while, because it looks at all file descriptors.
//!
//! It neither writes to a process nor talks to one. Deliberately absent: what is in an executable (`evictscope-plan`).

#![forbid(unsafe_code)]

mod confinement;
mod containers;
mod files;
mod printable;
mod process;
mod security;
mod servers;

pub use confinement::{Confinement, LINKS, MORE_FILES, OTHERS, capability_names, has_own_network};
pub use containers::container::Container;
pub use containers::container_name::{ContainerName, PodName};
pub use containers::oom::{HostKills, OomGroup};
pub use containers::quota::Quotas;
pub use files::debug_file::{DebugPlace, Opened, Search, debug_places, mount_namespace, root_of, search};
pub use files::executable::{Contents, Executable, ExecutableError, ExecutableId};
pub use files::overlay::lower_file;
pub use files::package::package_of;
pub use files::regular::{open_regular, read_regular};
pub use printable::printable;
pub use process::breakpoints::{breakpoints, is_traced, runs_code_of};
pub use process::handle::{ProcessHandle, Remains};
pub use process::identity::Identity;
pub use process::memory::{MemoryError, Words, load_bias, offsets_of_code};
pub use process::scheduling::Scheduling;
pub use security::security_modules;
pub use servers::exclusion::Exclusion;
pub use servers::file_system::unanswering;
pub use servers::labels::{NewServer, labels};
pub use servers::look::{HiddenServer, ServerProcess};
pub use servers::matcher::{DEFAULT_PATTERN, Matcher};
pub use servers::scanner::{Scan, Scanner};
