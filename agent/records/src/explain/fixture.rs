//! Made-up records, each with one cause, for tests.

use std::time::Duration;

use evictscope_telemetry::{Burst, CallResult, Moment, Phase, SlowCall};

use crate::fixture::burst_record;
use crate::{Occasion, Record};

const MIB: u64 = 1 << 20;

/// Returns the record of a burst in which client buffers did not grow, so that it has no cause yet: it evicts 280,000 keys
/// for 7 s without falling.
pub fn without_cause() -> Record {
    let mut record = burst_record();
    for moment in &mut record.moments {
        moment.used_memory = Some(325 * MIB);
        if let Some(buffers) = &mut moment.client_buffers {
            buffers.normal = 20 * MIB;
        }
    }
    change_burst(&mut record, |burst| {
        burst.client_buffers_peak = burst.client_buffers_before;
        burst.memory_start = Some(325 * MIB);
        burst.memory_peak = Some(325 * MIB);
        burst.memory_end = Some(325 * MIB);
        burst.memory_after = Some(325 * MIB);
        burst.evicted_keys = Some(20_000);
    });
    // It is no plain one.
    record.occasion = Occasion::Stall;
    record
}

/// Changes the burst of a record.
pub fn change_burst(record: &mut Record, change: impl Fn(&mut Burst)) {
    if let Some(burst) = &mut record.burst {
        change(burst);
    }
}

/// Changes each moment, by its seconds since the beginning.
pub fn change_moments(record: &mut Record, change: impl Fn(f64, &mut Moment)) {
    let began = record.began_us as f64;
    for moment in &mut record.moments {
        change((moment.unix_us as f64 - began) / 1e6, moment);
    }
}

fn add_memory(moment: &mut Moment, mebibytes: f64) {
    let used = moment
        .used_memory
        .map(|used| used as f64 + mebibytes * MIB as f64);
    moment.used_memory = used.map(|used| used as u64);
}

/// Returns the record of a server that is empty at first: its data grows by 20 MiB a second to the limit, and on.
pub fn data() -> Record {
    let mut record = without_cause();
    change_moments(&mut record, |at, moment| {
        add_memory(moment, 20.0 * at.clamp(-10.0, 0.0));
    });
    change_burst(&mut record, |burst| burst.evicted_keys = Some(1_000_000));
    record
}

/// Returns the record of one call of 1.2 s that evicts a key of 150 MiB.
pub fn big_key() -> Record {
    let mut record = without_cause();
    let began = record.began_us;
    let share = |at: f64| (at / 1.2).clamp(0.0, 1.0);
    change_moments(&mut record, |at, moment| {
        add_memory(moment, -150.0 * share(at));
        let evicting = 60.0 * 1e6 * 0.0 + 1.2e6 * share(at);
        moment.evicting_us = evicting as u64;
        moment.stalled_us = Some(evicting as u64);
        moment.evicted_keys = Some(u64::from(at >= 1.2));
        moment.evicting_calls = u64::from(at >= 1.2);
        if at > 1.3 {
            moment.phase = Some(Phase::NotSaturated);
        }
    });
    change_burst(&mut record, |burst| {
        burst.duration = Duration::from_millis(1_200);
        burst.reclaim = Duration::ZERO;
        burst.evicted_keys = Some(1);
        burst.evicting_calls = 1;
        burst.memory_end = Some(175 * MIB);
        burst.memory_after = Some(175 * MIB);
    });
    record.ended_us = began + 1_200_000;
    record.slowest = vec![SlowCall {
        unix_us: began + 1_200_000,
        duration_ns: 1_200_000_000,
        goal: Some(1_000),
        result: CallResult::Ok,
    }];
    record.latencies.clear();
    record
}

/// Returns the record of a table of 64 MiB that takes the place of one of 32 MiB, which is freed 15 s after.
pub fn resized_table() -> Record {
    let mut record = without_cause();
    change_moments(&mut record, |at, moment| {
        // Evictions make room at 16 MiB a second.
        let evicted = 8.0 * at.clamp(0.0, 7.0);
        let step = if at >= -0.15 { 64.0 } else { 0.0 };
        let freed = if at >= 15.0 { 32.0 } else { 0.0 };
        add_memory(moment, step - 56.0 - freed + 56.0 - evicted);
    });
    change_burst(&mut record, |burst| {
        burst.memory_start = Some(389 * MIB);
        burst.memory_peak = Some(389 * MIB);
        burst.memory_end = Some(333 * MIB);
        burst.memory_after = Some(333 * MIB);
    });
    record
}

/// Returns the record of replicas that are behind, by 90 MiB that do not count.
pub fn replication() -> Record {
    let mut record = without_cause();
    change_moments(&mut record, |at, moment| {
        let behind = 90.0 * (at / 7.0).clamp(0.0, 1.0) * if at > 10.0 { 0.0 } else { 1.0 };
        add_memory(moment, behind);
        moment.not_counted = Some((behind * MIB as f64) as u64);
        if let Some(buffers) = &mut moment.client_buffers {
            buffers.replica = (behind * MIB as f64) as u64;
        }
    });
    change_burst(&mut record, |burst| {
        burst.client_buffers_peak = Some(110 * MIB);
        burst.memory_peak = Some(415 * MIB);
        burst.memory_end = Some(415 * MIB);
        burst.memory_after = Some(325 * MIB);
    });
    record
}

/// Returns the record of a server on which 60 % of the keys had expired and were held.
pub fn expiry_behind() -> Record {
    let mut record = without_cause();
    change_moments(&mut record, |at, moment| {
        moment.stale_ratio = Some(0.6 + 0.2 * at.min(0.0) / 60.0);
        moment.expiring_us = Some((0.2e6 * (at + 60.0)).max(0.0) as u64);
    });
    change_burst(&mut record, |burst| {
        burst.expired_share_before = Some(0.58);
        burst.stale_ratio_before = Some(0.6);
    });
    record
}

/// Returns the record of a server that may not evict, and has to.
pub fn nothing_to_evict() -> Record {
    let mut record = without_cause();
    record.configuration.maxmemory_policy = Some("noeviction".to_owned());
    change_moments(&mut record, |_, moment| moment.evicted_keys = Some(0));
    change_burst(&mut record, |burst| burst.evicted_keys = Some(0));
    for call in &mut record.slowest {
        call.result = CallResult::Fail;
    }
    record
}

/// Returns the record of a limit that was lowered by 100 MiB.
pub fn lowered_limit() -> Record {
    let mut record = without_cause();
    change_moments(&mut record, |at, moment| {
        moment.maxmemory = Some(if at < -0.05 { 425 } else { 325 } * MIB);
        add_memory(moment, 75.0 * (1.0 - at / 7.0).clamp(0.0, 1.0));
    });
    change_burst(&mut record, |burst| {
        burst.memory_start = Some(400 * MIB);
        burst.memory_peak = Some(400 * MIB);
    });
    record
}

/// Returns a record that somebody asked for while all was well.
pub fn calm() -> Record {
    let mut record = burst_record();
    record.occasion = Occasion::Asked;
    record.burst = None;
    record.ended_us = record.began_us;
    change_moments(&mut record, |at, moment| {
        moment.phase = Some(Phase::NotSaturated);
        moment.used_memory = Some(200 * MIB + (at + 60.0) as u64 * 1000);
        moment.evicted_keys = Some(0);
        moment.evicting_calls = 0;
        moment.evicting_us = 0;
        moment.stalled_us = Some(0);
    });
    record.slowest.clear();
    record.latencies.clear();
    record
}
