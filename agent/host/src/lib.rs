//! Which servers run on this host, and what can be learnt of a process from `/proc`.
//!
//! Begin with [`Scanner`], which finds the servers. [`labels()`] names them, [`ContainerName`] their containers, [`Executable`]
//! reads what they run, [`debug_places`] tells where its debug information may be, [`load_bias`] finds where an
//! executable is loaded, and [`Words`] reads its memory. All functions here block; the first look at a server
//! with many connections takes a while, since all its file descriptors are looked at.
//!
//! It writes to no process, and talks to none. Deliberately absent: what is in an executable (`evictscope-plan`).

#![forbid(unsafe_code)]

mod breakpoints;
mod confinement;
mod container;
mod container_name;
mod debug_file;
mod exclusion;
mod executable;
mod file_id;
mod file_system;
mod handle;
mod identity;
mod labels;
mod look;
mod matcher;
mod memory;
mod observed;
mod package;
mod quota;
mod scan;
mod scheduling;
mod slow;
mod sockets;
mod troubles;
mod unrelated;

pub use breakpoints::{breakpoints, is_traced};
pub use confinement::{Confinement, LINKS, MORE_FILES, OTHERS, capability_names, has_own_network};
pub use container::Container;
pub use container_name::{ContainerName, PodName};
pub use debug_file::{DebugPlace, Opened, Search, debug_places, mount_namespace, root_of, search};
pub use exclusion::Exclusion;
pub use executable::{Contents, Executable, ExecutableError, ExecutableId};
pub use file_system::unanswering;
pub use handle::ProcessHandle;
pub use identity::Identity;
pub use labels::{NewServer, labels};
pub use look::{HiddenServer, ServerProcess};
pub use matcher::{DEFAULT_PATTERN, Matcher};
pub use memory::{MemoryError, Words, load_bias};
pub use package::package_of;
pub use quota::Quotas;
pub use scan::{Scan, Scanner};
pub use scheduling::Scheduling;
