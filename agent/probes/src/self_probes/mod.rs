//! Probes on the agent's own functions, and what one hit costs on this machine.
//!
//! The programs do everything that they do for a server, because they get a configuration with recipes and members in
//! the agent's own memory. The functions are called with and without the probe, a few thousand times, and the
//! difference is the cost of a hit: trap, program and return.

use std::hint::black_box;
use std::sync::Arc;

use evictscope_abi::{
    AllocatorCounters, Cookie, EVICTION, EXPIRE, EncodedRecipe, EncodedTerm, MAX_FUNCTIONS, Probe, REGISTERS,
    ServerConfig, TermKind, Variable, When,
};
use evictscope_model::FileOffset;
use evictscope_plan::{Description, EVICTION_CALL};
use evictscope_telemetry::{Counted, HitCosts};
use rustix::time::{ClockId, clock_gettime};

use super::error::ProbeError;
use super::keeper::{Link, LinkKeeper};
use super::probes::{Probes, Slot};
use super::target::{FUNCTIONS, OwnExecutable, TargetFunction, own_sites};

#[cfg(test)]
mod tests;

/// Calls that are timed together.
const CALLS: u32 = 500;
/// How often that is done; the median counts.
const ROUNDS: usize = 5;

/// How many times as much a hit costs in a server as in a loop that does nothing else, whose code and data stay in the
/// caches: 1.2 to 1.3 if every call is probed, and 0.9 if evicting calls are (`cargo xtask bench`, Redis
/// 7.0.15).
const IN_A_SERVER: f64 = 1.2;

/// Probes on this process.
struct SelfProbes {
    links: Vec<Link>,
    slot: Slot,
}

impl SelfProbes {
    fn of_evictions(
        probes: &Arc<Probes>,
        config: ServerConfig,
        placed: &[(Probe, FileOffset)],
    ) -> Result<Self, ProbeError> {
        Self::attach(probes, config, (EVICTION, EVICTION_CALL.description), placed)
    }

    /// Attaches probes of a traced function, with its number.
    fn attach(
        probes: &Arc<Probes>,
        config: ServerConfig,
        (number, function): (u16, &Description),
        placed: &[(Probe, FileOffset)],
    ) -> Result<Self, ProbeError> {
        let mut attached = Self { links: Vec::new(), slot: Slot::take(probes)? };
        let executable = OwnExecutable::open()?;
        let slot = attached.slot.number;
        probes.maps.fill(slot, config)?;
        let cookie = Cookie { slot, function: number, site: 0, when: When::ALWAYS };
        for (probe, file_offset) in placed {
            let links = probes.programs.attach(function, *probe, executable.target(), &[(*file_offset, cookie)])?;
            attached.links.extend(links);
        }
        Ok(attached)
    }

    fn counted(&self) -> Counted {
        let mut counted = Counted::default();
        self.slot.probes.maps.read(self.slot.number, EXPIRE + 1, &mut counted);
        counted
    }
}

impl Drop for SelfProbes {
    fn drop(&mut self) {
        // Before the slot, which another server may get then.
        self.links.clear();
    }
}

/// What a server's memory holds: 1 KiB over its limit.
static MAXMEMORY: u64 = 64 << 20;
static USED_MEMORY: u64 = MAXMEMORY + OVER_LIMIT;
const OVER_LIMIT: u64 = 1 << 10;

fn constant(value: u64) -> EncodedTerm {
    EncodedTerm { kind: TermKind::Constant as u8, displacement: value.cast_signed(), ..EncodedTerm::ABSENT }
}

/// Returns what is read at a place in this process.
fn memory<T>(of: &'static T) -> EncodedTerm {
    let displacement = (&raw const *of as u64).cast_signed();
    EncodedTerm { kind: TermKind::Absolute as u8, width: size_of::<T>() as u8, displacement, ..EncodedTerm::ABSENT }
}

/// Returns a configuration like a server's, with all that is read and tested there: each call is an evicting call
/// that passes every check.
fn as_server(pid: u32) -> ServerConfig {
    let mut config = ServerConfig { tgid: pid, is_observed: [1; MAX_FUNCTIONS as usize], ..ServerConfig::OFF };
    let was_read = |read: u8| EncodedTerm {
        kind: TermKind::Register as u8,
        register: REGISTERS as u8 + 2 * read,
        ..EncodedTerm::ABSENT
    };
    config.eviction.reads[0] = memory(&USED_MEMORY);
    config.eviction.reads[1] = memory(&MAXMEMORY);
    for (variable, term) in [
        (Variable::MemReported, was_read(0)),
        (Variable::Overhead, constant(0)),
        (Variable::MemUsed, was_read(0)),
        (Variable::MemTofree, constant(OVER_LIMIT)),
        (Variable::Maxmemory, was_read(1)),
    ] {
        config.eviction.recipes[variable as usize] =
            EncodedRecipe { terms: [term, EncodedTerm::ABSENT, EncodedTerm::ABSENT] };
    }
    config.eviction.results[0] = EncodedTerm { kind: TermKind::Register as u8, ..EncodedTerm::ABSENT };
    config.eviction.maxmemory = &raw const MAXMEMORY as u64;
    config.eviction.used_memory = AllocatorCounters::one(&raw const USED_MEMORY as u64);
    config
}

