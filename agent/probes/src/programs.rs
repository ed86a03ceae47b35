//! Attaches the loaded programs.

use std::io;
use std::os::fd::AsFd as _;

use aya::Ebpf;
use aya::programs::UProbe;
use evictscope_abi::{Cookie, Probe, When};
use evictscope_model::FileOffset;
use evictscope_plan::{Description, EVICTION_CALL, EXPIRE_CYCLE};

use super::error::ProbeError;
use super::keeper::{Attach, Kind, Leaving, Link, LinkKeeper};
use super::multi::Multi;
use super::obstacle::Obstacle;
use super::target::{Own, Target};

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

/// Returns the names of all programs of the daemon.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    let others = EVICTION.into_iter().chain(EXPIRE);
    ANY.into_iter().chain(others.filter(|name| !ANY.contains(name)))
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

/// The loaded programs, and the keeper that attaches them.
pub struct Programs {
    keeper: LinkKeeper,
    loaded: Loaded,
}

/// The loaded programs, and how the kernel lets them be attached.
enum Loaded {
    /// By uprobe_multi links, one for all sites of a program in a process (Linux 6.6).
    Multi(Multi),
    /// By perf events, one for each site, with the kernel's number for such events.
    Perf(Ebpf, u32),
}

impl Programs {
    /// Loads the named programs of the object for uprobe_multi links. They use the maps of `ebpf`. Returns `None` if
    /// such links cannot be used, which is tried at `site` of this process.
    ///
    /// # Errors
    ///
    /// Fails if the kernel knows such links, but refuses this one.
    pub fn by_multi_links(
        keeper: &LinkKeeper,
        object: &[u8],
        ebpf: &Ebpf,
        mut names: impl Iterator<Item = &'static str> + Clone,
        site: FileOffset,
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
        let trial = match Multi::load(object, ebpf, std::iter::once(first)) {
            Ok(trial) => with(trial),
            Err(error) => return Ok(refused(error)),
        };
        let own = Own::open()?;
        let made = trial.link(first, false, Kind::Multi, own.target(), &[(site, UNUSED)]);
        match made? {
            Ok(_) => {}
            // The keeper has not asked the kernel.
            Err(error) if error.get_ref().is_some_and(|error| error.is::<Obstacle>()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                tracing::debug!("this kernel has no uprobe_multi links (Linux 6.6)");
                return Ok(None);
            }
            Err(error) => return Err(ProbeError::attach(first, own.target().pid, &error)),
        }
        let all = Multi::load(object, ebpf, all);
        Ok(all.map(with).map_or_else(refused, Some))
    }

    /// Loads the programs for perf events.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses a program or has no such events.
    pub fn by_perf_events(
        keeper: &LinkKeeper,
        mut ebpf: Ebpf,
        names: impl Iterator<Item = &'static str>,
    ) -> Result<Self, ProbeError> {
        for name in names {
            let program = ebpf.program_mut(name).ok_or(ProbeError::Object(name))?;
            let program: &mut UProbe = program.try_into().map_err(ProbeError::program)?;
            program.load().map_err(ProbeError::program)?;
        }
        let event = std::fs::read_to_string(EVENT_TYPE).map_err(ProbeError::NoUprobeEvents)?;
        let event = event.trim().parse().map_err(io::Error::other);
        Ok(Self { keeper: keeper.clone(), loaded: Loaded::Perf(ebpf, event.map_err(ProbeError::NoUprobeEvents)?) })
    }

    /// Returns the keeper that attaches them.
    pub fn keeper(&self) -> &LinkKeeper {
        &self.keeper
    }

    /// Returns whether probes are attached by uprobe_multi links.
    pub fn has_multi_links(&self) -> bool {
        matches!(self.loaded, Loaded::Multi(_))
    }

    /// Attaches a probe of a traced function at its sites.
    ///
    /// # Errors
    ///
    /// Fails if the process is gone or the kernel refuses.
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
    /// As for [`Self::attach`].
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
            Loaded::Multi(_) => (Kind::Multi, sites.len().max(1)),
            Loaded::Perf(_, event) => (Kind::Perf(event), 1),
        };
        let link = |sites| {
            let link = self.link(name, is_return, kind, target, sites)?;
            link.map_err(refused)
        };
        sites.chunks(most).map(link).collect()
    }

    /// Takes out breakpoints that nobody needs any more: places probes there that count nothing and takes them off,
    /// which makes the kernel restore the code. A breakpoint of another tool's probe stays.
    pub fn take_out(&self, target: Target<'_>, places: &[FileOffset]) {
        let places = places.iter().take(MOST_TAKEN_OUT);
        let links = places.filter_map(|place| {
            let sites = [(*place, UNUSED)];
            // If the kernel refuses, it is not one of ours.
            self.attach_program(ANY[0], false, target, &sites).ok()
        });
        let links: Vec<Link> = links.flatten().collect();
        let leaving: Vec<Leaving> = links.into_iter().map(Link::take_off).collect();
        // Dropping each waits.
        drop(leaving);
    }

    /// Makes a link. The inner result is the kernel's answer.
    fn link(
        &self,
        name: &'static str,
        is_return: bool,
        kind: Kind,
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
        let sites = sites.iter();
        let attach = Attach {
            kind,
            is_return,
            pid: target.pid,
            sites: sites.map(|(offset, cookie)| (offset.get(), cookie.encode())).collect(),
        };
        Ok(self.keeper.attach(program, target.exe, &attach))
    }
}
