//! What one probe hit costs on this machine, measured on functions of the agent's own.
//!
//! The functions are called with and without the probe, a few thousand times, and the difference is
//! the cost of a hit: trap, program and return. Programs do all they do for a server, as they get a
//! configuration with recipes and members of the agent's own memory.

use std::hint::black_box;
use std::sync::Arc;

use evictscope_abi::{
    AllocatorCounters, Cookie, EVICTION, EXPIRE, MAX_FUNCTIONS, Probe, REGISTERS, Recipe,
    ServerConfig, Term, TermKind, Variable, When,
};
use evictscope_plan::{EVICTION_CALL, FileOffset, FunctionKind};
use evictscope_telemetry::{Counted, HitCosts};
use rustix::time::{ClockId, clock_gettime};

use super::attach::{Probes, Slot};
use super::error::ProbeError;
use super::keeper::{Link, LinkKeeper};
use super::own::{FUNCTIONS, Function, own_sites};
use super::target::Own;

/// Calls that are timed together.
const CALLS: u32 = 500;
/// How often that is done; the median counts.
const ROUNDS: usize = 5;

/// How much more a hit costs in a server than in a loop that does nothing else, whose code and data stay in the caches: 1.2 to 1.3
/// times as much where every call is probed, and 0.9 where evicting calls are (`cargo xtask bench probes`, Redis 7.0.15).
const IN_A_SERVER: f64 = 1.2;

impl Probes {
    /// Loads the programs, and measures what a hit costs on functions of this very program: so what
    /// the kernel does not allow is said at once, and not at the first server.
    ///
    /// # Errors
    ///
    /// What the kernel does not allow, and what to do about it.
    pub fn load_and_calibrate(run_delay: Option<u32>) -> Result<(Arc<Self>, HitCosts), ProbeError> {
        let probes = Self::load(&LinkKeeper::start()?, run_delay)?;
        let costs = calibrate(&probes)?;
        Ok((probes, costs))
    }
}

fn calibrate(probes: &Arc<Probes>) -> Result<HitCosts, ProbeError> {
    let [emulated, other, stepped] = FUNCTIONS;
    let [emulated_at, other_at, stepped_at] = own_sites()?;
    let bare = time(&[emulated, other]) / 2.0;
    let cost = |placed: &[(Probe, FileOffset)], functions: &[Function]| {
        Ok::<_, ProbeError>(cost(probes, placed, functions)? - bare * functions.len() as f64)
    };
    let enter = cost(&[(Probe::Enter, emulated_at)], &[emulated])?;
    let enter_stepped = cost(&[(Probe::Enter, stepped_at)], &[stepped])?;
    let pair = [(Probe::Return, emulated_at), (Probe::Enter, emulated_at)];
    let enter_and_return = cost(&pair, &[emulated])?;
    let pair = [(Probe::Exit, other_at), (Probe::Inner, emulated_at)];
    let goal_and_done = cost(&pair, &[emulated, other])?;
    let in_a_server = |ns: f64| ns.max(0.0) * IN_A_SERVER;
    Ok(HitCosts {
        enter_ns: in_a_server(enter),
        return_ns: in_a_server(enter_and_return - enter),
        goal_and_done_ns: in_a_server(goal_and_done),
        single_step_ns: in_a_server(enter_stepped - enter),
        placing_ns: placing(probes, emulated_at, emulated)?,
    })
}

/// Returns how many nanoseconds one call of each of `functions` takes with probes of the eviction
/// call attached at these file offsets, which must have taken them for those of the process that
/// they are to watch.
fn cost(
    probes: &Arc<Probes>,
    placed: &[(Probe, FileOffset)],
    functions: &[Function],
) -> Result<f64, ProbeError> {
    let own = SelfProbes::attach(probes, calibration_config(std::process::id()), placed)?;
    let cost = time(functions);
    match own
        .counted()
        .calls
        .iter()
        .flat_map(|calls| calls.hits)
        .sum()
    {
        0u64 => Err(ProbeError::OtherPidNamespace),
        _ => Ok(cost),
    }
}

