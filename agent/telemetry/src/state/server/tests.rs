use std::time::Duration;

use evictscope_model::Member;

use super::{CLIENT_BUFFERS_INTERVAL, ServerState};
use crate::{Members, Observed, Snapshot, ThreadTimes};

/// Returns a reading of client buffers.
fn clients(at: Duration, total: u64) -> Snapshot {
    let mut members = Members::default();
    members.set(Member::StatClientsTypeMemory, &[total - 3, 1, 1, 1]);
    Snapshot { at, members: Some(members), ..Snapshot::default() }
}

#[test]
fn what_was_not_read_is_not_known() {
    let mut state = ServerState::new();
    state.apply(&Snapshot::default());
    assert!(state.members.is_none());
    assert!(state.client_buffers().is_none());
    assert_eq!(state.client_buffers_peak(), None);
    assert!(!state.main_thread.is_known());

    let members = Members::from_iter([(Member::StatEvictedkeys, 7)]);
    let read = Snapshot { members: Some(members), ..Snapshot::default() };
    state.apply(&read);
    assert_eq!(state.members, Some(members));
    assert_eq!(state.client_buffers_peak(), None);

    // A value that can no longer be read does not stay the last one.
    state.apply(&Snapshot::default());
    assert_eq!(state.members, None);
}

#[test]
fn what_the_probes_take_of_a_servers_work_is_not_observed_time() {
    let observed = |seconds| Observed { evicting: Duration::from_secs(seconds), noop: Duration::ZERO };
    let after_two_seconds = |cpu_ns| {
        let mut state = ServerState::new();
        for second in 0..3 {
            let times = ThreadTimes { cpu_ns: second * cpu_ns, waiting_ns: 0 };
            state.apply(&Snapshot {
                at: Duration::from_secs(second),
                times: Some(times),
                observed: observed(second),
                spent_ns: 100e6,
                ..Snapshot::default()
            });
        }
        state.observed.evicting.as_secs_f64()
    };
    assert_eq!(after_two_seconds(1_000_000_000), 1.8);
    assert_eq!(after_two_seconds(0), 2.0, "it had time to spare");
}

#[test]
fn client_buffers_are_sampled_ten_times_a_second() {
    let mut state = ServerState::new();
    let begin = Duration::from_secs(1);
    let mut samples_after = |at, total| {
        state.apply(&clients(at, total));
        state.client_buffers().map(|totals| totals.count())
    };
    assert_eq!(samples_after(begin, 1_000), Some(1));
    let too_soon = begin + CLIENT_BUFFERS_INTERVAL - Duration::from_nanos(1);
    assert_eq!(samples_after(too_soon, 8_000), Some(1));
    let soon_enough = begin + CLIENT_BUFFERS_INTERVAL;
    assert_eq!(samples_after(soon_enough, 4_000), Some(2));
    let sum = state.client_buffers().map(|totals| totals.sum());
    assert_eq!(sum, Some(5_000));
    // Not an entry of the histogram, but the highest value all the same.
    assert_eq!(state.client_buffers_peak(), Some(8_000));
}

#[test]
fn a_call_under_way_counts_as_time_in_evicting_calls() {
    let mut state = ServerState::new();
    let mut snapshot = Snapshot { at: Duration::from_nanos(10_000), ..Snapshot::default() };
    snapshot.counted.calls[0].inner.record(3, 2_000);
    snapshot.counted.calls[0].inner_since_ns = 7_000;
    state.apply(&snapshot);
    assert_eq!(state.evicting_ns(), 5_000);
    // It ended.
    snapshot.at = Duration::from_nanos(20_000);
    snapshot.counted.calls[0].inner.record(3, 4_000);
    snapshot.counted.calls[0].inner_since_ns = 0;
    state.apply(&snapshot);
    assert_eq!(state.evicting_ns(), 6_000);
}
