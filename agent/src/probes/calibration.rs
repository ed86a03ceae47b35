//! What one probe hit costs on this machine, measured on functions of the agent's own.
//!
//! The functions are called with and without the probe, a few thousand times, and the difference is
//! the cost of a hit: trap, program and return. Programs do all they do for a server, as they get a
//! configuration with recipes and members of the agent's own memory.

use std::fmt::Display;
use std::hint::black_box;
use std::path::Path;

use evictscope_abi::{
    AllocatorCounters, Cookie, EVICTION, Member, Probe, Recipe, ServerConfig, Term, TermKind,
    Variable,
};
use evictscope_plan::{EVICTION_CALL, FileOffset, Image, ProcessAddress};
use rustix::time::{ClockId, clock_gettime};

use super::attach::Probes;
use super::error::ProbeError;
use super::target::{Attachment, Target};
use crate::host::memory;
use crate::telemetry::HitCosts;

/// Calls that are timed together.
const CALLS: u32 = 500;
/// How often that is done; the median counts.
const ROUNDS: usize = 5;

// Two functions that begin with an instruction that the kernel emulates, and one that begins with
// one that it single-steps.
std::arch::global_asm!(
    ".pushsection .text.evictscope_calibration, \"ax\", @progbits",
    ".globl evictscope_calibration_emulated",
    "evictscope_calibration_emulated:",
    "push rbx",
    "pop rbx",
    "ret",
    ".globl evictscope_calibration_emulated_too",
    "evictscope_calibration_emulated_too:",
    "push rbx",
    "pop rbx",
    "ret",
    ".globl evictscope_calibration_stepped",
    "evictscope_calibration_stepped:",
    "mov eax, edi",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn evictscope_calibration_emulated();
    fn evictscope_calibration_emulated_too();
    fn evictscope_calibration_stepped();
}

type Function = unsafe extern "C" fn();

impl Probes {
    /// Loads the programs, and measures what a hit costs on functions of this very program: so what
    /// the kernel does not allow is said at once, and not at the first server.
    ///
    /// # Errors
    ///
    /// What the kernel does not allow, and what to do about it.
    pub fn load_and_calibrate() -> Result<(Self, HitCosts), ProbeError> {
        let mut probes = Self::load()?;
        let costs = probes.calibrate()?;
        Ok((probes, costs))
    }

    fn calibrate(&mut self) -> Result<HitCosts, ProbeError> {
        let (emulated, other, stepped): (Function, Function, Function) = (
            evictscope_calibration_emulated,
            evictscope_calibration_emulated_too,
            evictscope_calibration_stepped,
        );
        let [emulated_at, other_at, stepped_at] = file_offsets([emulated, other, stepped])?;
        let bare = time(&[emulated, other]) / 2.0;
        let enter = self.cost(&[(Probe::Enter, emulated_at)], &[emulated])? - bare;
        let enter_stepped = self.cost(&[(Probe::Enter, stepped_at)], &[stepped])? - bare;
        let pair = [(Probe::Return, emulated_at), (Probe::Enter, emulated_at)];
        let enter_and_return = self.cost(&pair, &[emulated])? - bare;
        let pair = [(Probe::Exit, other_at), (Probe::Inner, emulated_at)];
        let goal_and_done = self.cost(&pair, &[emulated, other])? - 2.0 * bare;
        Ok(HitCosts {
            enter_ns: enter.max(0.0),
            return_ns: (enter_and_return - enter).max(0.0),
            goal_and_done_ns: goal_and_done.max(0.0),
            single_step_ns: (enter_stepped - enter).max(0.0),
        })
    }

    /// Returns how many nanoseconds one call of each of `functions` takes with probes of the eviction
    /// call attached at these file offsets, which must have taken them for those of the process that
    /// they are to watch.
    fn cost(
        &mut self,
        probes: &[(Probe, FileOffset)],
        functions: &[Function],
    ) -> Result<f64, ProbeError> {
        let config = calibration_config(std::process::id());
        let attachment = self.attach_to_self(config, probes)?;
        let cost = time(functions);
        let seen = self.read(&attachment);
        self.detach(attachment);
        // The next measurement is of the same functions.
        self.finish();
        match seen?.calls.iter().flat_map(|calls| calls.hits).sum() {
            0u64 => Err(ProbeError::OtherPidNamespace),
            _ => Ok(cost),
        }
    }

    fn attach_to_self(
        &mut self,
        config: ServerConfig,
        probes: &[(Probe, FileOffset)],
    ) -> Result<Attachment, ProbeError> {
        let mut attachment = self.empty(config.tgid)?;
        let attached = self.fill_own(&mut attachment, config, probes);
        match attached {
            Ok(()) => Ok(attachment),
            Err(error) => {
                self.detach(attachment);
                Err(error)
            }
        }
    }

