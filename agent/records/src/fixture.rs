//! Made-up records for tests.

use evictscope_telemetry::{
    Burst, CallResult, ClientBuffers, LatencySecond, Moment, Phase, SlowCall, StallCause,
};

use crate::profile::{Activity, Profile, Stack};
use crate::{Configuration, Occasion, Record, RecordId, RecordedServer};

const MIB: u64 = 1 << 20;
/// When the made-up burst begins, since 1970, seconds.
const BEGAN: u64 = 1_700_000_000;

/// Returns a record of a burst of 7 s and a reclaim of 5 s, in which client buffers of 30 MiB more took the memory of a
/// cache of 325 MiB.
pub fn burst_record() -> Record {
    let began_us = BEGAN * 1_000_000;
    let ended_us = began_us + 12_000_000;
    let mut moments = Vec::new();
    let (mut commands, mut evicted, mut evicting_us, mut cpu_us) = (1e6, 0.0, 0.0, 0.0);
    let mut calls = 0.0;
    let mut at = -60.0_f64;
    while at < 42.0 {
        let (phase, step) = match at {
            at if at < 0.0 => (Phase::NotSaturated, 0.1),
            at if at < 7.0 => (Phase::Saturated, 0.02),
            at if at < 12.0 => (Phase::Reclaim, 0.02),
            _ => (Phase::NotSaturated, 0.1),
        };
        let is_evicting = phase == Phase::Saturated;
        let swollen = match phase {
            Phase::Saturated => at.min(3.0) / 3.0,
            Phase::Reclaim => (12.0 - at) / 5.0,
            Phase::NotSaturated => 0.0,
        };
        let data = 290.0 + 0.5 * at.min(0.0) / 60.0 - 25.0 * (at / 7.0).clamp(0.0, 1.0);
        commands += step * if is_evicting { 8_000.0 } else { 30_000.0 };
        evicted += if is_evicting { step * 40_000.0 } else { 0.0 };
        evicting_us += if is_evicting { step * 0.8e6 } else { 0.0 };
        calls += if is_evicting { step * 1_500.0 } else { 0.0 };
        cpu_us += step * 1e6 * if is_evicting { 1.0 } else { 0.6 };
        moments.push(Moment {
            unix_us: began_us.saturating_add_signed((at * 1e6) as i64),
            phase: Some(phase),
            used_memory: Some(((data + 35.0 + 30.0 * swollen) * MIB as f64) as u64),
            maxmemory: Some(325 * MIB),
            not_counted: Some(0),
            client_buffers: Some(ClientBuffers {
                normal: ((20.0 + 30.0 * swollen) * MIB as f64) as u64,
                replica: 0,
                pubsub: 0,
                primary: 0,
            }),
            commands: Some(commands as u64),
            evicted_keys: Some(evicted as u64),
            expired_keys: Some(0),
            stale_ratio: Some(0.01),
            evicting_calls: calls as u64,
            evicting_us: evicting_us as u64,
            observed_us: ((at + 60.0) * 1e6) as u64,
            expiring_us: Some(0),
            cpu_us: Some(cpu_us as u64),
            waiting_us: Some(0),
            clients_waiting: Some(if is_evicting { 2_000 } else { 1 }),
            longest_wait_us: Some(if is_evicting { 400_000 } else { 300 }),
            stalled_us: Some(evicting_us as u64),
            stalled_by: is_evicting.then_some(StallCause::Eviction),
        });
        at += step;
    }
    let slow = |index: u64| SlowCall {
        unix_us: began_us + index * 100_000,
        duration_ns: 900_000 - index * 5_000,
        goal: Some(2 * MIB),
        result: CallResult::Running,
    };
    let second = |second: u64| LatencySecond {
        unix_s: BEGAN + second,
        counts: vec![(20, 1_000), (21, 500)],
    };
    Record {
        format: Record::FORMAT,
        id: id("20231114T221320.000Z-6379-101"),
        agent: "0.1.0".to_owned(),
        occasion: Occasion::Burst,
        server: RecordedServer {
            label: "6379".to_owned(),
            pid: 101,
            command: "redis-server".to_owned(),
            exe: "/usr/bin/redis-check-rdb".to_owned(),
            product: Some("redis".to_owned()),
            version: Some("7.0.15".to_owned()),
            build_id: Some("c0ffee".to_owned()),
        },
        began_us,
        ended_us,
        burst: Some(burst()),
        configuration: Configuration {
            maxmemory: Some(325 * MIB),
            maxmemory_policy: Some("allkeys-lru".to_owned()),
            hz: Some(10),
            active_expire_effort: Some(1),
        },
        moments,
        slowest: (0..50).map(slow).collect(),
        latencies: (0..7).map(second).collect(),
        profile: Ok(profile()),
        not_found: Vec::new(),
        overhead_ratio: Some(0.004),
        overhead_budget_ratio: 0.01,
    }
}

/// Returns a name of a record.
fn id(text: &str) -> RecordId {
    match RecordId::try_from(text.to_owned()) {
        Ok(id) => id,
        Err(error) => unreachable!("{error}"),
    }
}

fn burst() -> Burst {
    use std::time::Duration;
    Burst {
        started: Duration::from_secs(BEGAN),
        duration: Duration::from_secs(7),
        reclaim: Duration::from_secs(5),
        evicting_calls: 10_500,
        observed: Duration::from_secs(7),
        evicted_keys: Some(280_000),
        commands_per_second: Some(8_000.0),
        stalled: Some(Duration::from_millis(5_600)),
        stalled_by_evictions: Some(Duration::from_millis(5_600)),
        clients_waiting_before: Some(1),
        clients_waiting_peak: Some(2_000),
        expired_share_before: Some(0.01),
        stale_ratio_before: Some(0.01),
        client_buffers_before: Some(20 * MIB),
        client_buffers_peak: Some(50 * MIB),
        memory_start: Some(325 * MIB),
        memory_peak: Some(330 * MIB),
        memory_end: Some(325 * MIB),
        memory_after: Some(300 * MIB),
        cpu_share: Some(1.0),
        waiting_share: Some(0.0),
        eviction_cpu_share: Some(0.8),
    }
}

fn profile() -> Profile {
    let functions = ["main", "aeMain", "readQueryFromClient", "processCommand"];
    let more = ["performEvictions", "dbGenericDelete", "mgetCommand"];
    let stack = |frames: &[u32], activity, samples| Stack {
        frames: frames.to_vec(),
        activity,
        is_whole: true,
        samples,
    };
    Profile {
        began_us: BEGAN * 1_000_000,
        length_us: 12_000_000,
        hz: 49,
        functions: functions
            .into_iter()
            .chain(more)
            .map(str::to_owned)
            .collect(),
        stacks: vec![
            stack(&[0, 1, 2, 3, 4, 5], Activity::EvictionCall, 270),
            stack(&[0, 1, 2, 3, 6], Activity::Other, 180),
        ],
        lost: 0,
        spent_ns: 5_000_000,
    }
}
