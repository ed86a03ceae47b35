//! Tests the programs in the kernel, on this process's own functions: what they count of eviction calls and expire
//! cycles whose values are known.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evictscope_abi::{
    ALLOCATOR_SLACK, ALLOCATOR_STREAK, AllocatorCounters, CHECKED_FIRST, CHECKED_ONE_IN, Check, CycleCheck, CycleKeys,
    CycleStart, CycleType, EXPIRE, EncodedTerm, ExpireStats, MAX_FUNCTIONS, Probe, QUIET_NS, ServerConfig, Variable,
};
use evictscope_plan::EXPIRE_CYCLE;
use evictscope_telemetry::Counted;

use super::{FileOffset, LinkKeeper, OVER_LIMIT, Probes, SelfProbes, USED_MEMORY, as_server, constant, memory};
use crate::target::{FUNCTIONS, alone, own_sites};

/// How many bytes the first instruction of [`FUNCTIONS`] has.
const FIRST: u64 = if cfg!(target_arch = "aarch64") { 4 } else { 1 };

/// Places every probe of the eviction call on a function, after `change` has changed the configuration that the
/// programs see.
fn attached(change: impl Fn(&mut ServerConfig)) -> anyhow::Result<SelfProbes> {
    let probes = Probes::load(&LinkKeeper::in_thread()?, None)?;
    let [begin, ..] = own_sites()?;
    let mut config = as_server(std::process::id());
    change(&mut config);
    // The goal site is the second instruction; the return probe ends the calls.
    let goal = FileOffset::new(begin.get() + FIRST);
    let placed = [(Probe::Return, begin), (Probe::Enter, begin), (Probe::Inner, goal)];
    Ok(SelfProbes::of_evictions(&probes, config, &placed)?)
}

/// Calls a function with such probes `calls` times. Passes `before` the number of each call before making it. Also
/// returns how often the machine stood still for so long that another burst may have begun.
fn evictions(
    calls: u64,
    change: impl Fn(&mut ServerConfig),
    before: impl Fn(u64),
) -> anyhow::Result<(Counted, Vec<String>, u64)> {
    let _alone = alone();
    let attached = attached(change)?;
    let (mut last, mut pauses) = (Instant::now(), 0);
    for call in 0..calls {
        before(call);
        let before_last = std::mem::replace(&mut last, Instant::now());
        pauses += u64::from(last - before_last > Duration::from_nanos(QUIET_NS / 2));
        // SAFETY: it takes nothing, and changes no register that a call preserves.
        unsafe { FUNCTIONS[0]() };
    }
    let messages = attached.slot.probes.messages().into_iter().map(|message| {
        assert_eq!(message.pid, std::process::id());
        message.text
    });
    Ok((attached.counted(), messages.collect(), pauses))
}

