//! The BPF programs in the kernel: loading them, attaching them to servers, reading what they count.
//! The only user of aya.
//!
//! Every server has one slot in all maps. A probe is attached by file offset through
//! `/proc/PID/exe`, which works in other mount namespaces and after an upgrade on disk. Dropping
//! an [`Attachment`] detaches; so does the end of the agent, however it ends, as the kernel then
//! closes the file descriptors.
//!
//! Deliberately absent: choosing the probe mode, which `telemetry` does.

mod calibration;
mod config;
mod error;
mod kernel;

use std::num::NonZeroU32;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData};
use aya::programs::perf_event::{
    PerfEventConfig, PerfEventLink, PerfEventScope, SamplePolicy, SoftwareEvent,
};
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope};
use aya::programs::{PerfEvent, UProbe};
use evictscope_abi::{
    BinRing, Cookie, EvictionStats, MAX_SERVERS, SAMPLE_PERIOD_NS, SampleStats, ServerConfig,
};

use crate::telemetry::ProbeMode;
use evictscope_plan::{EVICTION_CALL, FileOffset, ProbePlan, Site, TracedFunction};

pub use config::server_config;
pub use error::ProbeError;
use kernel::Shared;

/// How often a copy that was torn by an update is tried again.
const MAX_TORN_COPIES: usize = 16;

/// How long [`Probes::finish`] waits; the agent as a whole is to end within 2 s of a signal.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it looks.
const FINISH_POLL: Duration = Duration::from_millis(10);

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

/// The loaded programs and their maps.
pub struct Probes {
    ebpf: Ebpf,
    configs: Array<MapData, Shared<ServerConfig>>,
    evictions: Array<MapData, Shared<EvictionStats>>,
    samples: Array<MapData, Shared<SampleStats>>,
    eviction_bins: Array<MapData, Shared<BinRing>>,
    cpu_bins: Array<MapData, Shared<[BinRing; 2]>>,
    slots: HashMap<MapData, u32, u32>,
    free: Vec<u32>,
    detaching: Vec<Detaching>,
}

/// The probes on one server; [`Probes::detach`] takes them off.
#[must_use]
pub struct Attachment {
    slot: u32,
    pid: u32,
    /// The return and entry probes, in the order in which they have to come off.
    per_call: Vec<UProbeLink>,
    /// The goal and done probes.
    evicting: Vec<UProbeLink>,
    sampler: Option<PerfEventLink>,
    /// Probes that are being taken off while the others stay.
    leaving: Vec<JoinHandle<()>>,
}

/// A slot whose probes are being taken off. The kernel takes a tenth to a quarter of a second for
/// each, one after the other whichever thread asks (`event_mutex`, kernel/trace/trace_uprobe.c).
struct Detaching {
    slot: u32,
    thread: JoinHandle<()>,
}

impl Attachment {
    fn new(slot: u32, pid: u32) -> Self {
        Self {
            slot,
            pid,
            per_call: Vec::new(),
            evicting: Vec::new(),
            sampler: None,
            leaving: Vec::new(),
        }
    }

    /// How many probes sit in the server's code.
    pub fn probes(&self) -> usize {
        self.per_call.len() + self.evicting.len()
    }

