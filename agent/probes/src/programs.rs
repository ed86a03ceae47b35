//! The loaded programs: attaching each of them.

use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};

use aya::Ebpf;
use aya::programs::UProbe;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope};
use evictscope_abi::{Cookie, Probe, When};
use evictscope_plan::{Description, EVICTION_CALL, EXPIRE_CYCLE, FileOffset};

use super::error::ProbeError;
use super::multi::Multi;
use super::target::{Link, Target};

/// The programs on any traced function, by [`Probe`].
const ANY: [&str; Probe::ALL.len()] = ["call_enter", "call_return", "call_inner", "call_exit"];
/// The programs on the eviction call, which count more than its calls.
const EVICTION: [&str; Probe::ALL.len()] = [
    "call_enter",
    "eviction_return",
    "eviction_goal",
    "eviction_done",
];

/// The programs on the expire cycle. Its entry is never probed: most calls return early.
const EXPIRE: [&str; Probe::ALL.len()] =
    ["call_enter", "call_return", "expire_start", "expire_end"];

/// Returns the names of all programs of the daemon.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    let others = EVICTION.into_iter().chain(EXPIRE);
    ANY.into_iter()
        .chain(others.filter(|name| !ANY.contains(name)))
}

/// Returns the name of the program for a probe of a traced function.
fn program(function: &Description, probe: Probe) -> &'static str {
    let programs = if function == EVICTION_CALL.description {
        EVICTION
    } else if function == EXPIRE_CYCLE.description {
        EXPIRE
    } else {
        ANY
    };
    programs[probe as usize]
}

/// The loaded programs, and how the kernel lets them be attached.
pub enum Programs {
    /// By uprobe_multi links, one for all sites of a program in a process (Linux 6.6).
    Multi(Multi),
    /// By perf events, one for each site.
    Perf(Mutex<Ebpf>),
}

impl Programs {
    /// Loads the programs of these names of the object for uprobe_multi links, where the kernel makes such a link at
    /// `site` of this very process; `None` where it does not. They use the maps of `ebpf`.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses the link for another reason than that it knows no such links.
    pub fn by_multi_links(
        object: &[u8],
        ebpf: &Ebpf,
        mut names: impl Iterator<Item = &'static str> + Clone,
        own: Target<'_>,
        site: FileOffset,
    ) -> Result<Option<Self>, ProbeError> {
        let all = names.clone();
        let first = names.next().ok_or(ProbeError::Object("program"))?;
        let refused = |error| {
            tracing::warn!("perf events are used, as uprobe_multi links cannot be: {error:#}");
            None
        };
        // The first one has no map of programs: those that are loaded for one kind of link make it a map of that kind's
        // only (`bpf_prog_map_compatible`, kernel/bpf/core.c).
        let trial = match Multi::load(object, ebpf, std::iter::once(first)) {
            Ok(trial) => trial,
            Err(error) => return Ok(refused(error)),
        };
        let unused = Cookie {
            slot: u32::MAX,
            function: 0,
            site: 0,
            when: When::ALWAYS,
        };
        match trial.attach(first, false, own, &[(site, unused)]) {
            Ok(_) => {
                let all = Multi::load(object, ebpf, all);
                Ok(all.map(Self::Multi).map_or_else(refused, Some))
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                tracing::debug!("this kernel has no uprobe_multi links (Linux 6.6)");
                Ok(None)
            }
            Err(error) => Err(ProbeError::attach(first, own.pid, &error)),
        }
    }

    /// Loads the programs for perf events.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses a program.
    pub fn by_perf_events(
        mut ebpf: Ebpf,
        names: impl Iterator<Item = &'static str>,
    ) -> Result<Self, ProbeError> {
        for name in names {
            uprobe(&mut ebpf, name)?
                .load()
                .map_err(ProbeError::program)?;
        }
        Ok(Self::Perf(Mutex::new(ebpf)))
    }

    /// Returns whether probes are attached by uprobe_multi links.
    pub fn has_multi_links(&self) -> bool {
        matches!(self, Self::Multi(_))
    }

    /// Attaches a probe of a traced function at its sites.
    ///
    /// # Errors
    ///
    /// Where the process is gone, or the kernel refuses.
    pub fn attach(
        &self,
        function: &Description,
        probe: Probe,
        target: Target<'_>,
        sites: &[(FileOffset, Cookie)],
    ) -> Result<Vec<Link>, ProbeError> {
        let name = program(function, probe);
        self.attach_program(name, probe == Probe::Return, target, sites)
    }

    /// Attaches a program at these sites.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn attach_program(
        &self,
        name: &'static str,
        is_return: bool,
        target: Target<'_>,
        sites: &[(FileOffset, Cookie)],
    ) -> Result<Vec<Link>, ProbeError> {
        match self {
            Self::Multi(multi) => {
                let link = multi.attach(name, is_return, target, sites);
                let link = link.map_err(|error| ProbeError::attach(name, target.pid, &error))?;
                Ok(vec![Link::new(sites.len(), link)])
            }
            Self::Perf(ebpf) => {
                // A panic while it was held is of aya's own making, and leaves a list of links.
                let mut ebpf = ebpf.lock().unwrap_or_else(PoisonError::into_inner);
                let attach = |(offset, cookie): &(FileOffset, Cookie)| {
                    let link = attach_perf(&mut ebpf, name, target, *offset, *cookie)?;
                    Ok(Link::new(1, link))
                };
                sites.iter().map(attach).collect()
            }
        }
    }
}

fn attach_perf(
    ebpf: &mut Ebpf,
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
    let program = uprobe(ebpf, name)?;
    let id = program
        .attach(point, target.exe, UProbeScope::OneProcess(scope))
        .map_err(|source| ProbeError::attach_by_perf_event(name, pid, &source))?;
    program.take_link(id).map_err(ProbeError::program)
}

fn uprobe<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut UProbe, ProbeError> {
    let program = ebpf.program_mut(name).ok_or(ProbeError::Object(name))?;
    program.try_into().map_err(ProbeError::program)
}