fn kinds(seen: &Counted) -> (u64, u64) {
    let calls = &seen.calls[0];
    (calls.inner.counts.iter().sum(), calls.noop.counts.iter().sum())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_call_far_from_the_allocators_counter_is_not_counted() -> anyhow::Result<()> {
    let reported = USED_MEMORY + 2 * ALLOCATOR_SLACK;
    let far = |config: &mut ServerConfig| {
        for variable in [Variable::MemReported, Variable::MemUsed] {
            config.eviction.recipes[variable as usize].terms[0] = constant(reported);
        }
        let tofree = constant(OVER_LIMIT + 2 * ALLOCATOR_SLACK);
        config.eviction.recipes[Variable::MemTofree as usize].terms[0] = tofree;
    };
    let (seen, messages, _) = evictions(ALLOCATOR_STREAK - 1, far, |_| {})?;
    assert_eq!((kinds(&seen), messages.len()), ((0, 0), 0));
    assert_eq!(seen.evictions.allocator_far, ALLOCATOR_STREAK - 1);

    // The next one fails the check, which is reported once, with both values.
    let (seen, messages, _) = evictions(ALLOCATOR_STREAK + 5, far, |_| {})?;
    assert_eq!(kinds(&seen), (0, 0));
    assert_eq!(seen.evictions.check_failures[Check::Allocator as usize], 1);
    let [text] = &messages[..] else { panic!("{messages:?}") };
    for value in [reported, USED_MEMORY] {
        assert!(text.contains(&value.to_string()), "{value} in {text}");
    }
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn calls_are_compared_with_the_servers_memory_now_and_then() -> anyhow::Result<()> {
    let calls = 1000;
    let (seen, _, pauses) = evictions(calls, |_| {}, |_| {})?;
    // The call that begins the burst is compared, too.
    let one_by_one = 1 + CHECKED_FIRST;
    let compared = one_by_one + (calls - one_by_one) / CHECKED_ONE_IN;
    let [allocator, maxmemory, arithmetic] =
        [Check::Allocator, Check::Maxmemory, Check::Arithmetic].map(|check| seen.evictions.checks[check as usize]);
    let most = compared + pauses * one_by_one;
    assert!((compared..=most).contains(&allocator), "{allocator}, not {compared} to {most}");
    assert_eq!((maxmemory, arithmetic), (allocator, calls));
    assert_eq!(kinds(&seen), (calls, 0));
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn of_calls_that_become_wrong_few_are_counted() -> anyhow::Result<()> {
    static COUNTER: AtomicU64 = AtomicU64::new(USED_MEMORY);
    let counter_of_test = |config: &mut ServerConfig| {
        config.eviction.used_memory = AllocatorCounters::one(COUNTER.as_ptr() as u64);
    };
    // A call that is not compared comes first.
    let wrong_from = 1 + CHECKED_FIRST + CHECKED_ONE_IN;
    let become_wrong = |call| {
        if call == wrong_from {
            COUNTER.fetch_add(2 * ALLOCATOR_SLACK, Ordering::Relaxed);
        }
    };
    let (seen, messages, pauses) = evictions(wrong_from + 500, counter_of_test, become_wrong)?;
    let most = wrong_from + CHECKED_ONE_IN - 1;
    // The first call of another burst is compared.
    let least = if pauses == 0 { most } else { wrong_from };
    let (evicting, noop) = kinds(&seen);
    assert!((least..=most).contains(&evicting), "{evicting}");
    assert_eq!(noop, 0);
    // The first one compared has the next ones compared.
    assert_eq!(seen.evictions.allocator_far, ALLOCATOR_STREAK);
    assert_eq!(seen.evictions.check_failures[Check::Allocator as usize], 1);
    assert_eq!(messages.len(), 1);
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_copy_is_whole_while_calls_are_counted() -> anyhow::Result<()> {
    const CALLS: u64 = 20_000;
    let _alone = alone();
    let attached = attached(|_| {})?;
    let mut copies = BTreeSet::new();
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            for _ in 0..CALLS {
                // SAFETY: as above.
                unsafe { FUNCTIONS[0]() };
            }
        });
        let mut is_last = false;
        while !is_last {
            is_last = calling.is_finished();
            let seen = attached.counted();
            let [calls] = &seen.calls[..1] else { panic!("nothing is counted") };
            let (ended, noop) = kinds(&seen);
            let in_call = u64::from(calls.inner_since_ns != 0);
            assert_eq!((calls.hits[Probe::Inner as usize], noop), (ended + in_call, 0));
            assert_eq!(seen.evictions.evicting_results.iter().sum::<u64>(), ended);
            assert_eq!(seen.evictions.mem_tofree.counts.iter().sum::<u64>(), ended);
            copies.insert(ended);
        }
    });
    assert!(copies.len() > 10 && copies.last() == Some(&CALLS), "{copies:?}");
    Ok(())
}

/// The keys of the cycles, in the memory of this process.
static SAMPLED: u64 = 40;
static EXPIRED: u32 = 30;

/// Makes cycles as a server does, with their type and keys at these places. Returns what was counted and logged.
fn cycles(times: u64, [cycle_type, job]: [EncodedTerm; 2], keys: CycleKeys) -> anyhow::Result<(Counted, Vec<String>)> {
    let _alone = alone();
    let [start, end, _] = FUNCTIONS;
    let [start_at, end_at, _] = own_sites()?;
    let probes = Probes::load(&LinkKeeper::in_thread()?, None)?;
    let mut config =
        ServerConfig { tgid: std::process::id(), is_observed: [1; MAX_FUNCTIONS as usize], ..ServerConfig::OFF };
    config.expire.starts[0] = CycleStart { cycle_type, job, ..CycleStart::UNKNOWN };
    config.expire.ends[0] = keys;
    let placed = [(Probe::Exit, end_at), (Probe::Inner, start_at)];
    let attached = SelfProbes::attach(&probes, config, (EXPIRE, EXPIRE_CYCLE.description), &placed)?;
    for _ in 0..times {
        // SAFETY: they take nothing, and change no register that a call preserves.
        unsafe {
            start();
            end();
            // An end without a beginning is not counted.
            end();
        }
    }
    let messages = probes.messages().into_iter().map(|message| message.text);
    Ok((attached.counted(), messages.collect()))
}

