//! Finds the servers that run on this host, and reads what `/proc` says about a process.
//!
//! Start with [`Scanner`], which finds the servers. [`labels()`] names them, [`ContainerName`] names their containers,
//! [`Executable`] reads what they run, [`debug_places`] lists where its debug information may be, [`load_bias`] finds
//! where an executable is loaded, and [`Words`] reads a process's memory. All functions here block; the first look at a
//! server with many connections takes a while, because it looks at all file descriptors.
//!
//! It neither writes to a process nor talks to one. Deliberately absent: what is in an executable (`evictscope-plan`).

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "only this workspace uses it: a name and a type say what most of these are")]

mod breakpoints;
mod cgroups;
mod confinement;
mod container_name;
mod debug_file;
mod executable;
mod limits;
mod memory;
mod mount;
mod names;
mod process;
mod regular;
mod scanner;
mod scheduling;

pub use breakpoints::{breakpoints, is_traced, runs_code_of};
pub use cgroups::Container;
pub use confinement::{Confinement, LINKS, MORE_FILES, OTHERS, capability_names, has_own_network, security_modules};
pub use container_name::{ContainerName, PodName};
pub use debug_file::{DebugPlace, OpenedDebugFile, Search, debug_places, mount_namespace, package_of, root_of, search};
pub use executable::{Contents, Executable, ExecutableError, ExecutableId, lower_file};
pub use limits::{HostKills, OomGroup, Quotas};
pub use memory::{MemoryError, Words, load_bias, offsets_of_code};
pub use mount::unanswering;
pub use names::{NewServer, labels, printable};
pub use process::{ProcessHandle, ProcessIdentity, Remains};
pub use regular::{open_regular, read_regular};
pub use scanner::look::{HiddenServer, ServerProcess};
pub use scanner::matcher::{DEFAULT_PATTERN, Exclusion, Matcher};
pub use scanner::{Scan, Scanner};
pub use scheduling::Scheduling;
