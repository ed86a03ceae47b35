use std::time::Duration;

use super::{BIN_NS, KEPT, TimeBin, Timeline};
use crate::{EvictionTimes, Moment, Observation, ServerState, Snapshot};

const UNIX: Duration = Duration::from_secs(1_700_000_000);

fn bin(index: u64) -> Duration {
    Duration::from_nanos(index * BIN_NS)
}

/// Returns an observation of a server that is observed all the time.
fn seen(at: Duration) -> Observation {
    Observation { at, observed: at, cpu_eviction_ns: Some(0), cpu_other_ns: Some(0), ..Observation::default() }
}

fn take_in(timeline: &mut Timeline, seen: &Observation, evicting_ns: u64) {
    let moment = Moment::new(&Snapshot::default(), &ServerState::new(), None, true);
    timeline.take_in(seen, evicting_ns, moment);
}

#[test]
fn kept_moments_have_bins() {
    let moment = |bin: u64, evicting_us, cpu_us| Moment {
        unix_us: bin * BIN_NS / 1_000,
        observed_us: bin * BIN_NS / 1_000,
        evicting_us,
        cpu_us: Some(cpu_us),
        ..Moment::new(&Snapshot::default(), &ServerState::new(), None, true)
    };
    // The third one comes from a clock that was set back.
    let kept = [moment(100, 0, 0), moment(101, 5_000, 7_000), moment(99, 0, 0), moment(103, 5_000, 17_000)];
    let bins: Vec<_> = Timeline::of(&kept).bins().collect();
    let bin = |evicting, cpu_other| Some(TimeBin { evicting, cpu_eviction: 0, cpu_other });
    let half = bin(0, 5_000_000);
    assert_eq!(bins, [bin(5_000_000, 2_000_000), half, half]);
    assert_eq!(Timeline::of(&[]).bins().count(), 0);
}

#[test]
fn each_bin_has_what_happened_in_it() {
    let mut timeline = Timeline::new(bin(100));
    take_in(&mut timeline, &seen(bin(100)), 0);
    // A burst begins in the middle of the second bin.
    let burst = EvictionTimes {
        burst_began: bin(101) + Duration::from_nanos(BIN_NS / 2),
        since: bin(102),
        ..EvictionTimes::default()
    };
    let evicting =
        Observation { evictions: burst, cpu_eviction_ns: Some(BIN_NS), cpu_other_ns: Some(300), ..seen(bin(103)) };
    take_in(&mut timeline, &evicting, BIN_NS * 3 / 2);
    let full = BIN_NS as u32;
    let expected = [(0, 0, 100), (full / 2, full / 3, 100), (full, full - full / 3, 100)];
    let parts = |bin: TimeBin| (bin.evicting, bin.cpu_eviction, bin.cpu_other);
    let found: Vec<_> = timeline.bins().map(|bin| bin.map(parts)).collect();
    assert_eq!(found, expected.map(Some));
    assert_eq!(timeline.start(), bin(100));
}

#[test]
fn what_was_not_observed_is_not_known() {
    let mut timeline = Timeline::new(bin(0));
    take_in(&mut timeline, &seen(bin(0)), 0);
    take_in(&mut timeline, &seen(bin(5)), 0);
    let without_probes = Observation { observed: bin(5), ..seen(bin(10)) };
    take_in(&mut timeline, &without_probes, 0);
    let after = Observation { observed: bin(10), ..seen(bin(15)) };
    take_in(&mut timeline, &after, 0);
    // Nor is what happened between two observations that are far apart.
    take_in(&mut timeline, &seen(bin(120)), 0);
    let unknown: Vec<_> = timeline.bins().map(|bin| bin.is_none()).collect();
    let expected: Vec<_> = (0..120).map(|bin| (5..=10).contains(&bin) || bin >= 15).collect();
    assert_eq!(unknown, expected);
}

#[test]
fn it_stays_bounded() {
    let mut timeline = Timeline::new(bin(0));
    for tenth in 0..14_000_u64 {
        take_in(&mut timeline, &seen(Duration::from_millis(50 * tenth)), 0);
    }
    assert_eq!(timeline.bins().count(), KEPT);
    let last = Duration::from_millis(50 * 13_999);
    assert_eq!(timeline.start(), bin(last.as_nanos() as u64 / BIN_NS - KEPT as u64));
    assert!(timeline.samples(UNIX).count() <= 6_140);
    assert!(timeline.moments(Duration::ZERO, Duration::MAX, UNIX).len() <= 8_000);
    take_in(&mut timeline, &seen(Duration::MAX), 0);
    assert_eq!(timeline.bins().count(), KEPT);
}
