//! Tests the programs on the expire cycle in the kernel, on this process's own functions: what they count of
//! cycles whose type and keys are known.

use evictscope_abi::{
    CycleCheck, CycleKeys, CycleStart, CycleType, EXPIRE, EncodedTerm, ExpireStats, MAX_FUNCTIONS, Probe, ServerConfig,
    TermKind,
};
use evictscope_plan::{EXPIRE_CYCLE, FunctionKind};
use evictscope_telemetry::Counted;

use super::attach::Probes;
use super::keeper::LinkKeeper;
use super::own::{FUNCTIONS, alone, own_sites};
use super::self_probes::SelfProbes;

/// The keys of the cycles, in the memory of this process.
static SAMPLED: u64 = 40;
static EXPIRED: u32 = 30;

fn constant(value: i64) -> EncodedTerm {
    EncodedTerm { kind: TermKind::Constant as u8, displacement: value, ..EncodedTerm::ABSENT }
}

fn memory<T>(of: &'static T) -> EncodedTerm {
    EncodedTerm {
        kind: TermKind::Absolute as u8,
        width: size_of::<T>() as u8,
        displacement: (&raw const *of as u64).cast_signed(),
        ..EncodedTerm::ABSENT
    }
}

/// Makes cycles as a server does, with their type and keys at these places. Returns what was counted and logged.
fn counted(
    cycles: u64,
    [cycle_type, job]: [EncodedTerm; 2],
    keys: CycleKeys,
) -> anyhow::Result<(Counted, Vec<String>)> {
    let _alone = alone();
    let [start, end, _] = FUNCTIONS;
    let [start_at, end_at, _] = own_sites()?;
    let probes = Probes::load(&LinkKeeper::in_thread()?, None)?;
    let mut config =
        ServerConfig { tgid: std::process::id(), is_observed: [1; MAX_FUNCTIONS as usize], ..ServerConfig::OFF };
    config.expire.starts[0] = CycleStart { cycle_type, job };
    config.expire.ends[0] = keys;
    let function = FunctionKind { index: usize::from(EXPIRE), description: EXPIRE_CYCLE.description };
    let placed = [(Probe::Exit, end_at), (Probe::Inner, start_at)];
    let own = SelfProbes::attach_function(&probes, config, function, &placed)?;
    for _ in 0..cycles {
        // SAFETY: they take nothing, and only touch rbx, which they restore.
        unsafe {
            start();
            end();
            // An end without a beginning is not counted.
            end();
        }
    }
    let messages = probes.messages().into_iter().map(|message| message.text);
    Ok((own.counted(), messages.collect()))
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
        let (seen, messages) = counted(7, place, KEYS())?;
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
    let keys = CycleKeys { sampled: EncodedTerm::ABSENT, ..KEYS() };
    let (seen, _) = counted(3, [constant(0), EncodedTerm::ABSENT], keys)?;
    assert_eq!(by_type(&seen.expires)[0], (3, 0, 90));
    assert_eq!(seen.faults, [0; 5]);
    // A place that cannot be read.
    let keys = CycleKeys { sampled: EncodedTerm { displacement: 8, ..memory(&SAMPLED) }, ..KEYS() };
    let (seen, _) = counted(3, [constant(0), EncodedTerm::ABSENT], keys)?;
    assert_eq!(by_type(&seen.expires)[0], (3, 0, 90));
    assert_eq!(seen.faults, [3, 0, 0, 0, 0]);
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn the_first_cycle_that_fails_a_check_is_the_last() -> anyhow::Result<()> {
    for (of_type, job) in [(2, 0), (1, 2)] {
        let place = [constant(of_type), constant(job)];
        let (seen, messages) = counted(5, place, KEYS())?;
        assert_eq!(by_type(&seen.expires), [(0, 0, 0); CycleType::ALL.len()]);
        assert_eq!(seen.expires.check_failures, [1, 0]);
        assert_eq!(CycleCheck::Type as usize, 0);
        let said = format!("the type of an expire cycle is {of_type}, and its job {job}, not 0 or 1");
        assert_eq!(messages, [said]);
    }

    let keys = CycleKeys { expired: constant(41), ..KEYS() };
    let (seen, messages) = counted(5, [constant(1), EncodedTerm::ABSENT], keys)?;
    assert_eq!(by_type(&seen.expires), [(0, 0, 0); CycleType::ALL.len()]);
    assert_eq!(seen.expires.check_failures, [0, 1]);
    let expected = ["an expire cycle sampled 40 keys, of which 41 had expired"];
    assert_eq!(messages, expected);
    Ok(())
}
