//! What one probe hit costs on this machine, measured on functions of the agent's own.
//!
//! The functions are called with and without the probe, a few thousand times, and the difference is
//! the cost of a hit: trap, program and return. Programs do all they do for a server, as they get a
//! configuration with recipes and members of the agent's own memory.

use std::fmt::Display;
use std::hint::black_box;
use std::path::Path;

use evictscope_abi::{
    AllocatorCounters, Cookie, Member, Recipe, ServerConfig, Term, TermKind, Variable,
};
use rustix::time::{ClockId, clock_gettime};

use super::kernel::Shared;
use super::{Attachment, ProbeError, Probes};
use crate::host::memory;
use crate::telemetry::HitCosts;
use evictscope_plan::{FileOffset, Image, ProcessAddress};

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
        let unreadable = |error: &dyn Display| ProbeError::OwnExecutable(error.to_string());
        // However large it is: an unoptimised build is larger than what is read of others.
        let own = std::fs::read("/proc/self/exe").map_err(|error| unreadable(&error))?;
        let own = Image::parse(&own).map_err(|error| unreadable(&error))?;
        let load_bias = memory::load_bias(std::process::id(), own.entry())
            .map_err(|error| unreadable(&error))?;
        let mut probes = Self::load()?;
        let file_offset = |address: ProcessAddress| own.file_offset(address.in_file(load_bias));
        let costs = probes.calibrate(file_offset)?;
        Ok((probes, costs))
    }

    /// Measures what hits cost. `file_offset` says where in the agent's executable a run-time
    /// address is.
    fn calibrate(
        &mut self,
        file_offset: impl Fn(ProcessAddress) -> Option<FileOffset>,
    ) -> Result<HitCosts, ProbeError> {
        let (emulated, other, stepped): (Function, Function, Function) = (
            evictscope_calibration_emulated,
            evictscope_calibration_emulated_too,
            evictscope_calibration_stepped,
        );
        let offset = |function: Function| {
            file_offset(ProcessAddress::new(function as usize as u64))
                .ok_or(ProbeError::Object("calibration function"))
        };
        let (emulated_at, other_at, stepped_at) =
            (offset(emulated)?, offset(other)?, offset(stepped)?);
        let bare = time(&[emulated, other]) / 2.0;
        let enter = self.cost(&[("eviction_enter", emulated_at)], &[emulated])? - bare;
        let enter_stepped = self.cost(&[("eviction_enter", stepped_at)], &[stepped])? - bare;
        let pair = [
            ("eviction_return", emulated_at),
            ("eviction_enter", emulated_at),
        ];
        let enter_and_return = self.cost(&pair, &[emulated])? - bare;
        let pair = [("eviction_done", other_at), ("eviction_goal", emulated_at)];
        let goal_and_done = self.cost(&pair, &[emulated, other])? - 2.0 * bare;
        Ok(HitCosts {
            enter_ns: enter.max(0.0),
            return_ns: (enter_and_return - enter).max(0.0),
            goal_and_done_ns: goal_and_done.max(0.0),
            single_step_ns: (enter_stepped - enter).max(0.0),
        })
    }

    /// Nanoseconds of one call of each of `functions` with `programs` attached, which must have
    /// taken them for those of the process that they are to watch.
    fn cost(
        &mut self,
        programs: &[(&'static str, FileOffset)],
        functions: &[Function],
    ) -> Result<f64, ProbeError> {
        self.reclaim_slots();
        let slot = self.free.pop().ok_or(ProbeError::Object("free slot"))?;
        let mut attachment = Attachment::new(slot, std::process::id());
        let attached = self.attach_to_self(&mut attachment, programs);
        let cost = attached.and_then(|()| {
            let cost = time(functions);
            let (seen, _) = self.read(&attachment)?;
            match seen.hits.iter().sum() {
                0u64 => Err(ProbeError::OtherPidNamespace),
                _ => Ok(cost),
            }
        });
        self.detach(attachment);
        // The next measurement is of the same functions.
        self.finish();
        cost
    }

    fn attach_to_self(
        &mut self,
        attachment: &mut Attachment,
        programs: &[(&'static str, FileOffset)],
    ) -> Result<(), ProbeError> {
        let pid = attachment.pid;
        self.configs
            .set(attachment.slot, Shared(calibration_config(pid)), 0)?;
        for (name, file_offset) in programs {
            let cookie = Cookie {
                slot: attachment.slot,
                site: 0,
            };
            let own = Path::new("/proc/self/exe");
            let link = self.attach_uprobe(name, pid, own, *file_offset, cookie)?;
            attachment.evicting.push(link);
        }
        Ok(())
    }
}

/// What a server's memory holds: 1 KiB over its limit.
static MAXMEMORY: u64 = 64 << 20;
static USED_MEMORY: u64 = MAXMEMORY + OVER_LIMIT;
const OVER_LIMIT: u64 = 1 << 10;

/// Recipes as a server's are, with all that is read and tested there: each call is an evicting one
/// that passes every check.
fn calibration_config(pid: u32) -> ServerConfig {
    let memory = |of: &'static u64| Term {
        kind: TermKind::Absolute as u8,
        displacement: (&raw const *of as u64).cast_signed(),
        ..Term::ABSENT
    };
    let constant = |value: u64| Term {
        kind: TermKind::Constant as u8,
        displacement: value.cast_signed(),
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
