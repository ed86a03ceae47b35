//! What to attach to, and what is attached.

use std::path::Path;

/// A running process to attach to.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Process id.
    pub pid: u32,
    /// A path that opens the executable that it runs.
    pub exe: &'a Path,
}

/// One or several attached sites of a program. Dropping it takes them off.
pub struct Link {
    sites: usize,
    _attached: Box<dyn Send>,
}

impl Link {
    /// Returns these sites, attached by what takes them off when it is dropped.
    pub(super) fn new(sites: usize, attached: impl Send + 'static) -> Self {
        Self {
            sites,
            _attached: Box::new(attached),
        }
    }

    /// Returns how many sites are attached.
    pub fn sites(&self) -> usize {
        self.sites
    }
}
