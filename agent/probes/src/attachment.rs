//! The probes on one server.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use evictscope_abi::{Cookie, MAX_FUNCTIONS, Probe, ServerConfig, When};
use evictscope_host::{Executable, MemoryError, Words, breakpoints, is_traced};
use evictscope_model::FileOffset;
use evictscope_plan::{Description, EVICTION_CALL, FunctionKind, ProbePlan, Site, TracedFunction};
use evictscope_telemetry::{Counted, Unrun};

use super::config::server_config;
use super::error::ProbeError;
use super::keeper::{Leaving, Link};
use super::probes::{Probes, Slot};
use super::programs::Programs;
use super::target::Target;

/// Which calls of a function are probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Probed {
    /// None: nothing is placed in the server's code.
    Nothing,
    /// Those that pass the inner site.
    Inner,
    Every,
}

/// What is probed of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coverage {
    pub eviction: Probed,
    /// Whether expire cycles that pass their early returns are probed. They are rare: the probe mode does not affect
    /// them.
    pub cycles: bool,
}

impl Coverage {
    pub const NOTHING: Self = Self { eviction: Probed::Nothing, cycles: false };

    fn of(self, function: &Description) -> Probed {
        if function == EVICTION_CALL.description {
            self.eviction
        } else if self.cycles {
            Probed::Inner
        } else {
            Probed::Nothing
        }
    }
}

/// What ends a call comes before what begins it, so that no call begins that cannot end. The return probe comes after
/// the entry probe, so that it only sees returns of calls whose entry was seen.
const ATTACH_ORDER: [Probe; 4] = [Probe::Exit, Probe::Enter, Probe::Return, Probe::Inner];

/// A server to attach to.
#[derive(Clone)]
pub struct PlannedServer {
    pub pid: u32,
    /// The executable that it runs, open.
    pub exe: Arc<Executable>,
    /// What the loader added to the addresses of the ELF file.
    pub load_bias: u64,
    /// Where its probes go: the plan made from this file.
    pub plan: Arc<ProbePlan>,
}

/// The probes on one server. Dropping it takes them off and waits until they are.
pub struct Attachment {
    server: PlannedServer,
    covered: Coverage,
    placed: Vec<Placed>,
    /// Probes that are being taken off. The kernel takes out the breakpoints of a uprobe_multi link at once, and then
    /// waits for 50 to 100 ms, for several links at a time. A perf event takes it a tenth to a quarter of a second, one
    /// after the other for all callers (`event_mutex`, kernel/trace/trace_uprobe.c).
    leaving: Vec<Leaving>,
    /// How many breakpoints belong to others.
    foreign: usize,
    /// At how many sites probes were placed in vain: the server does not run what they are in.
    unrun: Option<Unrun>,
    slot: Slot,
}

/// A probe of a traced function, at all its sites.
struct Placed {
    /// Index into the plan's functions.
    function: usize,
    probe: Probe,
    links: Vec<Link>,
}

impl Attachment {
    /// Takes a slot for a server, in which nothing is probed yet. Counting begins at zero. Fails if there is no free
    /// slot.
    pub fn new(probes: &Arc<Probes>, server: PlannedServer) -> Result<Self, ProbeError> {
        let slot = Slot::take(probes)?;
        let config = ServerConfig {
            run_delay: probes.run_delay.unwrap_or(0),
            ..server_config(server.pid, server.load_bias, &server.plan)
        };
        probes.maps.fill(slot.number, config)?;
        let (placed, leaving) = (Vec::new(), Vec::new());
        Ok(Self { server, covered: Coverage::NOTHING, placed, leaving, foreign: 0, unrun: None, slot })
    }

    /// Takes out the breakpoints that were left in the server's code. Call it before probes are placed.
    pub fn take_out_left(&mut self) {
        let programs = &self.slot.probes.programs;
        self.foreign = take_out(programs, self.target(), &self.server.exe);
    }

    /// Returns how many breakpoints others had in the server's code when it was attached to.
    pub fn foreign_breakpoints(&self) -> usize {
        self.foreign
    }