/// Returns how many nanoseconds it costs a process that a probe is placed in it and taken off again, hits
/// apart: the pages of code change under it, so it takes a fault or two.
fn placing(probes: &Arc<Probes>, site: FileOffset, function: Function) -> Result<f64, ProbeError> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let usual = time_once(function);
        let own = SelfProbes::attach(
            probes,
            calibration_config(std::process::id()),
            &[(Probe::Enter, site)],
        )?;
        let first = time_once(function);
        let second = time_once(function);
        drop(own);
        rounds.push((first - second).max(0.0) + (time_once(function) - usual).max(0.0));
    }
    Ok(median(rounds))
}

/// Probes on this very process.
pub(super) struct SelfProbes {
    links: Vec<Link>,
    slot: Slot,
}

impl SelfProbes {
    /// Attaches probes of the eviction call.
    pub(super) fn attach(
        probes: &Arc<Probes>,
        config: ServerConfig,
        placed: &[(Probe, FileOffset)],
    ) -> Result<Self, ProbeError> {
        let function = FunctionKind {
            index: usize::from(EVICTION),
            description: EVICTION_CALL.description,
        };
        Self::attach_function(probes, config, function, placed)
    }

    /// Attaches probes of a traced function.
    pub(super) fn attach_function(
        probes: &Arc<Probes>,
        config: ServerConfig,
        function: FunctionKind,
        placed: &[(Probe, FileOffset)],
    ) -> Result<Self, ProbeError> {
        let slot = Slot::take(probes)?;
        let mut own = Self {
            links: Vec::new(),
            slot,
        };
        let this = Own::open()?;
        let cookie = Cookie {
            slot: own.slot.number,
            function: super::attachment::number(function)?,
            site: 0,
            when: When::ALWAYS,
        };
        probes.maps.fill(own.slot.number, config)?;
        for (probe, file_offset) in placed {
            let function = function.description;
            let sites = [(*file_offset, cookie)];
            let attached = (probes.programs).attach(function, *probe, this.target(), &sites);
            own.links.extend(attached?);
        }
        Ok(own)
    }

    /// Returns what was counted.
    pub(super) fn counted(&self) -> Counted {
        let mut counted = Counted::default();
        let Slot { probes, number } = &self.slot;
        probes.maps.read(*number, EXPIRE + 1, &mut counted);
        counted
    }
}

impl Drop for SelfProbes {
    fn drop(&mut self) {
        // Before the slot, which the next one may get.
        self.links.clear();
    }
}

/// What a server's memory holds: 1 KiB over its limit.
static MAXMEMORY: u64 = 64 << 20;
static USED_MEMORY: u64 = MAXMEMORY + OVER_LIMIT;
const OVER_LIMIT: u64 = 1 << 10;

fn constant(value: u64) -> Term {
    Term {
        kind: TermKind::Constant as u8,
        displacement: value.cast_signed(),
        ..Term::ABSENT
    }
}

/// Recipes as a server's are, with all that is read and tested there: each call is an evicting one
/// that passes every check.
fn calibration_config(pid: u32) -> ServerConfig {
    let memory = |of: &'static u64| Term {
        kind: TermKind::Absolute as u8,
        displacement: (&raw const *of as u64).cast_signed(),
        ..Term::ABSENT
    };
    let mut config = ServerConfig {
        tgid: pid,
        is_observed: [1; MAX_FUNCTIONS as usize],
        ..ServerConfig::OFF
    };
    let was_read = |read: u8| Term {
        kind: TermKind::Register as u8,
        register: REGISTERS as u8 + 2 * read,
        ..Term::ABSENT
    };
    config.reads[0] = memory(&USED_MEMORY);
    config.reads[1] = memory(&MAXMEMORY);
    for (variable, term) in [
        (Variable::MemReported, was_read(0)),
        (Variable::Overhead, constant(0)),
        (Variable::MemUsed, was_read(0)),
        (Variable::MemTofree, constant(OVER_LIMIT)),
        (Variable::Maxmemory, was_read(1)),
    ] {
        config.recipes[variable as usize] = Recipe {
            terms: [term, Term::ABSENT, Term::ABSENT],
        };
    }
    config.results[0] = Term {
        kind: TermKind::Register as u8,
        ..Term::ABSENT
    };
    config.maxmemory = &raw const MAXMEMORY as u64;
    config.used_memory = AllocatorCounters::one(&raw const USED_MEMORY as u64);
    config
}

