//! Loads the programs, and attaches them.

use std::io;
use std::os::fd::AsFd as _;

use aya::programs::UProbe;
use aya::{Ebpf, EbpfLoader};
use evictscope_abi::{Cookie, Probe, When};
use evictscope_model::FileOffset;
use evictscope_plan::{Description, EVICTION_CALL, EXPIRE_CYCLE};

use super::bpf::MultiPrograms;
use super::error::{Obstacle, ProbeError};
use super::keeper::{Attach, Leaving, Link, LinkKeeper, LinkKind};
use super::system::give_back;
use super::target::{OwnExecutable, Target, own_sites};

/// The cookie of a probe that counts nothing.
const UNUSED: Cookie = Cookie { slot: u32::MAX, function: 0, site: 0, when: When::ALWAYS };
/// The most breakpoints that are taken out of one server.
const MOST_TAKEN_OUT: usize = 64;

/// Where the kernel says which perf events are uprobes.
const EVENT_TYPE: &str = "/sys/bus/event_source/devices/uprobe/type";

/// The programs on any traced function, by [`Probe`].
const ANY: [&str; Probe::ALL.len()] = ["call_enter", "call_return", "call_inner", "call_exit"];
/// The programs on the eviction call, which count more than its calls.
const EVICTION: [&str; Probe::ALL.len()] = ["call_enter", "eviction_return", "eviction_goal", "eviction_done"];

/// The programs on the expire cycle. Its entry is never probed: most calls return early.
const EXPIRE: [&str; Probe::ALL.len()] = ["call_enter", "call_return", "expire_start", "expire_end"];

pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    let others = EVICTION.into_iter().chain(EXPIRE);
    ANY.into_iter().chain(others.filter(|name| !ANY.contains(name)))
}

fn name_of(function: &Description, probe: Probe) -> &'static str {
    let programs = if function == EVICTION_CALL.description {
        EVICTION
    } else if function == EXPIRE_CYCLE.description {
        EXPIRE
    } else {
        ANY
    };
    programs[probe as usize]
}

/// The loaded programs, and the keeper that attaches them.
pub struct Programs {
    pub keeper: LinkKeeper,
    loaded: Loaded,
}

/// The loaded programs, and how the kernel lets them be attached.
enum Loaded {
    /// By uprobe_multi links, one for all sites of a program in a process (Linux 6.6).
    Multi(MultiPrograms),
    /// By perf events, one for each site, with the kernel's number for such events.
    Perf(Ebpf, u32),
}

impl Programs {
    /// Loads the named programs of the object for uprobe_multi links. They use the maps of `ebpf`. Returns `None` if
    /// such links cannot be used, which is tried at a function of this process. Fails if the kernel knows such links,
    /// but refuses this one.
    pub fn by_multi_links(
        keeper: &LinkKeeper,
        object: &[u8],
        ebpf: &Ebpf,
        mut names: impl Iterator<Item = &'static str> + Clone,
    ) -> Result<Option<Self>, ProbeError> {
        let all = names.clone();
        let first = names.next().ok_or(ProbeError::Object("program"))?;
        let refused = |error| {
            tracing::warn!("uses perf events, because uprobe_multi links cannot be used: {error:#}");
            None
        };
        let with = |multi| Self { keeper: keeper.clone(), loaded: Loaded::Multi(multi) };
        // Tries the first program, which has no map of programs: a program that is loaded for one kind of link claims
        // such a map for that kind (`bpf_prog_map_compatible`, kernel/bpf/core.c).
        let trial = match MultiPrograms::load(object, ebpf, std::iter::once(first)) {
            Ok(trial) => with(trial),
            Err(error) => return Ok(refused(error)),
        };
        let executable = OwnExecutable::open()?;
        let [site, ..] = own_sites()?;
        match trial.link(first, false, LinkKind::Multi, executable.target(), &[(site, UNUSED)])? {
            Ok(_) => {}
            // The keeper has not asked the kernel.
            Err(error) if error.get_ref().is_some_and(|error| error.is::<Obstacle>()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                tracing::debug!("this kernel has no uprobe_multi links (Linux 6.6)");
                return Ok(None);
            }
            Err(error) => return Err(ProbeError::attach(first, executable.target().pid, &error)),
        }
        Ok(MultiPrograms::load(object, ebpf, all).map(with).map_or_else(refused, Some))
    }

    /// Loads the programs for perf events. Fails if the kernel refuses a program or has no such events.
    pub fn by_perf_events(
        keeper: &LinkKeeper,
        mut ebpf: Ebpf,
        names: impl Iterator<Item = &'static str>,
    ) -> Result<Self, ProbeError> {
        for name in names {
            let program: &mut UProbe =
                ebpf.program_mut(name).ok_or(ProbeError::Object(name))?.try_into().map_err(ProbeError::program)?;
            program.load().map_err(ProbeError::program)?;
        }
        let event =
            std::fs::read_to_string(EVENT_TYPE).and_then(|event| event.trim().parse().map_err(io::Error::other));
        Ok(Self { keeper: keeper.clone(), loaded: Loaded::Perf(ebpf, event.map_err(ProbeError::NoUprobeEvents)?) })
    }