impl Probes {
    /// Loads the programs, and measures what a hit costs on this program's own functions. So what the kernel does not
    /// allow is reported at once, not at the first server. The error says what the kernel does not allow, and what to
    /// do about it.
    pub fn load_and_calibrate(run_delay: Option<u32>) -> Result<(Arc<Self>, HitCosts), ProbeError> {
        let probes = Self::load(&LinkKeeper::start()?, run_delay)?;
        let costs = match calibrate(&probes) {
            // Whoever may run this program can do that.
            Err(error @ ProbeError::Obstructed(..)) => {
                tracing::warn!("does not measure what a hit costs here: {error}");
                HitCosts::DOCUMENTED
            }
            measured => measured?,
        };
        Ok((probes, costs))
    }
}

fn calibrate(probes: &Arc<Probes>) -> Result<HitCosts, ProbeError> {
    let [emulated, other, stepped] = FUNCTIONS;
    let [emulated_at, other_at, stepped_at] = own_sites()?;
    let bare = time(&[emulated, other]) / 2.0;
    let cost = |placed: &[(Probe, FileOffset)], functions: &[TargetFunction]| {
        Ok::<_, ProbeError>(cost(probes, placed, functions)? - bare * functions.len() as f64)
    };
    let enter = cost(&[(Probe::Enter, emulated_at)], &[emulated])?;
    let enter_stepped = cost(&[(Probe::Enter, stepped_at)], &[stepped])?;
    let enter_and_return = cost(&[(Probe::Return, emulated_at), (Probe::Enter, emulated_at)], &[emulated])?;
    let goal_and_done = cost(&[(Probe::Exit, other_at), (Probe::Inner, emulated_at)], &[emulated, other])?;
    let in_a_server = |ns: f64| ns.max(0.0) * IN_A_SERVER;
    Ok(HitCosts {
        enter_ns: in_a_server(enter),
        return_ns: in_a_server(enter_and_return - enter),
        goal_and_done_ns: in_a_server(goal_and_done),
        single_step_ns: in_a_server(enter_stepped - enter),
        placing_ns: placing(probes, emulated_at, emulated)?,
    })
}

/// Returns how many nanoseconds one call of each of `functions` takes with probes of the eviction call attached at
/// these file offsets. Fails if the probes did not see the calls as those of the watched process.
fn cost(probes: &Arc<Probes>, placed: &[(Probe, FileOffset)], functions: &[TargetFunction]) -> Result<f64, ProbeError> {
    let attached = SelfProbes::of_evictions(probes, as_server(std::process::id()), placed)?;
    let cost = time(functions);
    let has_hits = attached.counted().calls.iter().flat_map(|calls| calls.hits).any(|hits| hits > 0);
    if has_hits { Ok(cost) } else { Err(ProbeError::OtherPidNamespace) }
}

/// Returns how many nanoseconds it costs a process to have a probe placed and taken off again, apart from hits: its
/// pages of code change, so it takes a fault or two.
fn placing(probes: &Arc<Probes>, site: FileOffset, function: TargetFunction) -> Result<f64, ProbeError> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let usual = time_once(function);
        let attached = SelfProbes::of_evictions(probes, as_server(std::process::id()), &[(Probe::Enter, site)])?;
        let first = time_once(function);
        let second = time_once(function);
        drop(attached);
        rounds.push((first - second).max(0.0) + (time_once(function) - usual).max(0.0));
    }
    Ok(median(rounds))
}

/// Returns the CPU time of this thread, nanoseconds: that of other processes is not a cost of a hit.
fn cpu_time_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Returns how many nanoseconds one call of each of `functions` takes: the median of a few rounds.
pub(super) fn time(functions: &[TargetFunction]) -> f64 {
    let rounds = (0..ROUNDS).map(|_| {
        let begun = cpu_time_ns();
        for _ in 0..CALLS {
            for function in functions {
                // SAFETY: these functions take nothing, and change no register that a call preserves.
                unsafe { black_box(*function)() };
            }
        }
        (cpu_time_ns() - begun) / f64::from(CALLS)
    });
    median(rounds.collect())
}

fn time_once(function: TargetFunction) -> f64 {
    let begun = cpu_time_ns();
    // SAFETY: as above.
    unsafe { black_box(function)() };
    cpu_time_ns() - begun
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