    fn target(&self) -> Target<'_> {
        // The very file that the plan was made for, whatever the process runs by now.
        Target { pid: self.server.pid, exe: self.server.exe.file().as_fd() }
    }

    /// Returns whether no more probes are being taken off. Until then [`Attachment::set`] has no effect.
    pub fn is_settled(&mut self) -> bool {
        self.leaving.retain(|leaving| !leaving.is_over());
        self.leaving.is_empty()
    }

    /// Changes which calls are probed. Places missing probes, and takes off unwanted ones in the background. Counts
    /// calls of the probed functions that begin from then on. Returns at how many sites probes were placed. Looks into
    /// the server's `memory` whether it runs what they are in. Fails if the process is gone, the kernel refuses, or the
    /// server does not run what it would be placed in; what was placed before stays.
    pub fn set(&mut self, wanted: Coverage, memory: &Words) -> Result<usize, ProbeError> {
        if self.covered == wanted || !self.is_settled() {
            return Ok(0);
        }
        let before = self.placed.len();
        if let Err(error) = self.place_missing(wanted).and_then(|()| self.must_run(before, memory)) {
            let placed = self.placed.split_off(before);
            self.take_off(placed);
            return Err(error);
        }
        let sites = sites_of(&self.placed[before..]);
        self.covered = wanted;
        let Slot { probes, number: slot } = &self.slot;
        for function in &self.server.plan.functions {
            let is_observed = wanted.of(function.kind.description) != Probed::Nothing;
            probes.maps.observe(*slot, number(function.kind)?, is_observed);
        }
        self.take_off_unwanted();
        Ok(sites)
    }

    /// Returns which calls are counted if they begin now.
    pub fn covered(&self) -> Coverage {
        self.covered
    }

    fn place_missing(&mut self, wanted: Coverage) -> Result<(), ProbeError> {
        let plan = self.server.plan.clone();
        for probe in ATTACH_ORDER {
            for (index, function) in plan.functions.iter().enumerate() {
                let is_placed = |placed: &Placed| placed.function == index && placed.probe == probe;
                if is_wanted(function, probe, wanted) && !self.placed.iter().any(is_placed) {
                    self.placed.push(Placed { function: index, probe, links: self.place(function, probe)? });
                }
            }
        }
        Ok(())
    }

    /// Fails if the server's memory lacks a breakpoint of a probe that was placed at `from` or later.
    fn must_run(&mut self, from: usize, memory: &Words) -> Result<(), ProbeError> {
        let pid = self.server.pid;
        self.unrun = self.unrun_of(&self.placed[from..], memory).map_err(|_| ProbeError::Gone(pid))?;
        if let Some(unrun) = self.unrun { Err(ProbeError::NotRun(pid, unrun)) } else { Ok(()) }
    }

    /// Returns at how many sites the server does not run what probes are, or were to be, placed in; `None` if it does,
    /// or has ended.
    pub fn unrun(&self, memory: &Words) -> Option<Unrun> {
        self.unrun.or_else(|| self.unrun_of(&self.placed, memory).ok().flatten())
    }

    fn unrun_of(&self, placed: &[Placed], memory: &Words) -> Result<Option<Unrun>, MemoryError> {
        let functions = &self.server.plan.functions;
        let sites = placed.iter().flat_map(|placed| sites(&functions[placed.function], placed.probe));
        let addresses: Vec<_> = sites.map(|(site, ..)| site.address.at(self.server.load_bias)).collect();
        let missing = memory.without_breakpoint(&addresses)?;
        Ok((missing > 0).then_some(Unrun { missing, placed: addresses.len() }))
    }

    fn place(&self, function: &TracedFunction, probe: Probe) -> Result<Vec<Link>, ProbeError> {
        let number = number(function.kind)?;
        let cookie = |site, when| Cookie { slot: self.slot.number, function: number, site, when };
        let sites =
            sites(function, probe).into_iter().map(|(place, site, when)| (place.file_offset, cookie(site, when)));
        let sites: Vec<(FileOffset, Cookie)> = sites.collect();
        self.slot.probes.programs.attach(function.kind.description, probe, self.target(), &sites)
    }

    /// Takes off in the background what is no longer wanted. The probe that ends a call under way stays until the call
    /// has ended: call this now and then.
    pub fn take_off_unwanted(&mut self) {
        let Slot { probes, number: slot } = &self.slot;
        let (functions, covered) = (&self.server.plan.functions, self.covered);
        let is_unwanted = |placed: &mut Placed| {
            let function = &functions[placed.function];
            let end = if function.span.exits.is_empty() { Probe::Return } else { Probe::Exit };
            let is_inside = |function| probes.maps.is_inside(*slot, function);
            let is_needed = placed.probe == end && number(function.kind).is_ok_and(is_inside);
            !is_needed && !is_wanted(function, placed.probe, covered)
        };
        let unwanted = self.placed.extract_if(.., is_unwanted).collect();
        self.take_off(unwanted);
    }

    fn take_off(&mut self, placed: Vec<Placed>) {
        self.leaving.extend(placed.into_iter().flat_map(|placed| placed.links).map(Link::take_off));
    }

    /// Stops waiting for the end of a call that is under way: the plan of this function is wrong, and the end may never
    /// be seen.
    pub fn give_up(&self, function: &Description) {
        let Slot { probes, number: slot } = &self.slot;
        if let Some(Ok(function)) = self.server.plan.function(function).map(|planned| number(planned.kind)) {
            probes.maps.give_up(*slot, function);
        }
    }

    fn functions(&self) -> u16 {
        let numbers = self.server.plan.functions.iter().filter_map(|function| number(function.kind).ok());
        numbers.max().map_or(1, |highest| highest + 1)
    }

    /// Copies what was counted since attaching. Leaves unchanged what is being updated all the time.
    pub fn read(&self, to: &mut Counted) {
        let Slot { probes, number } = &self.slot;
        probes.maps.read(*number, self.functions(), to);
    }

    pub fn sites(&self) -> usize {
        sites_of(&self.placed)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let Slot { probes, number } = &self.slot;
        probes.maps.switch_off(*number);
        let placed = std::mem::take(&mut self.placed);
        self.take_off(placed);
        // Dropping each waits.
        self.leaving.clear();
    }
}