    pub fn has_multi_links(&self) -> bool {
        matches!(self.loaded, Loaded::Multi(_))
    }

    /// Attaches a probe of a traced function at its sites. Fails if the process is gone or the kernel refuses.
    pub fn attach(
        &self,
        function: &Description,
        probe: Probe,
        target: Target<'_>,
        sites: &[(FileOffset, Cookie)],
    ) -> Result<Vec<Link>, ProbeError> {
        self.attach_program(name_of(function, probe), probe == Probe::Return, target, sites)
    }

    /// Attaches a program at these sites. Fails as [`Self::attach`] does.
    pub fn attach_program(
        &self,
        name: &'static str,
        is_return: bool,
        target: Target<'_>,
        sites: &[(FileOffset, Cookie)],
    ) -> Result<Vec<Link>, ProbeError> {
        let pid = target.pid;
        let refused = |error: io::Error| match (error.kind(), &self.loaded) {
            (io::ErrorKind::BrokenPipe, _) => self.keeper.why_ended(),
            (_, Loaded::Multi(_)) => ProbeError::attach(name, pid, &error),
            (_, Loaded::Perf(..)) => ProbeError::attach_by_perf_event(name, pid, &error),
        };
        let (kind, most) = match self.loaded {
            Loaded::Multi(_) => (LinkKind::Multi, sites.len().max(1)),
            Loaded::Perf(_, event) => (LinkKind::Perf(event), 1),
        };
        let link = |sites: &[_]| self.link(name, is_return, kind, target, sites)?.map_err(refused);
        sites.chunks(most).map(link).collect()
    }

    /// Takes out breakpoints that nobody needs any more: places probes there that count nothing and takes them off,
    /// which makes the kernel restore the code. A breakpoint of another tool's probe stays.
    pub fn take_out(&self, target: Target<'_>, places: &[FileOffset]) {
        let links = places.iter().take(MOST_TAKEN_OUT).filter_map(|place| {
            // If the kernel refuses, it is not one of ours.
            self.attach_program(ANY[0], false, target, &[(*place, UNUSED)]).ok()
        });
        // All are placed before the first is taken off.
        let links: Vec<Link> = links.flatten().collect();
        // Dropping each waits.
        drop(links.into_iter().map(Link::take_off).collect::<Vec<Leaving>>());
    }

    /// Makes a link. The inner result is the kernel's answer.
    fn link(
        &self,
        name: &'static str,
        is_return: bool,
        kind: LinkKind,
        target: Target<'_>,
        sites: &[(FileOffset, Cookie)],
    ) -> Result<io::Result<Link>, ProbeError> {
        let program = match &self.loaded {
            Loaded::Multi(multi) => multi.program(name).ok_or(ProbeError::Object(name))?,
            Loaded::Perf(ebpf, _) => {
                let program = ebpf.program(name).ok_or(ProbeError::Object(name))?;
                let program: &UProbe = program.try_into().map_err(ProbeError::program)?;
                program.fd().map_err(ProbeError::program)?.as_fd()
            }
        };
        let sites = sites.iter().map(|(offset, cookie)| (offset.get(), cookie.encode())).collect();
        Ok(self.keeper.attach(program, target.exe, &Attach { kind, is_return, pid: target.pid, sites }))
    }
}

/// Loads programs that do not use the kernel's own types. By default, aya parses those twice, taking 30 MB each time.
/// Here it parses them once, and the memory is given back.
pub fn load(object: &[u8]) -> Result<Ebpf, ProbeError> {
    // Kernels without time namespaces have no such file.
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    if let Some(shift) = clock_shift(&offsets) {
        return Err(ProbeError::OtherTimeNamespace(shift));
    }
    let loaded = EbpfLoader::new().btf(None).load(object);
    give_back();
    loaded.map_err(ProbeError::load)
}

/// Returns by how much the monotonic clock differs from the kernel's, seconds and nanoseconds (`time_namespaces(7)`):
/// the programs have the kernel's.
fn clock_shift(offsets: &str) -> Option<String> {
    let line = offsets.lines().find_map(|line| line.strip_prefix("monotonic"))?;
    let shift: Vec<&str> = line.split_whitespace().collect();
    (shift != ["0", "0"]).then(|| shift.join(" s, ") + " ns")
}

#[cfg(test)]
mod tests {
    use super::clock_shift;

    #[test]
    fn only_a_clock_that_differs_is_shifted() {
        let offsets = |monotonic| format!("monotonic {monotonic}\nboottime          -5         0\n");
        assert_eq!(clock_shift(&offsets("          0         0")), None);
        assert_eq!(clock_shift(&offsets("      -3000         7")).as_deref(), Some("-3000 s, 7 ns"));
        assert_eq!(clock_shift(""), None);
    }
}