/// CPU time of this thread, nanoseconds: what other processes take of the CPU is no cost of a hit.
fn own_time_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds of one call of each of `functions`: the median of a few rounds.
pub(super) fn time(functions: &[Function]) -> f64 {
    let rounds = (0..ROUNDS).map(|_| {
        let begun = own_time_ns();
        for _ in 0..CALLS {
            for function in functions {
                // SAFETY: the functions above take nothing, and only touch rax.
                unsafe { black_box(*function)() };
            }
        }
        (own_time_ns() - begun) / f64::from(CALLS)
    });
    median(rounds.collect())
}

/// Nanoseconds of a single call.
fn time_once(function: Function) -> f64 {
    let begun = own_time_ns();
    // SAFETY: as above.
    unsafe { black_box(function)() };
    own_time_ns() - begun
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use evictscope_abi::{
        ALLOCATOR_SLACK, ALLOCATOR_STREAK, AllocatorCounters, CHECKED_FIRST, CHECKED_ONE_IN, Check,
        Probe, Variable,
    };
    use evictscope_telemetry::Counted;

    use super::{FUNCTIONS, FileOffset, LinkKeeper, OVER_LIMIT, Probes, SelfProbes, USED_MEMORY};
    use super::{calibration_config, constant, own_sites};
    use crate::own::alone;

    /// Calls a function with every probe of the eviction call on it as often, after `change` has
    /// changed what the programs take for its server.
    fn counted(
        calls: u64,
        change: impl Fn(&mut evictscope_abi::ServerConfig),
    ) -> anyhow::Result<(Counted, Vec<String>)> {
        counted_with(calls, change, |_| {})
    }

    /// As [`counted`], and tells `before` the number of each call before it makes it.
    fn counted_with(
        calls: u64,
        change: impl Fn(&mut evictscope_abi::ServerConfig),
        before: impl Fn(u64),
    ) -> anyhow::Result<(Counted, Vec<String>)> {
        let _alone = alone();
        let [function, ..] = FUNCTIONS;
        let probes = Probes::load(&LinkKeeper::in_thread()?, None)?;
        let [begin, ..] = own_sites()?;
        let mut config = calibration_config(std::process::id());
        change(&mut config);
        // Behind the first push is the goal site; the return probe ends the calls.
        let placed = [
            (Probe::Return, begin),
            (Probe::Enter, begin),
            (Probe::Inner, FileOffset::new(begin.get() + 1)),
        ];
        let own = SelfProbes::attach(&probes, config, &placed)?;
        for call in 0..calls {
            before(call);
            // SAFETY: it takes nothing, and only touches rbx, which it restores.
            unsafe { function() };
        }
        let seen = own.counted();
        let texts = probes.messages().into_iter().map(|message| {
            assert_eq!(message.pid, std::process::id());
            message.text
        });
        Ok((seen, texts.collect()))
    }

    fn kinds(seen: &Counted) -> (u64, u64) {
        let calls = &seen.calls[0];
        (
            calls.inner.counts.iter().sum(),
            calls.noop.counts.iter().sum(),
        )
    }

    #[test]
    #[ignore = "needs root and BPF"]
    fn calls_are_evicting_or_noop() -> anyhow::Result<()> {
        let (seen, said) = counted(10, |_| {})?;
        assert_eq!((kinds(&seen), said.len()), ((10, 0), 0));
        let within = |config: &mut evictscope_abi::ServerConfig| {
            config.recipes[Variable::MemUsed as usize].terms[0] = constant(0);
        };
        let (seen, _) = counted(10, within)?;
        assert_eq!(kinds(&seen), (0, 10));
        Ok(())
    }

    #[test]
    #[ignore = "needs root and BPF"]
    fn a_call_far_from_the_allocators_counter_is_not_counted() -> anyhow::Result<()> {
        let reported = USED_MEMORY + 2 * ALLOCATOR_SLACK;
        let far = |config: &mut evictscope_abi::ServerConfig| {
            for variable in [Variable::MemReported, Variable::MemUsed] {
                config.recipes[variable as usize].terms[0] = constant(reported);
            }
            let tofree = constant(OVER_LIMIT + 2 * ALLOCATOR_SLACK);
            config.recipes[Variable::MemTofree as usize].terms[0] = tofree;
        };
        let (seen, said) = counted(ALLOCATOR_STREAK - 1, far)?;
        assert_eq!((kinds(&seen), said.len()), ((0, 0), 0));
        assert_eq!(seen.evictions.allocator_far, ALLOCATOR_STREAK - 1);

        // The next one fails the check, which is said once, with both values.
        let (seen, said) = counted(ALLOCATOR_STREAK + 5, far)?;
        assert_eq!(kinds(&seen), (0, 0));
        assert_eq!(seen.evictions.check_failures[Check::Allocator as usize], 1);
        let [text] = &said[..] else {
            panic!("{said:?}");
        };
        for value in [reported, USED_MEMORY] {
            assert!(text.contains(&value.to_string()), "{value} in {text}");
        }
        Ok(())
    }

    #[test]
    #[ignore = "needs root and BPF"]
    fn calls_are_compared_with_the_servers_memory_now_and_then() -> anyhow::Result<()> {
        let calls = 1000;
        let (seen, _) = counted(calls, |_| {})?;
        // The call that begins the burst is compared, too.
        let one_by_one = 1 + CHECKED_FIRST;
        let compared = one_by_one + (calls - one_by_one) / CHECKED_ONE_IN;
        let checks = [Check::Allocator, Check::Maxmemory, Check::Arithmetic];
        let made = checks.map(|check| seen.evictions.checks[check as usize]);
        assert_eq!(made, [compared, compared, calls]);
        assert_eq!(kinds(&seen), (calls, 0));
        Ok(())
    }

    #[test]
    #[ignore = "needs root and BPF"]
    fn of_calls_that_become_wrong_few_are_counted() -> anyhow::Result<()> {
        static COUNTER: AtomicU64 = AtomicU64::new(USED_MEMORY);
        let own_counter = |config: &mut evictscope_abi::ServerConfig| {
            config.used_memory = AllocatorCounters::one(COUNTER.as_ptr() as u64);
        };
        // A call that is not compared comes first.
        let wrong_from = 1 + CHECKED_FIRST + CHECKED_ONE_IN;
        let become_wrong = |call| {
            if call == wrong_from {
                COUNTER.fetch_add(2 * ALLOCATOR_SLACK, Ordering::Relaxed);
            }
        };
        let (seen, said) = counted_with(wrong_from + 500, own_counter, become_wrong)?;
        assert_eq!(kinds(&seen), (wrong_from + CHECKED_ONE_IN - 1, 0));
        // The first that is compared makes the next ones be compared.
        assert_eq!(seen.evictions.allocator_far, ALLOCATOR_STREAK);
        assert_eq!(seen.evictions.check_failures[Check::Allocator as usize], 1);
        assert_eq!(said.len(), 1);
        Ok(())
    }
}
