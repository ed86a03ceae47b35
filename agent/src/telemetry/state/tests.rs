use evictscope_abi::{
    Activity, CLIENT_BUFFERS_INTERVAL_NS, Check, Fault, Member, MemberValues, Probe, ResultKind,
    bounds,
};
use proptest::prelude::*;

use super::ServerState;
use crate::telemetry::fixture::empty_snapshot;

/// Returns a reading of the four types of client buffers, each a quarter of `total`.
fn clients(read_ns: u64, total: u64) -> MemberValues {
    MemberValues {
        read_ns,
        known: 0b1111_0000,
        values: [0, 0, 0, 0, total / 4, total / 4, total / 4, total / 4],
        ..MemberValues::default()
    }
}

#[test]
fn what_was_not_read_is_not_known() {
    let mut state = ServerState::new();
    state.apply(&empty_snapshot());
    assert!(state.members.is_none());
    assert!(state.client_buffers().is_none());
    assert_eq!(state.client_buffers_peak(), None);
    assert_eq!(state.cpu_ns(Activity::Other), None);

    let mut snapshot = empty_snapshot();
    snapshot.samples.members = MemberValues {
        read_ns: 1,
        known: 1 << Member::EvictedKeys as usize | 1 << Member::ClientsNormal as usize,
        values: [7; 8],
        ..MemberValues::default()
    };
    state.apply(&snapshot);
    let Some(members) = state.members else {
        panic!("read once");
    };
    assert_eq!(members.get(Member::EvictedKeys), Some(7));
    assert_eq!(members.get(Member::Maxmemory), None);
    assert_eq!(members.client_buffers(), None);
    assert_eq!(members.used_memory(), None);
}

#[test]
fn counters_of_every_kind_are_taken_in() {
    let mut snapshot = empty_snapshot();
    snapshot.calls[0].inner.record(3, 9_000);
    snapshot.calls[0].hits[Probe::Inner as usize] = 3;
    let evictions = &mut snapshot.evictions;
    evictions.evicting_results[ResultKind::Running as usize] = 1;
    evictions.noop_results[ResultKind::Ok as usize] = 2;
    evictions.overhead.record(0, 0);
    evictions.checks[Check::Allocator as usize] = 5;
    evictions.check_failures[Check::Allocator as usize] = 1;
    snapshot.faults[Fault::Recipe as usize] = 10;
    snapshot.samples.hits = 7;
    snapshot.samples.cpu_ns = [8, 9];

    let mut state = ServerState::new();
    // Once more with the same counters: nothing happened in between.
    for _ in 0..2 {
        state.apply(&snapshot);
        assert_eq!(state.eviction().inner.count(), 1);
        assert_eq!(state.eviction().inner.sum(), 9_000);
        assert_eq!(
            state.evicting_results[ResultKind::Running as usize].count(),
            1
        );
        assert_eq!(state.noop_results[ResultKind::Ok as usize].count(), 2);
        assert_eq!(state.overhead.count(), 1);
        assert_eq!(state.eviction().hits[Probe::Inner as usize].count(), 3);
        assert_eq!(state.faults[Fault::Recipe as usize].count(), 10);
        assert_eq!(state.checks[Check::Allocator as usize].count(), 5);
        assert_eq!(state.check_failures[Check::Allocator as usize].count(), 1);
        assert_eq!(state.sample_hits.count(), 7);
        assert_eq!(state.cpu_ns(Activity::Eviction), Some(8));
        assert_eq!(state.cpu_ns(Activity::Other), Some(9));
    }
}

#[test]
fn the_sum_of_mem_reported_outgrows_64_bits() {
    let mut state = ServerState::new();
    let mut snapshot = empty_snapshot();
    for _ in 0..6 {
        snapshot.evictions.mem_reported.record(0, 1 << 62);
        state.apply(&snapshot);
    }
    assert_eq!(state.mem_reported.sum(), 6 << 62);
}

#[test]
fn the_newer_reading_of_the_members_counts() {
    let mut state = ServerState::new();
    let mut snapshot = empty_snapshot();
    snapshot.samples.members = clients(20, 400);
    snapshot.idle_members = Some(clients(30, 800));
    state.apply(&snapshot);
    let total = |state: &ServerState| {
        let buffers = state.members?.client_buffers()?;
        Some(buffers.total())
    };
    assert_eq!(total(&state), Some(800));

    // The idle reading is gone from the snapshot, but nothing newer has come.
    snapshot.idle_members = None;
    state.apply(&snapshot);
    assert_eq!(total(&state), Some(800));

    snapshot.samples.members = clients(40, 1_200);
    state.apply(&snapshot);
    assert_eq!(total(&state), Some(1_200));
}

#[test]
fn an_idle_reading_is_a_sample_of_the_client_buffers() {
    let mut state = ServerState::new();
    let mut snapshot = empty_snapshot();
    // The kernel made an entry at 1 s.
    snapshot.samples.client_buffers.record(0, 1_000);
    snapshot.samples.client_buffers_ns = 1_000_000_000;
    snapshot.samples.client_buffers_peak = 1_000;
    let samples_after = |state: &mut ServerState, idle| {
        let mut snapshot = snapshot.clone();
        snapshot.idle_members = Some(idle);
        state.apply(&snapshot);
        state.client_buffers().map(|totals| totals.count())
    };
    let interval = CLIENT_BUFFERS_INTERVAL_NS;
    let too_soon = clients(1_000_000_000 + interval - 1, 8_000);
    assert_eq!(samples_after(&mut state, too_soon), Some(1));
    // Not an entry of the histogram, but the highest value all the same.
    assert_eq!(state.client_buffers_peak(), Some(8_000));

    let soon_enough = clients(1_000_000_000 + interval, 4_000);
    assert_eq!(samples_after(&mut state, soon_enough), Some(2));
    let again = samples_after(&mut state, soon_enough);
    assert_eq!(again, Some(2), "the same reading again");
    let sum = state.client_buffers().map(|totals| totals.sum());
    assert_eq!(sum, Some(5_000));
}

proptest! {
    #[test]
    fn histogram_and_results_of_the_same_calls_agree(
        durations in prop::collection::vec((0..10_000_000_u64, 0..4_usize), 0..200),
        read_every in 1..20_usize,
    ) {
        let mut state = ServerState::new();
        let mut snapshot = empty_snapshot();
        for (index, (duration, result)) in durations.iter().enumerate() {
            let calls = &mut snapshot.calls[0].inner;
            let results = &mut snapshot.evictions.evicting_results;
            calls.record(bounds::DURATION_NS.bucket(*duration), *duration);
            results[*result] += 1;
            if index % read_every == 0 {
                state.apply(&snapshot);
            }
        }
        state.apply(&snapshot);
        let results: u64 = state.evicting_results.iter().map(|result| result.count()).sum();
        prop_assert_eq!(results, durations.len() as u64);
        prop_assert_eq!(state.eviction().inner.count(), results);
        let sum: u128 = durations.iter().map(|(duration, _)| u128::from(*duration)).sum();
        prop_assert_eq!(state.eviction().inner.sum(), sum);
    }
}
