//! The loaded programs: attaching each of them.

use std::num::NonZeroU32;

use aya::Ebpf;
use aya::programs::perf_event::{
    PerfEventConfig, PerfEventLink, PerfEventScope, SamplePolicy, SoftwareEvent,
};
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope};
use aya::programs::{PerfEvent, UProbe};
use evictscope_abi::{Cookie, Probe, SAMPLE_PERIOD_NS};
use evictscope_plan::{Description, EVICTION_CALL, FileOffset};

use super::error::ProbeError;
use super::multi::Multi;
use super::target::{Link, Target};

/// The program on the main thread's CPU clock.
const SAMPLER: &str = "main_thread_sample";
/// The programs on any traced function, by [`Probe`].
const ANY: [&str; Probe::ALL.len()] = ["call_enter", "call_return", "call_inner", "call_exit"];
/// The programs on the eviction call, which count more than its calls.
const EVICTION: [&str; Probe::ALL.len()] = [
    "call_enter",
    "eviction_return",
    "eviction_goal",
    "eviction_done",
];

/// All of them.
pub const NAMES: [&str; 7] = [
    "call_enter",
    "call_return",
    "call_inner",
    "call_exit",
    "eviction_return",
    "eviction_goal",
    "eviction_done",
];

/// Returns the name of the program for a probe of a traced function.
fn program(function: &Description, probe: Probe) -> &'static str {
    let programs = match function == EVICTION_CALL.description {
        true => EVICTION,
        false => ANY,
    };
    programs[probe as usize]
}

/// The loaded programs.
pub struct Programs {
    ebpf: Ebpf,
    /// The programs for uprobe_multi links; `None` where the kernel has only perf events, one for each
    /// site.
    multi: Option<Multi>,
    /// Whether a uprobe_multi link was ever made.
    is_tried: bool,
}

impl Programs {
    /// Loads the programs of an object into the kernel.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses one.
    pub fn load(ebpf: Ebpf, multi: Option<Multi>) -> Result<Self, ProbeError> {
        let mut programs = Self {
            ebpf,
            multi,
            is_tried: false,
        };
        if programs.multi.is_none() {
            programs.load_for_perf()?;
        }
        sampler(&mut programs.ebpf)?
            .load()
            .map_err(ProbeError::program)?;
        Ok(programs)
    }

    fn load_for_perf(&mut self) -> Result<(), ProbeError> {
        for name in NAMES {
            uprobe(&mut self.ebpf, name)?
                .load()
                .map_err(ProbeError::program)?;
        }
        Ok(())
    }

    /// Attaches a probe of a traced function at its sites.
    ///
    /// # Errors
    ///
    /// Where the process is gone, or the kernel refuses.
    pub fn attach(
        &mut self,
        function: &Description,
        probe: Probe,
        target: Target<'_>,
        sites: &[(FileOffset, Cookie)],
    ) -> Result<Vec<Link>, ProbeError> {
        let name = program(function, probe);
        if let Some(multi) = &self.multi {
            let is_return = probe == Probe::Return;
            match multi.attach(name, is_return, target, sites) {
                Ok(link) => {
                    self.is_tried = true;
                    return Ok(vec![Link::new(sites.len(), link)]);
                }
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) && !self.is_tried => {
                    tracing::debug!("this kernel has no uprobe_multi links (Linux 6.6)");
                    self.multi = None;
                    self.load_for_perf()?;
                }
                Err(error) => return Err(ProbeError::attach(name, target.pid, &error)),
            }
        }
        let attach = |(offset, cookie): &(FileOffset, Cookie)| {
            let link = self.attach_perf(name, target, *offset, *cookie)?;
            Ok(Link::new(1, link))
        };
        sites.iter().map(attach).collect()
    }

    fn attach_perf(
        &mut self,
        name: &'static str,
        target: Target<'_>,
        file_offset: FileOffset,
        cookie: Cookie,
    ) -> Result<UProbeLink, ProbeError> {
        let pid = target.pid;
        let scope = NonZeroU32::new(pid).ok_or(ProbeError::Gone(pid))?;
        let point = UProbeAttachPoint {
            location: UProbeAttachLocation::AbsoluteOffset(file_offset.get()),
            cookie: Some(cookie.encode()),
        };
        let program = uprobe(&mut self.ebpf, name)?;
        let id = program
            .attach(point, target.exe, UProbeScope::OneProcess(scope))
            .map_err(|source| ProbeError::attach(name, pid, &source))?;
        program.take_link(id).map_err(ProbeError::program)
    }

    /// Attaches the sampling program to the main thread of process `pid`.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn attach_sampler(&mut self, pid: u32) -> Result<PerfEventLink, ProbeError> {
        let sampler = sampler(&mut self.ebpf)?;
        let id = sampler
            .attach(
                PerfEventConfig::Software(SoftwareEvent::CpuClock),
                PerfEventScope::OneProcess { pid, cpu: None },
                SamplePolicy::Period(SAMPLE_PERIOD_NS),
                false,
            )
            .map_err(|source| ProbeError::attach(SAMPLER, pid, &source))?;
        sampler.take_link(id).map_err(ProbeError::program)
    }
}

fn uprobe<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut UProbe, ProbeError> {
    let program = ebpf.program_mut(name).ok_or(ProbeError::Object(name))?;
    program.try_into().map_err(ProbeError::program)
}

fn sampler(ebpf: &mut Ebpf) -> Result<&mut PerfEvent, ProbeError> {
    let program = ebpf
        .program_mut(SAMPLER)
        .ok_or(ProbeError::Object(SAMPLER))?;
    program.try_into().map_err(ProbeError::program)
}
