//! What to attach to, and what is attached.

use std::path::Path;
use std::thread::JoinHandle;

use aya::programs::perf_event::PerfEventLink;
use aya::programs::uprobe::UProbeLink;

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

/// The probes on one server; `Probes::detach` takes them off.
#[must_use]
pub struct Attachment {
    pub(super) slot: u32,
    pub(super) pid: u32,
    /// How many traced functions are counted.
    pub(super) functions: u16,
    /// The return and entry probes, in the order in which they have to come off.
    pub(super) per_call: Vec<UProbeLink>,
    /// The probes at inner sites and exits, in the order in which they were attached.
    pub(super) inner: Vec<UProbeLink>,
    pub(super) sampler: Option<PerfEventLink>,
    /// Probes that are being taken off while the others stay.
    pub(super) leaving: Vec<JoinHandle<()>>,
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
            leaving: Vec::new(),
        }
    }

    /// Returns how many probes are in the server's code.
    pub fn probes(&self) -> usize {
        self.per_call.len() + self.inner.len()
    }

    /// Takes probes off in the background.
    pub(super) fn take_off(&mut self, links: Vec<UProbeLink>) {
        self.leaving.retain(|thread| !thread.is_finished());
        if links.is_empty() {
            return;
        }
        // Where the thread cannot be started, they have been dropped, and so taken off, here.
        let thread = std::thread::Builder::new().spawn(move || drop(links));
        self.leaving.extend(thread.ok());
    }
}
