//! Finds the servers that run on this host, and reads what `/proc` says about a process.
//!
//! Start with [`Scanner`], which finds the servers. [`labels()`] names them, [`ContainerName`] names their containers,
//! [`Executable`] reads what they run, [`debug_places`] lists where its debug information may be, [`load_bias`] finds where an
//! executable is loaded, and [`Words`] reads a process's memory. All functions here block; the first look at a server with many
//! connections takes a while, because it looks at all file descriptors.
//!
//! It neither writes to a process nor talks to one. Deliberately absent: what is in an executable (`evictscope-plan`).

#![forbid(unsafe_code)]

mod confinement;
mod containers;
mod files;
mod process;
mod servers;

pub use self::confinement::{
    Confinement, LINKS, MORE_FILES, OTHERS, capability_names, has_own_network,
};
pub use self::containers::container::Container;
pub use self::containers::container_name::{ContainerName, PodName};
pub use self::files::debug_file::{
    DebugPlace, Opened, Search, debug_places, mount_namespace, root_of, search,
};
pub use self::files::executable::{Contents, Executable, ExecutableError, ExecutableId};
pub use self::process::breakpoints::{breakpoints, is_traced};
pub use self::process::handle::ProcessHandle;
pub use self::process::identity::Identity;
pub use self::process::memory::{MemoryError, Words, load_bias, offsets_of_code};
pub use self::process::scheduling::Scheduling;
pub use self::servers::labels::{NewServer, labels};
pub use self::servers::look::{HiddenServer, ServerProcess};
pub use self::servers::matcher::{DEFAULT_PATTERN, Matcher};
pub use self::servers::scanner::{Scan, Scanner};
pub use crate::containers::container::Quotas;
pub use crate::files::debug_file::package_of;
pub use crate::servers::look::unanswering;
pub use crate::servers::unrelated::Exclusion;
