//! What to attach to, and what is attached.

use std::path::Path;
use std::thread::JoinHandle;

use aya::programs::perf_event::PerfEventLink;

/// A running process to attach to.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Process id.
    pub pid: u32,
    /// A path that opens the running executable, `/proc/PID/exe`.
    pub exe: &'a Path,
    /// What the loader added to the addresses of the ELF file.
    pub load_bias: u64,
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

/// The probes on one server; `Probes::detach` takes them off.
#[must_use]
pub struct Attachment {
    pub(super) slot: u32,
    pub(super) pid: u32,
    /// How many traced functions are counted.
    pub(super) functions: u16,
    /// The return and entry probes, in the order in which they have to come off.
    pub(super) per_call: Vec<Link>,
    /// The probes at inner sites and exits, in the order in which they were attached.
    pub(super) inner: Vec<Link>,
    pub(super) sampler: Option<PerfEventLink>,
    /// Probes that are being taken off while the others stay.
    pub(super) leaving: Leaving,
}

/// Threads that take probes off. Dropping it waits for them: see `Probes::finish`.
#[derive(Default)]
pub(super) struct Leaving(Vec<JoinHandle<()>>);

impl Drop for Leaving {
    fn drop(&mut self) {
        for thread in self.0.drain(..) {
            // It does nothing but drop.
            let _ = thread.join();
        }
    }
}

impl Attachment {
    /// Returns a slot of process `pid` without any probe.
    pub(super) fn new(slot: u32, pid: u32) -> Self {
        Self {
            slot,
            pid,
            functions: 1,
            per_call: Vec::new(),
            inner: Vec::new(),
            sampler: None,
            leaving: Leaving::default(),
        }
    }

    /// Returns how many probes are in the server's code.
    pub fn probes(&self) -> usize {
        let links = self.per_call.iter().chain(&self.inner);
        links.map(Link::sites).sum()
    }

    /// Takes probes off in the background.
    pub(super) fn take_off(&mut self, links: Vec<Link>) {
        self.leaving.0.retain(|thread| !thread.is_finished());
        if links.is_empty() {
            return;
        }
        // Where the thread cannot be started, they have been dropped, and so taken off, here.
        let thread = std::thread::Builder::new().spawn(move || drop(links));
        self.leaving.0.extend(thread.ok());
    }
}