const KEYS: fn() -> CycleKeys = || CycleKeys { sampled: memory(&SAMPLED), expired: memory(&EXPIRED) };

/// Returns the number of cycles of each type, and their keys.
fn by_type(stats: &ExpireStats) -> [(u64, u64, u64); CycleType::ALL.len()] {
    stats.cycles.map(|cycles| {
        let count = cycles.duration.counts.iter().sum();
        (count, cycles.sampled, cycles.expired)
    })
}

#[test]
#[ignore = "needs root and BPF"]
fn cycles_are_counted_by_type() -> anyhow::Result<()> {
    for (of_type, place) in [
        (CycleType::Slow, [constant(0), EncodedTerm::ABSENT]),
        (CycleType::Fast, [constant(1), EncodedTerm::ABSENT]),
        // The upper half of an `int` in a register is whatever was there.
        (CycleType::Fast, [constant(0x7_0000_0001), constant(0)]),
        (CycleType::Unknown, [EncodedTerm::ABSENT; 2]),
        (CycleType::SlowFields, [constant(0), constant(1)]),
        (CycleType::FastFields, [constant(1), constant(0x7_0000_0001)]),
    ] {
        let (seen, messages) = cycles(7, place, KEYS())?;
        let mut expected = [(0, 0, 0); CycleType::ALL.len()];
        expected[of_type as usize] = (7, 280, 210);
        assert_eq!(by_type(&seen.expires), expected, "{of_type:?}");
        let calls = &seen.calls[usize::from(EXPIRE)];
        assert_eq!(calls.hits, [0, 0, 7, 14]);
        assert_eq!((calls.lost_exits, calls.inner_since_ns), (0, 0));
        assert!(calls.last_inner_ns > 0);
        let durations = seen.expires.cycles[of_type as usize].duration.sum;
        assert!((1..7_000_000_000).contains(&durations), "{durations} ns");
        assert!(messages.is_empty(), "{messages:?}");
    }
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn keys_whose_place_is_not_known_are_not_counted() -> anyhow::Result<()> {
    let unreadable = EncodedTerm { displacement: 8, ..memory(&SAMPLED) };
    for (sampled, faults) in [(EncodedTerm::ABSENT, 0), (unreadable, 3)] {
        let (seen, _) = cycles(3, [constant(0), EncodedTerm::ABSENT], CycleKeys { sampled, ..KEYS() })?;
        assert_eq!(by_type(&seen.expires)[0], (3, 0, 90));
        assert_eq!(seen.faults, [faults, 0, 0, 0, 0]);
    }
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn the_first_cycle_that_fails_a_check_is_the_last() -> anyhow::Result<()> {
    for (of_type, job) in [(2, 0), (1, 2)] {
        let place = [constant(of_type), constant(job)];
        let (seen, messages) = cycles(5, place, KEYS())?;
        assert_eq!(by_type(&seen.expires), [(0, 0, 0); CycleType::ALL.len()]);
        assert_eq!(seen.expires.check_failures, [1, 0]);
        assert_eq!(CycleCheck::Type as usize, 0);
        assert_eq!(messages, [format!("the type of an expire cycle is {of_type}, and its job {job}, not 0 or 1")]);
    }

    let keys = CycleKeys { expired: constant(41), ..KEYS() };
    let (seen, messages) = cycles(5, [constant(1), EncodedTerm::ABSENT], keys)?;
    assert_eq!(by_type(&seen.expires), [(0, 0, 0); CycleType::ALL.len()]);
    assert_eq!(seen.expires.check_failures, [0, 1]);
    assert_eq!(messages, ["an expire cycle sampled 40 keys, of which 41 had expired"]);
    Ok(())
}
