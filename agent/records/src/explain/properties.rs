//! Tests what holds for all records: what is not known adds no cause, sizes and noise are none, and no numbers do harm.

use evictscope_telemetry::{ClientBuffers, MemoryPart, MemoryParts, Moment};
use proptest::prelude::*;

use super::tests::{change_burst, each, kinds};
use super::{CauseKind, explain};
use crate::Record;
use crate::fixture::{burst_record, noise};

fn scale(record: &mut Record, by: u64) {
    let size = |size: &mut Option<u64>| *size = size.map(|size| size * by);
    for moment in &mut record.moments {
        [&mut moment.used_memory, &mut moment.maxmemory, &mut moment.not_counted].into_iter().for_each(size);
        moment.client_buffers = moment.client_buffers.map(|buffers| ClientBuffers {
            normal: buffers.normal * by,
            replica: buffers.replica * by,
            pubsub: buffers.pubsub * by,
            primary: buffers.primary * by,
        });
    }
    if let Some(burst) = &mut record.burst {
        for part in [
            &mut burst.client_buffers_before,
            &mut burst.client_buffers_peak,
            &mut burst.memory_start,
            &mut burst.memory_peak,
            &mut burst.memory_end,
            &mut burst.memory_after,
        ] {
            size(part);
        }
    }
    size(&mut record.configuration.maxmemory);
}

/// Removes what the bits say: one bit for each value that may be unknown.
fn forget(record: &mut Record, bits: u32) {
    let is_forgotten = |bit: u32| bits >> bit & 1 == 1;
    macro_rules! forget {
        ($from:ident: $($bit:literal $field:ident),*) => { $(if is_forgotten($bit) { $from.$field = None; })* };
    }
    for moment in &mut record.moments {
        forget!(moment: 0 phase, 1 used_memory, 2 maxmemory, 3 not_counted, 4 client_buffers, 5 commands,
            6 evicted_keys, 7 expired_keys, 8 stale_ratio, 9 cpu, 10 waiting, 11 stalled);
    }
    if let Some(burst) = &mut record.burst {
        forget!(burst: 12 evicted_keys, 13 commands_per_second, 14 stalled, 15 stalled_by_evictions,
            16 clients_waiting_peak, 17 expired_share_before, 18 stale_ratio_before,
            19 client_buffers_before, 20 client_buffers_peak, 21 memory_start, 22 memory_peak, 23 memory_end,
            24 memory_after, 25 cpu_share, 26 waiting_share, 27 eviction_cpu_share);
    }
    if is_forgotten(28) {
        record.burst = None;
    }
    if is_forgotten(29) {
        record.configuration = Default::default();
    }
    if is_forgotten(30) {
        record.slowest.clear();
    }
    if is_forgotten(31) {
        record.moments.truncate(1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No cause is made up if values are missing: only what is known without them is named.
    #[test]
    fn what_is_not_known_adds_no_cause(which in prop::sample::select(each().to_vec()), bits: u32) {
        let (kind, mut record) = which;
        forget(&mut record, bits);
        let explanation = explain(&record);
        for cause in &explanation.causes {
            // Without the burst's own rates, the same writes may be estimated higher.
            prop_assert!(cause.kind == kind || cause.kind == CauseKind::Data, "{kind:?} {explanation:#?}");
        }
        prop_assert!(explanation.what.ends_with('.') && explanation.why.ends_with('.'));
        prop_assert!(explanation.help.ends_with('.'));
    }

    #[test]
    fn sizes_do_not_decide(which in prop::sample::select(each().to_vec()), power in 0..12_u32) {
        let (kind, mut record) = which;
        scale(&mut record, 1 << power);
        prop_assert_eq!(kinds(&record), [kind]);
    }

    #[test]
    fn noise_has_no_cause(seed: u64) {
        let mut record = burst_record();
        let mut next = noise(seed);
        for moment in &mut record.moments {
            moment.used_memory = Some((280 << 20) + next() % (60 << 20));
            moment.not_counted = Some(next() % (40 << 20));
            moment.stale_ratio = Some(next() as f64 % 1000.0 / 1000.0);
            moment.client_buffers = Some(ClientBuffers {
                normal: next() % (40 << 20),
                replica: next() % (40 << 20),
                pubsub: next() % (10 << 20),
                primary: 0,
            });
        }
        for call in &mut record.slowest {
            call.duration_ns = next() % 50_000_000;
        }
        prop_assert_eq!(kinds(&record), []);
    }

    /// A foreign file may hold anything.
    #[test]
    fn hostile_numbers_are_survived(seed: u64, bits: u32) {
        let mut record = burst_record();
        let mut next = noise(seed);
        let mut any = || match next() % 4 {
            0 => 0,
            1 => u64::MAX,
            2 => next() << 40,
            _ => next(),
        };
        let time = std::time::Duration::from_micros;
        let parts = |used, some| {
            let mut parts = MemoryParts::new(used, [(MemoryPart::Scripts, Some(some))]);
            (parts.tracked_keys, parts.tracked_items) = (Some(some), Some(used));
            parts
        };
        for moment in &mut record.moments {
            *moment = Moment {
                at: time(any()),
                used_memory: Some(any()),
                maxmemory: Some(any()),
                memory: Some(parts(any(), any())),
                not_counted: Some(any()),
                client_buffers: Some(ClientBuffers { normal: any(), replica: any(), pubsub: any(), primary: any() }),
                evicted_keys: Some(any()),
                stale_ratio: Some(f64::from_bits(any())),
                expired_held: Some(f64::from_bits(any())),
                evicting_calls: any(),
                evicting: time(any()),
                observed: time(any()),
                expiring: Some(time(any())),
                cpu: Some(time(any())),
                stalled: Some(time(any())),
                ..*moment
            };
        }
        for call in &mut record.slowest {
            (call.unix_us, call.duration_ns) = (any(), any());
        }
        record.began_us = any();
        record.ended_us = any();
        change_burst(&mut record, |burst| burst.started = std::time::Duration::MAX);
        forget(&mut record, bits);
        let _ = explain(&record);
    }
}