fn sites_of(placed: &[Placed]) -> usize {
    placed.iter().flat_map(|placed| &placed.links).map(Link::sites).sum()
}

/// Returns whether a probe of a function is needed for what is wanted. The return probe, if there is one, also ends
/// inner calls; if there are no exits, it alone does. A function without an inner site is probed at its entry and its
/// exits.
fn is_wanted(function: &TracedFunction, probe: Probe, wanted: Coverage) -> bool {
    let probed = wanted.of(function.kind.description);
    if probed == Probed::Nothing {
        return false;
    }
    let has_noops = function.has_inner_site() && function.every_call().is_some();
    let is_timed = function.timed_span().is_some();
    let is_every = probed == Probed::Every && has_noops;
    match probe {
        Probe::Enter | Probe::Return => is_every,
        Probe::Inner => is_timed || is_every,
        Probe::Exit => is_timed && !is_every,
    }
}

/// Returns the sites of a probe. If calls end there, also returns the number of the exit and which calls end.
fn sites(function: &TracedFunction, probe: Probe) -> Vec<(&Site, u8, When)> {
    let only = |site: Option<_>| site.map(|site| (site, 0, When::NEVER)).into_iter().collect();
    let exits = (0..).zip(&function.span.exits).map(|(number, exit)| {
        let way = exit.way.map(|way| When::decode(way.when));
        (&exit.site, number, way.unwrap_or(When::ALWAYS))
    });
    let inner = function.span.inner.first();
    let (at_inner, elsewhere): (Vec<_>, Vec<_>) = exits.partition(|(site, ..)| Some(*site) == inner);
    match probe {
        Probe::Enter | Probe::Return => only(function.every_call()),
        Probe::Inner if at_inner.is_empty() => {
            (0..).zip(function.begins()).map(|(number, site)| (site, number, When::NEVER)).collect()
        }
        Probe::Inner => at_inner,
        Probe::Exit => elsewhere,
    }
}

/// Returns the number by which the programs know a function.
fn number(function: FunctionKind) -> Result<u16, ProbeError> {
    let number = u16::try_from(function.index).ok().filter(|number| u32::from(*number) < MAX_FUNCTIONS);
    number.ok_or(ProbeError::Object("entry for another traced function"))
}

/// Takes out the breakpoints in the code of a process that runs this executable, as far as the kernel allows: an agent
/// that was killed together with its keeper left them, and placing and taking off a probe there removes them. Returns
/// how many stay: those of other tools.
fn take_out(programs: &Programs, target: Target<'_>, executable: &Executable) -> usize {
    let pid = target.pid;
    let find = || breakpoints(pid, executable).unwrap_or_default();
    let found = find();
    // A debugger's would be taken out too, although the debugger still relies on them.
    if found.is_empty() || is_traced(pid) {
        return found.len();
    }
    programs.take_out(target, &found);
    let left = find().len();
    let taken = found.len().saturating_sub(left);
    if taken > 0 {
        tracing::info!(pid, taken, "took out breakpoints that were left in its code");
    }
    left
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use evictscope_host::{Executable, breakpoints};
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

    #[test]
    fn code_that_is_mapped_far_beyond_its_file_is_looked_at_to_the_end_of_that() -> anyhow::Result<()> {
        let file = File::open("/proc/self/exe")?;
        let (bytes, access) = (1 << 45, ProtFlags::READ | ProtFlags::EXEC);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: it is mapped where nothing else is, and nothing there is accessed.
        let mapped = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, &file, 0)? };
        let executable = Executable::open(Path::new("/proc/self/exe"))?;
        let found = breakpoints(std::process::id(), &executable);
        // SAFETY: it was mapped above.
        unsafe { munmap(mapped, bytes)? };
        // Other tests may have probes in this process.
        assert!(found.is_ok(), "{found:?}");
        Ok(())
    }
}
