use evictscope_abi::{EvictionConfig, TraceConfig};
use evictscope_host::{Executable, Words};
use evictscope_model::ProcessAddress;

use super::{ENTER, LinkKeeper, OwnExecutable, RETURN, TraceCounts, TraceJob, Tracer};
use crate::target::{alone, own_offsets};

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(include_str!("functions.aarch64.s"));
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(include_str!("functions.x86_64.s"));

unsafe extern "C" {
    fn evictscope_test_recursive(times: u32);
    fn evictscope_test_leaving(stay: u32);
    fn evictscope_test_caller(stay: u32);
}

/// Traces a function of this process while `call` runs. Returns what was counted, and how long each slow call took.
fn traced(
    multi: bool,
    function: unsafe extern "C" fn(u32),
    slower_ns: u64,
    call: impl Fn(),
) -> anyhow::Result<(TraceCounts, Vec<u64>)> {
    let _alone = alone();
    let mut tracer = Tracer::load_for(&LinkKeeper::in_thread()?, multi)?;
    let executable = OwnExecutable::open()?;
    let [site] = own_offsets([function as usize as u64])?;
    let mut links = Vec::new();
    for program in [RETURN, ENTER] {
        links.extend(tracer.attach(program, executable.target(), site, 0)?);
    }
    let tgid = std::process::id();
    tracer.config.set(0, TraceConfig { tgid, is_observed: 1, generation: 1, slower_ns, evicted_keys: 0 })?;
    call();
    let slow = tracer.slow_calls().iter().map(|call| call.duration_ns).collect();
    Ok((tracer.counts(), slow))
}

#[test]
#[ignore = "needs root and BPF"]
fn the_outermost_call_of_each_thread_is_counted() -> anyhow::Result<()> {
    const CALLS: u64 = 200;
    const THREADS: u64 = 4;
    for multi in [true, false] {
        let call = || {
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        for _ in 0..CALLS {
                            // SAFETY: it calls itself three times, and only changes edi.
                            unsafe { evictscope_test_recursive(3) };
                        }
                    });
                }
            });
        };
        let (counts, slow) = traced(multi, evictscope_test_recursive, 0, call)?;
        assert_eq!(counts.ended(), THREADS * CALLS);
        assert_eq!(counts.calls.begun, THREADS * CALLS);
        assert_eq!(counts.calls.nested, 3 * THREADS * CALLS);
        assert_eq!((counts.calls.lost, counts.calls.slow_lost), (0, 0));
        assert_eq!(slow.len() as u64, THREADS * CALLS);
        assert_eq!(counts.calls.durations.sum, slow.iter().sum::<u64>());
        assert_eq!(Some(counts.calls.longest_ns), slow.iter().copied().max());
    }
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_call_that_never_returns_is_not_counted() -> anyhow::Result<()> {
    for multi in [true, false] {
        let call = || {
            for stay in [1, 0, 1, 0, 0, 1] {
                // SAFETY: both change nothing but the flags, and leave the stack as it was.
                unsafe { evictscope_test_caller(stay) };
            }
        };
        let (counts, _) = traced(multi, evictscope_test_leaving, u64::MAX, call)?;
        assert_eq!((counts.calls.begun, counts.ended(), counts.calls.lost), (6, 3, 3));
    }
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn probes_that_are_placed_again_are_hit_once_by_each_call() -> anyhow::Result<()> {
    const TIMES: u64 = 10;
    const CALLS: u64 = 100;
    for multi in [true, false] {
        let _alone = alone();
        let (pid, address) = (std::process::id(), evictscope_test_recursive as *const () as u64);
        let [entry] = own_offsets([address])?;
        // Probes there do not appear in this process's memory.
        let copy = tempfile::NamedTempFile::new()?;
        std::fs::copy("/proc/self/exe", copy.path())?;
        let tracer = Tracer::load_for(&LinkKeeper::in_thread()?, multi)?;
        let mut tracing = tracer.trace(TraceJob {
            pid,
            exes: vec![Executable::open(copy.path())?, Executable::open("/proc/self/exe".as_ref())?],
            memory: Words::open(pid)?,
            addresses: vec![ProcessAddress::new(address)],
            entry,
            cycles: Vec::new(),
            eviction: EvictionConfig::UNKNOWN,
            evicted_keys: None,
            slower_ns: None,
        })?;
        for _ in 0..TIMES {
            tracing.place()?;
            for _ in 0..CALLS {
                // SAFETY: it never calls itself, and changes nothing but the flags.
                unsafe { evictscope_test_recursive(0) };
            }
            tracing.take_off();
        }
        let counts = tracing.counts();
        let all = TIMES * CALLS;
        assert_eq!((counts.calls.entry_hits, counts.calls.begun), (all, all));
        assert_eq!((counts.ended(), counts.calls.lost), (all, 0));
    }
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn more_slow_calls_than_there_is_room_for_are_counted_as_lost() -> anyhow::Result<()> {
    const CALLS: u64 = 20_000;
    let call = || {
        for _ in 0..CALLS {
            // SAFETY: as above.
            unsafe { evictscope_test_recursive(0) };
        }
    };
    let (counts, slow) = traced(true, evictscope_test_recursive, 0, call)?;
    assert_eq!(counts.ended(), CALLS);
    assert!(counts.calls.slow_lost > 0 && !slow.is_empty(), "{}", slow.len());
    assert_eq!(counts.calls.slow_lost + slow.len() as u64, CALLS);
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn what_costs_are_measured_on_leaves_no_count() -> anyhow::Result<()> {
    let _alone = alone();
    let mut tracer = Tracer::load_for(&LinkKeeper::in_thread()?, true)?;
    let costs = tracer.calibrate(true, true)?;
    assert!(costs.call_ns > 0.0 && costs.cycle_ns > 0.0, "{costs:?}");
    assert_eq!(tracer.counts().calls.entry_hits, 0);
    Ok(())
}
