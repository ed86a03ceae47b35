//! The BPF programs in the kernel: loading them, attaching them to servers, reading what they count.
//! The only user of aya.
//!
//! Every server has one slot in all maps. A probe is attached by file offset through
//! `/proc/PID/exe`, which works in other mount namespaces and after an upgrade on disk. Dropping
//! an [`Attachment`] detaches; so does the end of the agent, however it ends, as the kernel then
//! closes the file descriptors.
//!
//! Deliberately absent: choosing the probe mode by the measured cost.

mod calibration;
mod config;
mod error;
mod kernel;

use std::num::NonZeroU32;
use std::path::Path;
use std::thread::JoinHandle;

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData};
use aya::programs::perf_event::{
    PerfEventConfig, PerfEventLink, PerfEventScope, SamplePolicy, SoftwareEvent,
};
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope};
use aya::programs::{PerfEvent, UProbe};
use evictscope_ebpf::{
    Cookie, EvictionStats, MAX_SERVERS, SAMPLE_PERIOD_NS, SampleStats, ServerConfig,
};

use crate::binary::{ProbePlan, Site};
use crate::telemetry::ProbeMode;

pub use config::server_config;
pub use error::ProbeError;
use kernel::Shared;

/// How often a copy that was torn by an update is tried again.
const MAX_TORN_COPIES: usize = 16;

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
    slots: HashMap<MapData, u32, u32>,
    free: Vec<u32>,
    detaching: Vec<Detaching>,
}

/// The probes on one server; [`Probes::detach`] takes them off.
#[must_use]
pub struct Attachment {
    slot: u32,
    pid: u32,
    uprobes: Vec<UProbeLink>,
    sampler: Option<PerfEventLink>,
}

/// A slot whose probes are being taken off. The kernel takes a tenth to a quarter of a second for
/// each, one after the other whichever thread asks (`event_mutex`, kernel/trace/trace_uprobe.c).
struct Detaching {
    slot: u32,
    thread: JoinHandle<()>,
}

impl Attachment {
    /// How many probes sit in the server's code.
    pub fn probes(&self) -> usize {
        self.uprobes.len()
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
        let (configs, evictions, samples, slots) = (
            map("CONFIGS")?,
            map("EVICTIONS")?,
            map("SAMPLES")?,
            map("SLOTS")?,
        );
        Ok(Self {
            configs: Array::try_from(configs)?,
            evictions: Array::try_from(evictions)?,
            samples: Array::try_from(samples)?,
            slots: HashMap::try_from(slots)?,
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
        let mut attachment = Attachment {
            slot,
            pid: target.pid,
            uprobes: Vec::new(),
            sampler: None,
        };
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
        self.configs
            .set(slot, Shared(server_config(target, plan)), 0)?;
        self.slots.insert(target.pid, slot, 0)?;

        // What ends a call before what begins it, so that none is begun that cannot end.
        for (index, done) in (0..).zip(&plan.sites.done) {
            self.uprobe(attachment, "eviction_done", target, &done.site, index)?;
        }
        if let (Some(goal), false) = (&plan.sites.goal, plan.sites.done.is_empty()) {
            self.uprobe(attachment, "eviction_goal", target, goal, 0)?;
        }
        if let (Some(entry), ProbeMode::EveryCall) = (&plan.sites.entry, mode) {
            self.uprobe(attachment, "eviction_return", target, entry, 0)?;
            self.uprobe(attachment, "eviction_enter", target, entry, 0)?;
        }
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

    fn uprobe(
        &mut self,
        attachment: &mut Attachment,
        name: &'static str,
        target: Target<'_>,
        site: &Site,
        index: u32,
    ) -> Result<(), ProbeError> {
        let pid = NonZeroU32::new(target.pid).ok_or(ProbeError::Gone(target.pid))?;
        let point = UProbeAttachPoint {
            location: UProbeAttachLocation::AbsoluteOffset(site.file_offset),
            cookie: Some(
                Cookie {
                    slot: attachment.slot,
                    site: index,
                }
                .encode(),
            ),
        };
        let program = uprobe(&mut self.ebpf, name)?;
        let id = program
            .attach(point, target.exe, UProbeScope::OneProcess(pid))
            .map_err(|source| ProbeError::attach(name, target.pid, source))?;
        attachment
            .uprobes
            .push(program.take_link(id).map_err(ProbeError::program)?);
        Ok(())
    }

    /// Detaches the probes of one server. From now on they count nothing; the kernel takes them off
    /// in the background, and then the slot is free again.
    pub fn detach(&mut self, attachment: Attachment) {
        let Attachment {
            slot,
            pid,
            uprobes,
            sampler,
        } = attachment;
        let switched_off = self.configs.set(slot, Shared(ServerConfig::OFF), 0);
        let removed = self.slots.remove(&pid);
        if let Err(error) = switched_off.and(removed) {
            tracing::debug!(pid, slot, %error, "slot was not cleared");
        }
        let thread = std::thread::spawn(move || drop((sampler, uprobes)));
        self.detaching.push(Detaching { slot, thread });
    }

    /// Waits until every detached probe is off.
    pub fn finish(&mut self) {
        for detaching in self.detaching.drain(..) {
            if detaching.thread.join().is_err() {
                tracing::warn!(
                    slot = detaching.slot,
                    "the thread that detaches probes panicked"
                );
            }
            self.free.push(detaching.slot);
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
