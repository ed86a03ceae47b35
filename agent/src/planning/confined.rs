//! What the process that plans may do: only read what it has open, and answer.

use anyhow::Context as _;
use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setpriority_process, setrlimit,
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_name, set_no_new_privs};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

/// Its niceness. With 19, a plan that takes 30 ms of CPU time waited 18 s for it on a machine that eight processes kept
/// busy.
const NICE: i32 = 5;
/// The most CPU time, in seconds. A plan has a limit of steps, which take about a second. In an emulated machine that
/// got little CPU from its host, a usual plan took more than five by that machine's clock.
pub const CPU_SECONDS: u64 = 20;
/// The most memory, in bytes: an executable and a debug file of 128 MiB each, what planning keeps of them, and this
/// program.
const MEMORY: u64 = 512 << 20;

/// The system calls for reading, the allocator, a panic, and the end.
const CALLS: [i64; 24] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_sched_yield,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_tgkill,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Limits this process, and has it end with the process that started it.
pub fn limit() -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    set_name(c"evictscope-plan")?;
    // If these are forbidden, it can do without.
    let _ = setpriority_process(None, NICE);
    // If memory runs out, the kernel kills it rather than the agent.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    for (resource, most, later) in [
        (Resource::As, MEMORY, 0),
        // At this limit the kernel sends SIGXCPU; at the hard one it would send SIGKILL, as others do.
        (Resource::Cpu, CPU_SECONDS, 1),
        (Resource::Core, 0, 0),
    ] {
        set(resource, most, later).with_context(|| format!("{resource:?}"))?;
    }
    Ok(())
}

/// Gives up all capabilities, all files that are not open, and all system calls except [`CALLS`]: any other call fails.
pub fn lock() -> anyhow::Result<()> {
    set(Resource::Nofile, 0, 0)?;
    set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, none)?;
    let filter = SeccompFilter::new(
        CALLS.map(|call| (call, Vec::new())).into(),
        SeccompAction::Errno(libc::EPERM.cast_unsigned()),
        SeccompAction::Allow,
        TargetArch::x86_64,
    )?;
    let filter: BpfProgram = filter.try_into()?;
    Ok(apply_filter(&filter)?)
}

/// Sets a limit, and the hard limit `later` above it.
fn set(resource: Resource, most: u64, later: u64) -> rustix::io::Result<()> {
    // It may already be lower, and nobody may raise it.
    let before = getrlimit(resource).maximum;
    let lower = |most: u64| Some(before.map_or(most, |before| before.min(most)));
    setrlimit(resource, Rlimit { current: lower(most), maximum: lower(most + later) })
}
