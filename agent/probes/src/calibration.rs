//! Measures what one probe hit costs on this machine, on the agent's own functions.
//!
//! The functions are called with and without the probe, a few thousand times, and the difference is
//! the cost of a hit: trap, program and return.

use std::hint::black_box;
use std::sync::Arc;

use evictscope_abi::Probe;
use evictscope_model::FileOffset;
use evictscope_telemetry::HitCosts;
use rustix::time::{ClockId, clock_gettime};

use super::attach::Probes;
use super::error::ProbeError;
use super::keeper::LinkKeeper;
use super::own::{FUNCTIONS, Function, own_sites};
use super::self_probes::{SelfProbes, as_server};

/// Calls that are timed together.
const CALLS: u32 = 500;
/// How often that is done; the median counts.
const ROUNDS: usize = 5;

/// How many times as much a hit costs in a server as in a loop that does nothing else, whose code and data stay in the
/// caches: 1.2 to 1.3 if every call is probed, and 0.9 if evicting calls are (`cargo xtask bench`, Redis
/// 7.0.15).
const IN_A_SERVER: f64 = 1.2;

impl Probes {
    /// Loads the programs, and measures what a hit costs on this program's own functions. So what the kernel does not
    /// allow is reported at once, not at the first server.
    ///
    /// # Errors
    ///
    /// The error says what the kernel does not allow, and what to do about it.
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

/// Returns how many nanoseconds one call of each of `functions` takes with probes of the eviction call attached at
/// these file offsets. Fails if the probes did not see the calls as those of the watched process.
fn cost(probes: &Arc<Probes>, placed: &[(Probe, FileOffset)], functions: &[Function]) -> Result<f64, ProbeError> {
    let own = SelfProbes::attach(probes, as_server(std::process::id()), placed)?;
    let cost = time(functions);
    match own.counted().calls.iter().flat_map(|calls| calls.hits).sum() {
        0u64 => Err(ProbeError::OtherPidNamespace),
        _ => Ok(cost),
    }
}

/// Returns how many nanoseconds it costs a process to have a probe placed and taken off again, apart from hits: its
/// pages of code change, so it takes a fault or two.
fn placing(probes: &Arc<Probes>, site: FileOffset, function: Function) -> Result<f64, ProbeError> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let usual = time_once(function);
        let own = SelfProbes::attach(probes, as_server(std::process::id()), &[(Probe::Enter, site)])?;
        let first = time_once(function);
        let second = time_once(function);
        drop(own);
        rounds.push((first - second).max(0.0) + (time_once(function) - usual).max(0.0));
    }
    Ok(median(rounds))
}

/// Returns the CPU time of this thread, nanoseconds: that of other processes is not a cost of a hit.
fn own_time_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Returns how many nanoseconds one call of each of `functions` takes: the median of a few rounds.
pub(super) fn time(functions: &[Function]) -> f64 {
    let rounds = (0..ROUNDS).map(|_| {
        let begun = own_time_ns();
        for _ in 0..CALLS {
            for function in functions {
                // SAFETY: the functions of `own.rs` take nothing, and only change rax.
                unsafe { black_box(*function)() };
            }
        }
        (own_time_ns() - begun) / f64::from(CALLS)
    });
    median(rounds.collect())
}

/// Returns how many nanoseconds a single call takes.
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