    fn fill_own(
        &mut self,
        attachment: &mut Attachment,
        config: ServerConfig,
        probes: &[(Probe, FileOffset)],
    ) -> Result<(), ProbeError> {
        let target = Target {
            pid: attachment.pid,
            exe: Path::new("/proc/self/exe"),
            load_bias: 0,
        };
        let cookie = Cookie {
            slot: attachment.slot,
            function: EVICTION,
            site: 0,
        };
        self.maps.fill(attachment.slot, config)?;
        for (probe, file_offset) in probes {
            let function = EVICTION_CALL.description;
            let sites = [(*file_offset, cookie)];
            let links = self.programs.attach(function, *probe, target, &sites)?;
            attachment.inner.extend(links);
        }
        Ok(())
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
        ..ServerConfig::OFF
    };
    for (variable, term) in [
        (Variable::MemReported, memory(&USED_MEMORY)),
        (Variable::Overhead, constant(0)),
        (Variable::MemUsed, memory(&USED_MEMORY)),
        (Variable::MemTofree, constant(OVER_LIMIT)),
        (Variable::Maxmemory, memory(&MAXMEMORY)),
    ] {
        config.recipes[variable as usize] = Recipe {
            terms: [term, Term::ABSENT, Term::ABSENT],
        };
    }
    config.results[0] = Term {
        kind: TermKind::Register as u8,
        ..Term::ABSENT
    };
    config.members[Member::Maxmemory as usize] = &raw const MAXMEMORY as u64;
    config.used_memory = AllocatorCounters::one(&raw const USED_MEMORY as u64);
    config
}

/// Returns where functions are in the agent's own executable.
fn file_offsets<const N: usize>(functions: [Function; N]) -> Result<[FileOffset; N], ProbeError> {
    let unreadable = |error: &dyn Display| ProbeError::OwnExecutable(error.to_string());
    // However large it is: an unoptimised build is larger than what is read of others.
    let own = std::fs::read("/proc/self/exe").map_err(|error| unreadable(&error))?;
    let own = Image::parse(&own).map_err(|error| unreadable(&error))?;
    let load_bias =
        memory::load_bias(std::process::id(), own.entry()).map_err(|error| unreadable(&error))?;
    let mut offsets = [FileOffset::new(0); N];
    for (offset, function) in offsets.iter_mut().zip(functions) {
        let address = ProcessAddress::new(function as usize as u64);
        *offset = own
            .file_offset(address.in_file(load_bias))
            .ok_or(ProbeError::Object("calibration function"))?;
    }
    Ok(offsets)
}

/// CPU time of this thread, nanoseconds: what other processes take of the CPU is no cost of a hit.
fn own_time_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds of one call of each of `functions`: the median of a few rounds.
fn time(functions: &[Function]) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = own_time_ns();
            for _ in 0..CALLS {
                for function in functions {
                    // SAFETY: the functions above take nothing, and only touch rax.
                    unsafe { black_box(*function)() };
                }
            }
            (own_time_ns() - begun) / f64::from(CALLS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds.get(ROUNDS / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use evictscope_abi::{ALLOCATOR_SLACK, ALLOCATOR_STREAK, Check, Probe, Variable};

    use super::{FileOffset, evictscope_calibration_emulated, file_offsets};
    use super::{Function, OVER_LIMIT, Probes, USED_MEMORY, calibration_config, constant};
    use crate::telemetry::Snapshot;

    /// Calls a function with every probe of the eviction call on it as often, after `change` has
    /// changed what the programs take for its server.
    fn counted(
        calls: u64,
        change: impl Fn(&mut evictscope_abi::ServerConfig),
    ) -> anyhow::Result<(Snapshot, Vec<String>)> {
        let function: Function = evictscope_calibration_emulated;
        let mut probes = Probes::load()?;
        let [begin] = file_offsets([function])?;
        let mut config = calibration_config(std::process::id());
        change(&mut config);
        // Behind the first push is the goal site; the return probe ends the calls.
        let placed = [
            (Probe::Return, begin),
            (Probe::Enter, begin),
            (Probe::Inner, FileOffset::new(begin.get() + 1)),
        ];
        let attachment = probes.attach_to_self(config, &placed)?;
        for _ in 0..calls {
            // SAFETY: it takes nothing, and only touches rbx, which it restores.
            unsafe { function() };
        }
        let seen = probes.read(&attachment)?;
        let said = probes.messages();
        probes.detach(attachment);
        probes.finish();
        let texts = said.into_iter().map(|message| {
            assert_eq!(message.pid, std::process::id());
            message.text
        });
        Ok((seen, texts.collect()))
    }

    fn kinds(seen: &Snapshot) -> (u64, u64) {
        let [calls] = &seen.calls[..] else {
            panic!("{:?}", seen.calls);
        };
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
        assert_eq!(seen.evictions.allocator_moved, ALLOCATOR_STREAK - 1);

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
}
