//! Why placing a probe, or taking it off, would hold up the host.

use std::io;

use evictscope_abi::MOST_MAPPINGS;

/// What keeps a probe from being placed or taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// This process maps the file and holds its own lock; 0 if the kernel does not tell which.
    #[error(
        "process {0} maps its executable and holds its own memory lock; until it lets go, a probe would stop the whole host: look at \
         it (`ps -fp {0}`), or let only the server's user read the executable"
    )]
    Locked(u32),
    /// The file is mapped so often that placing would take long.
    #[error(
        "its executable is mapped {MOST_MAPPINGS} times, so a probe would stop the whole host for too long: let only the server's \
         user read the executable"
    )]
    Crowded,
    /// The file is on a file system in user space.
    #[error(
        "its executable is on a file system in user space, which could stop the whole host while a probe is placed: start it from \
         another"
    )]
    InUserSpace,
}

impl From<Obstacle> for io::Error {
    fn from(obstacle: Obstacle) -> Self {
        Self::new(io::ErrorKind::ResourceBusy, obstacle)
    }
}
