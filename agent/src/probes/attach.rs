//! Attaches to servers and detaches from them.

use std::thread::JoinHandle;

use aya::Ebpf;
use evictscope_abi::{BinRing, Cookie, MAX_FUNCTIONS, MAX_SERVERS, Probe};
use evictscope_plan::{FileOffset, ProbePlan, Site, TracedFunction};

use super::config::server_config;
use super::error::ProbeError;
use super::log::{KernelLog, Message};
use super::maps::Maps;
use super::multi::Multi;
use super::programs::{NAMES, Programs};
use super::target::{Attachment, Link, Target};
use crate::telemetry::{ProbeMode, Snapshot};

/// The loaded programs and their maps.
pub struct Probes {
    pub(super) programs: Programs,
    pub(super) maps: Maps,
    log: Option<KernelLog>,
    free: Vec<u32>,
    detaching: Vec<Detaching>,
}

/// A slot whose probes are being taken off. For each uprobe_multi link the kernel waits for some 50 ms,
/// several at a time. A perf event takes it a tenth to a quarter of a second, one after the other
/// whichever thread asks (`event_mutex`, kernel/trace/trace_uprobe.c).
struct Detaching {
    slot: u32,
    thread: JoinHandle<()>,
}

/// One traced function on one server.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub target: Target<'a>,
    pub slot: u32,
    pub function: &'a TracedFunction,
}

impl Probes {
    /// Loads the programs into the kernel.
    ///
    /// # Errors
    ///
    /// Where the kernel does not allow it or refuses a program.
    pub fn load() -> Result<Self, ProbeError> {
        let object = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/evictscope-programs"));
        let mut ebpf = Ebpf::load(object).map_err(ProbeError::load)?;
        let multi = Multi::load(object, &ebpf, &NAMES);
        let multi = multi.inspect_err(|error| tracing::debug!("no uprobe_multi links: {error}"));
        Ok(Self {
            log: KernelLog::open(&mut ebpf),
            maps: Maps::of(&mut ebpf)?,
            programs: Programs::load(ebpf, multi.ok())?,
            free: (0..MAX_SERVERS).rev().collect(),
            detaching: Vec::new(),
        })
    }

    /// Attaches what `plan` and `mode` ask for to one process. Counting begins at zero.
    ///
    /// # Errors
    ///
    /// Where there is no free slot, the process is gone, or the kernel refuses; nothing stays
    /// attached then.
    pub fn attach(
        &mut self,
        target: Target<'_>,
        plan: &ProbePlan,
        mode: ProbeMode,
    ) -> Result<Attachment, ProbeError> {
        let mut attachment = self.empty(target.pid)?;
        match self.fill(&mut attachment, target, plan, mode) {
            Ok(()) => Ok(attachment),
            Err(error) => {
                self.detach(attachment);
                Err(error)
            }
        }
    }

    /// Takes a free slot for process `pid`.
    pub(super) fn empty(&mut self, pid: u32) -> Result<Attachment, ProbeError> {
        self.reclaim_slots();
        let slot = self.free.pop();
        let slot = slot.ok_or(ProbeError::TooManyServers(MAX_SERVERS))?;
        Ok(Attachment::new(slot, pid))
    }

    fn fill(
        &mut self,
        attachment: &mut Attachment,
        target: Target<'_>,
        plan: &ProbePlan,
        mode: ProbeMode,
    ) -> Result<(), ProbeError> {
        let slot = attachment.slot;
        let config = server_config(target.pid, target.load_bias, plan);
        self.maps.fill(slot, config)?;
        for function in &plan.functions {
            attachment.functions = attachment.functions.max(number(function)? + 1);
            let place = Place {
                target,
                slot,
                function,
            };
            let Some((inner, exits)) = function.timed_span() else {
                continue;
            };
            // What ends a call before what begins it, so that none is begun that cannot end.
            let exits: Vec<&Site> = exits.iter().map(|exit| &exit.site).collect();
            let links = self.probe(place, Probe::Exit, &exits)?;
            attachment.inner.extend(links);
            let links = self.probe(place, Probe::Inner, &[inner])?;
            attachment.inner.extend(links);
        }
        self.set_mode(attachment, target, plan, mode)?;
        attachment.sampler = Some(self.programs.attach_sampler(target.pid)?);
        Ok(())
    }

    /// Changes which calls of a server are probed. What comes off does so in the background.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses to attach; the server is then in evicting-only mode.
    pub fn set_mode(
        &mut self,
        attachment: &mut Attachment,
        target: Target<'_>,
        plan: &ProbePlan,
        mode: ProbeMode,
    ) -> Result<(), ProbeError> {
        let links = std::mem::take(&mut attachment.per_call);
        match mode {
            ProbeMode::EvictingOnly => attachment.take_off(links),
            ProbeMode::EveryCall if !links.is_empty() => attachment.per_call = links,
            ProbeMode::EveryCall => {
                let mut links = Vec::new();
                for function in &plan.functions {
                    let place = Place {
                        target,
                        slot: attachment.slot,
                        function,
                    };
                    if let Err(error) = self.attach_per_call(place, &mut links) {
                        attachment.take_off(links);
                        return Err(error);
                    }
                }
                attachment.per_call = links;
            }
        }
        Ok(())
    }