    /// Takes probes off in the background.
    fn take_off(&mut self, links: Vec<UProbeLink>) {
        self.leaving.retain(|thread| !thread.is_finished());
        if links.is_empty() {
            return;
        }
        // Where no thread is to be had, they have been dropped, and so taken off, here.
        let thread = std::thread::Builder::new().spawn(move || drop(links));
        self.leaving.extend(thread.ok());
    }
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
        for name in [
            "eviction_enter",
            "eviction_return",
            "eviction_goal",
            "eviction_done",
        ] {
            uprobe(&mut ebpf, name)?
                .load()
                .map_err(ProbeError::program)?;
        }
        perf_event(&mut ebpf)?.load().map_err(ProbeError::program)?;
        let mut map = |name| ebpf.take_map(name).ok_or(ProbeError::Object(name));
        Ok(Self {
            configs: Array::try_from(map("CONFIGS")?)?,
            evictions: Array::try_from(map("EVICTIONS")?)?,
            samples: Array::try_from(map("SAMPLES")?)?,
            eviction_bins: Array::try_from(map("EVICTION_BINS")?)?,
            cpu_bins: Array::try_from(map("CPU_BINS")?)?,
            slots: HashMap::try_from(map("SLOTS")?)?,
            ebpf,
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
        self.reclaim_slots();
        let slot = self
            .free
            .pop()
            .ok_or(ProbeError::TooManyServers(MAX_SERVERS))?;
        let mut attachment = Attachment::new(slot, target.pid);
        match self.fill(&mut attachment, target, plan, mode) {
            Ok(()) => Ok(attachment),
            Err(error) => {
                self.detach(attachment);
                Err(error)
            }
        }
    }

    fn fill(
        &mut self,
        attachment: &mut Attachment,
        target: Target<'_>,
        plan: &ProbePlan,
        mode: ProbeMode,
    ) -> Result<(), ProbeError> {
        let slot = attachment.slot;
        self.evictions
            .set(slot, Shared::<EvictionStats>::zero(), 0)?;
        self.samples.set(slot, Shared::<SampleStats>::zero(), 0)?;
        self.eviction_bins.set(slot, Shared(BinRing::ZERO), 0)?;
        self.cpu_bins.set(slot, Shared([BinRing::ZERO; 2]), 0)?;
        self.configs.set(
            slot,
            Shared(server_config(target.pid, target.load_bias, plan)),
            0,
        )?;
        self.slots.insert(target.pid, slot, 0)?;

        let function = plan.function(EVICTION_CALL.description);
        if let Some((goal, done)) = function.and_then(TracedFunction::inner_span) {
            // What ends a call before what begins it, so that none is begun that cannot end.
            for (index, done) in (0..).zip(done) {
                let link = self.uprobe(slot, "eviction_done", target, &done.site, index)?;
                attachment.evicting.push(link);
            }
            let link = self.uprobe(slot, "eviction_goal", target, &goal.site, 0)?;
            attachment.evicting.push(link);
        }
        self.set_mode(attachment, target, plan, mode)?;
        let sampler = perf_event(&mut self.ebpf)?;
        let id = sampler
            .attach(
                PerfEventConfig::Software(SoftwareEvent::CpuClock),
                PerfEventScope::OneProcess {
                    pid: target.pid,
                    cpu: None,
                },
                SamplePolicy::Period(SAMPLE_PERIOD_NS),
                false,
            )
            .map_err(|source| ProbeError::attach("main_thread_sample", target.pid, source))?;
        attachment.sampler = Some(sampler.take_link(id).map_err(ProbeError::program)?);
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
        let function = plan.function(EVICTION_CALL.description);
        match (mode, function.and_then(TracedFunction::every_call)) {
            (ProbeMode::EveryCall, Some(entry)) if links.is_empty() => {
                // The return probe comes last and goes first: so each return that it sees is of a
                // call whose entry was seen, and no duration begins at a call long ago.
                let slot = attachment.slot;
                let enter = self.uprobe(slot, "eviction_enter", target, entry, 0)?;
                match self.uprobe(slot, "eviction_return", target, entry, 0) {
                    Ok(back) => attachment.per_call.extend([back, enter]),
                    Err(error) => {
                        attachment.take_off(vec![enter]);
                        return Err(error);
                    }
                }
            }
            (ProbeMode::EveryCall, _) => attachment.per_call = links,
            (ProbeMode::EvictingOnly, _) => attachment.take_off(links),
        }
        Ok(())
    }

    /// Takes all probes out of a server's code, in the background; its members are read on.
    pub fn withdraw(&mut self, attachment: &mut Attachment) {
        let mut links = std::mem::take(&mut attachment.evicting);
        // The goal probe, which is last, comes off first.
        links.reverse();
        links.append(&mut attachment.per_call);
        attachment.take_off(links);
    }

    fn uprobe(
        &mut self,
        slot: u32,
        name: &'static str,
        target: Target<'_>,
        site: &Site,
        index: u32,
    ) -> Result<UProbeLink, ProbeError> {
        let cookie = Cookie { slot, site: index };
        self.attach_uprobe(name, target.pid, target.exe, site.file_offset, cookie)
    }

    fn attach_uprobe(
        &mut self,
        name: &'static str,
        pid: u32,
        exe: &Path,
        file_offset: FileOffset,
        cookie: Cookie,
    ) -> Result<UProbeLink, ProbeError> {
        let scope = NonZeroU32::new(pid).ok_or(ProbeError::Gone(pid))?;
        let point = UProbeAttachPoint {
            location: UProbeAttachLocation::AbsoluteOffset(file_offset.get()),
            cookie: Some(cookie.encode()),
        };
        let program = uprobe(&mut self.ebpf, name)?;
        let id = program
            .attach(point, exe, UProbeScope::OneProcess(scope))
            .map_err(|source| ProbeError::attach(name, pid, source))?;
        program.take_link(id).map_err(ProbeError::program)
    }

    /// Detaches the probes of one server. From now on they count nothing; the kernel takes them off
    /// in the background, and then the slot is free again.
    pub fn detach(&mut self, attachment: Attachment) {
        let Attachment {
            slot,
            pid,
            per_call,
            evicting,
            sampler,
            leaving,
        } = attachment;
        let switched_off = self.configs.set(slot, Shared(ServerConfig::OFF), 0);
        let removed = self.slots.remove(&pid);
        if let Err(error) = switched_off.and(removed) {
            tracing::debug!(pid, slot, %error, "slot was not cleared");
        }
        let thread = std::thread::Builder::new().spawn(move || {
            drop((sampler, per_call, evicting));
            for thread in leaving {
                // It does nothing but drop.
                let _ = thread.join();
            }
        });
        match thread {
            Ok(thread) => self.detaching.push(Detaching { slot, thread }),
            // They have been dropped, and so taken off, here; but some of `leaving` may still write
            // to the slot, so nobody else gets it.
            Err(error) => {
                tracing::warn!(pid, slot, %error, "probes were taken off without a thread")
            }
        }
    }

    /// Waits until every detached probe is off, but not for long: with many servers that takes the
    /// kernel many seconds, and it goes on when the agent ends.
    pub fn finish(&mut self) {
        let begun = Instant::now();
        loop {
            self.reclaim_slots();
            if self.detaching.is_empty() || begun.elapsed() >= PATIENCE {
                break;
            }
            std::thread::sleep(FINISH_POLL);
        }
        if !self.detaching.is_empty() {
            tracing::debug!(
                servers = self.detaching.len(),
                "the kernel still takes probes off"
            );
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

    /// What was counted of one server since it was attached.
    ///
    /// # Errors
    ///
    /// Where the maps cannot be read.
    pub fn read(
        &self,
        attachment: &Attachment,
    ) -> Result<(EvictionStats, SampleStats), ProbeError> {
        let slot = attachment.slot;
        let evictions = untorn(
            || Ok(self.evictions.get(&slot, 0)?.0),
            |stats: &EvictionStats| stats.finished == stats.begun,
        )?;
        let samples = untorn(
            || Ok(self.samples.get(&slot, 0)?.0),
            |stats: &SampleStats| stats.finished == stats.begun,
        )?;
        Ok((evictions, samples))
    }

    /// The last ten seconds of one server in bins: time in evicting calls, and CPU time by
    /// `Activity`. A bin that is being written may be torn; to be read again soon.
    ///
    /// # Errors
    ///
    /// Where the maps cannot be read.
    pub fn read_bins(
        &self,
        attachment: &Attachment,
    ) -> Result<(BinRing, [BinRing; 2]), ProbeError> {
        let evictions = self.eviction_bins.get(&attachment.slot, 0)?.0;
        let cpu = self.cpu_bins.get(&attachment.slot, 0)?.0;
        Ok((evictions, cpu))
    }
}

/// Copies until the copy is whole; after many tries the last one has to do, and the next reading
/// will mend it.
fn untorn<T>(
    copy: impl Fn() -> Result<T, ProbeError>,
    whole: impl Fn(&T) -> bool,
) -> Result<T, ProbeError> {
    let mut last = copy()?;
    for _ in 0..MAX_TORN_COPIES {
        if whole(&last) {
            break;
        }
        last = copy()?;
    }
    Ok(last)
}

fn uprobe<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut UProbe, ProbeError> {
    let program = ebpf.program_mut(name).ok_or(ProbeError::Object(name))?;
    program.try_into().map_err(ProbeError::program)
}

fn perf_event(ebpf: &mut Ebpf) -> Result<&mut PerfEvent, ProbeError> {
    let name = "main_thread_sample";
    let program = ebpf.program_mut(name).ok_or(ProbeError::Object(name))?;
    program.try_into().map_err(ProbeError::program)
}
