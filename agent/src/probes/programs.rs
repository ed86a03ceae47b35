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
use super::target::Target;

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

/// Returns the name of the program for a probe of a traced function.
fn program(function: &Description, probe: Probe) -> &'static str {
    let programs = match function == EVICTION_CALL.description {
        true => EVICTION,
        false => ANY,
    };
    programs[probe as usize]
}

/// The loaded programs.
pub struct Programs(Ebpf);

impl Programs {
    /// Loads the programs of an object into the kernel.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses one.
    pub fn load(mut ebpf: Ebpf) -> Result<Self, ProbeError> {
        // The entry program is the same for both.
        for name in ANY.into_iter().chain(EVICTION.into_iter().skip(1)) {
            uprobe(&mut ebpf, name)?
                .load()
                .map_err(ProbeError::program)?;
        }
        sampler(&mut ebpf)?.load().map_err(ProbeError::program)?;
        Ok(Self(ebpf))
    }

    /// Attaches a probe of a traced function at a file offset.
    ///
    /// # Errors
    ///
    /// Where the process is gone, or the kernel refuses.
    pub fn attach(
        &mut self,
        function: &Description,
        probe: Probe,
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
        let name = program(function, probe);
        let program = uprobe(&mut self.0, name)?;
        let id = program
            .attach(point, target.exe, UProbeScope::OneProcess(scope))
            .map_err(|source| ProbeError::attach(name, pid, source))?;
        program.take_link(id).map_err(ProbeError::program)
    }

    /// Attaches the sampling program to the main thread of process `pid`.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn attach_sampler(&mut self, pid: u32) -> Result<PerfEventLink, ProbeError> {
        let sampler = sampler(&mut self.0)?;
        let id = sampler
            .attach(
                PerfEventConfig::Software(SoftwareEvent::CpuClock),
                PerfEventScope::OneProcess { pid, cpu: None },
                SamplePolicy::Period(SAMPLE_PERIOD_NS),
                false,
            )
            .map_err(|source| ProbeError::attach(SAMPLER, pid, source))?;
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