    /// Attaches the entry and return probes of a function, where no-op calls can be told from inner ones.
    fn attach_per_call(
        &mut self,
        place: Place<'_>,
        links: &mut Vec<Link>,
    ) -> Result<(), ProbeError> {
        // A function without an inner site has no no-op calls.
        let has_noops = place.function.inner.is_some();
        let Some(entry) = place.function.every_call().filter(|_| has_noops) else {
            return Ok(());
        };
        // The return probe comes last and goes first: so each return that it sees is of a call whose
        // entry was seen, and no duration begins at a call long ago.
        for probe in [Probe::Enter, Probe::Return] {
            let attached = self.probe(place, probe, &[entry])?;
            links.splice(..0, attached);
        }
        Ok(())
    }

    /// Takes all probes out of a server's code, in the background; its members are read on.
    pub fn withdraw(&mut self, attachment: &mut Attachment) {
        let mut links = std::mem::take(&mut attachment.inner);
        // The inner probe, which is last, comes off first.
        links.reverse();
        links.append(&mut attachment.per_call);
        attachment.take_off(links);
    }

    /// Attaches a probe of a function at all its sites.
    pub(super) fn probe(
        &mut self,
        place: Place<'_>,
        probe: Probe,
        sites: &[&Site],
    ) -> Result<Vec<Link>, ProbeError> {
        let function = number(place.function)?;
        let sites: Vec<(FileOffset, Cookie)> = (0..)
            .zip(sites)
            .map(|(index, site)| {
                let cookie = Cookie {
                    slot: place.slot,
                    function,
                    site: index,
                };
                (site.file_offset, cookie)
            })
            .collect();
        let description = place.function.kind.description;
        self.programs
            .attach(description, probe, place.target, &sites)
    }

    /// Detaches the probes of one server. From now on they count nothing; the kernel takes them off
    /// in the background, and then the slot is free again.
    pub fn detach(&mut self, attachment: Attachment) {
        let Attachment {
            slot,
            pid,
            per_call,
            inner,
            sampler,
            leaving,
            ..
        } = attachment;
        self.maps.switch_off(slot, pid);
        let thread = std::thread::Builder::new().spawn(move || {
            drop((sampler, per_call, inner, leaving));
        });
        match thread {
            Ok(thread) => self.detaching.push(Detaching { slot, thread }),
            // They have been dropped, and so taken off, here; but some of `leaving` may still write
            // to the slot, so no other server gets it.
            Err(error) => {
                tracing::warn!(pid, slot, %error, "probes were taken off without a thread")
            }
        }
    }

    /// Waits until every detached probe is off. A process that ends while one of its threads takes a
    /// probe off leaves a breakpoint in the server: the kernel then gives up half-way (`failed to
    /// unregister, leaking uprobe`).
    pub fn finish(&mut self) {
        for Detaching { slot, thread } in self.detaching.drain(..) {
            // It does nothing but drop.
            let _ = thread.join();
            self.free.push(slot);
        }
    }

    fn reclaim_slots(&mut self) {
        let done = |detaching: &mut Detaching| detaching.thread.is_finished();
        let reclaimed = self
            .detaching
            .extract_if(.., done)
            .map(|detaching| detaching.slot);
        self.free.extend(reclaimed);
    }

    /// Returns what was counted of one server since it was attached.
    ///
    /// # Errors
    ///
    /// Where the maps cannot be read.
    pub fn read(&self, attachment: &Attachment) -> Result<Snapshot, ProbeError> {
        self.maps.read(attachment.slot, attachment.functions)
    }

    /// Returns the last ten seconds of one server in bins: time in evicting calls, and CPU time by
    /// `Activity`. A bin that is being written may be torn; the next reading has it whole.
    ///
    /// # Errors
    ///
    /// Where the maps cannot be read.
    pub fn read_bins(
        &self,
        attachment: &Attachment,
    ) -> Result<(BinRing, [BinRing; 2]), ProbeError> {
        self.maps.read_bins(attachment.slot)
    }

    /// Returns what the programs had to say since the last call.
    pub fn messages(&mut self) -> Vec<Message> {
        self.log
            .as_mut()
            .map(KernelLog::messages)
            .unwrap_or_default()
    }
}

/// However the agent ends, no probe is being taken off then.
impl Drop for Probes {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Returns the number that the programs know a function by.
fn number(function: &TracedFunction) -> Result<u16, ProbeError> {
    let number = u16::try_from(function.kind.index).ok();
    number
        .filter(|number| u32::from(*number) < MAX_FUNCTIONS)
        .ok_or(ProbeError::Object("entry for another traced function"))
}
