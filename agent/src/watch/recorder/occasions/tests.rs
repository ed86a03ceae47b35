use std::sync::{Arc, LazyLock};
use std::time::Duration;

use evictscope_model::threshold;
use evictscope_records::Occasion;
use evictscope_records::fixture::burst_record;
use evictscope_telemetry::{Burst, BurstKind};
use proptest::prelude::*;

use super::super::losses::Loss;
use super::{AFTER, GAP, LEAST_CALL, LEAST_STALL, LONGEST_STALL, Occasions, SWOLLEN, Sight, WantedRecord};

const START: Duration = Duration::from_secs(7_200);
const TENTH: Duration = Duration::from_millis(100);
const HOUR: Duration = Duration::from_secs(3_600);

/// A burst of 7 s and a reclaim of 5 s.
fn burst(kind: BurstKind, started: Duration) -> Arc<Burst> {
    static MADE_UP: LazyLock<Option<Burst>> = LazyLock::new(|| burst_record().burst);
    let Some(burst) = MADE_UP.clone() else { unreachable!("the made-up record is about a burst") };
    let mut burst = Burst { started, ..burst };
    match kind {
        BurstKind::SelfAmplifying => {}
        BurstKind::Stalling => burst.client_buffers_peak = burst.client_buffers_before,
        BurstKind::Plain => burst.stalled = Some(Duration::ZERO),
        BurstKind::Unknown => burst.stalled = None,
    }
    assert_eq!(burst.kind().0, kind);
    Arc::new(burst)
}

/// Returns what records are about, and which times.
fn about(records: &[WantedRecord]) -> Vec<(Occasion, Duration, Duration)> {
    records.iter().map(|record| (record.occasion, record.began, record.ended)).collect()
}

fn occasions(records: &[WantedRecord]) -> Vec<Occasion> {
    records.iter().map(|record| record.occasion).collect()
}

/// Follows a server for `time`; `is_stalled` and `has_burst` say what happens at each moment.
fn follow(
    occasions: &mut Occasions,
    time: Duration,
    is_stalled: impl Fn(Duration) -> bool,
    has_burst: impl Fn(Duration) -> bool,
) -> Vec<WantedRecord> {
    let (mut since, mut stalled) = (Duration::ZERO, Duration::ZERO);
    let mut made = Vec::new();
    while since < time {
        since += TENTH;
        if is_stalled(since) {
            stalled += TENTH;
        }
        let sight = Sight { stalled: Some(stalled), has_open_burst: has_burst(since), ..Sight::default() };
        occasions.saw(START + since, &sight);
        made.extend(occasions.due(START + since));
    }
    made
}

#[test]
fn a_burst_is_recorded_half_a_minute_after_its_reclaim() {
    let mut occasions = Occasions::default();
    let began = START + Duration::from_secs(5);
    let ended = began + Duration::from_secs(12);
    assert!(occasions.ended(ended + GAP, &burst(BurstKind::SelfAmplifying, began)));
    assert_eq!(occasions.due(ended + AFTER - TENTH), []);
    assert_eq!(about(&occasions.due(ended + AFTER)), [(Occasion::Burst, began, ended)]);
    assert_eq!(occasions.due(ended + HOUR), []);
}

#[test]
fn a_storm_of_bursts_makes_a_bounded_number_of_records() {
    for (kind, at_first) in [(BurstKind::SelfAmplifying, 6), (BurstKind::Unknown, 3)] {
        let mut occasions = Occasions::default();
        let mut recorded = [0; 3];
        for second in (0..3 * 3_600).step_by(3) {
            let at = START + Duration::from_secs(second);
            let is_recorded = occasions.ended(at, &burst(kind, at - GAP));
            recorded[second as usize / 3_600] += u32::from(is_recorded);
        }
        assert_eq!(recorded[0], 11 + at_first, "{kind}");
        assert!(recorded[1] <= 12 && recorded[2] <= 12, "{recorded:?}");
    }
}

#[test]
fn a_burst_that_amplifies_itself_is_recorded_among_unknown_ones() {
    let mut occasions = Occasions::default();
    for second in (0..3_600).step_by(3) {
        let at = START + Duration::from_secs(second);
        occasions.ended(at, &burst(BurstKind::Unknown, at - GAP));
    }
    let at = START + HOUR;
    assert!(occasions.ended(at, &burst(BurstKind::SelfAmplifying, at - GAP)));
}

#[test]
fn a_stall_without_a_burst_is_recorded_where_it_is_longer_than_a_second() {
    let stall = |length: Duration| {
        let is_stalled = move |now: Duration| now > TENTH * 20 && now <= TENTH * 20 + length;
        let mut occasions = Occasions::default();
        follow(&mut occasions, Duration::from_secs(60), is_stalled, |_| false)
    };
    assert_eq!(stall(LEAST_STALL - TENTH), []);
    let began = START + TENTH * 20;
    assert_eq!(about(&stall(LEAST_STALL)), [(Occasion::Stall, began, began + LEAST_STALL)]);
}

#[test]
fn a_recorded_burst_covers_its_stall_and_a_plain_one_is_not_recorded() {
    for kind in [BurstKind::SelfAmplifying, BurstKind::Plain] {
        let mut occasions = Occasions::default();
        let in_burst = |now: Duration| now > GAP && now < GAP * 8;
        let made = follow(&mut occasions, GAP * 10, in_burst, |_| true);
        assert_eq!(made, []);
        let is_recorded = occasions.ended(START + GAP * 10, &burst(kind, START + GAP));
        assert_eq!(is_recorded, kind != BurstKind::Plain);
        let made = follow(&mut occasions, GAP * 60, |_| false, |_| false);
        // If it is not recorded, its stall is worth a record all the same.
        assert_eq!(self::occasions(&made), [if is_recorded { Occasion::Burst } else { Occasion::Stall }]);
    }
}

/// Returns the records of 4,000 seconds, in each of which `sight` is seen.
fn made(sight: impl Fn(u64) -> Sight) -> Vec<WantedRecord> {
    let mut occasions = Occasions::default();
    let mut made = Vec::new();
    for second in 0..4_000 {
        occasions.saw(START + GAP * second as u32, &sight(second));
        made.extend(occasions.due(START + GAP * second as u32));
    }
    made
}

#[test]
fn short_stalls_are_recorded_together() {
    let every = |seconds: u64| {
        made(|second| Sight { stalled: Some(TENTH * 3 * (second.min(1_000) / seconds) as u32), ..Sight::default() })
            .first()
            .map(|record| record.ended - record.began)
    };
    // The fourth one completes a second.
    assert_eq!(every(20), Some(GAP * 60 + TENTH * 3));
    // The alert needs 5 s in 300.
    assert_eq!(every(40), None);
    // A stall that is long enough has its own record.
    let made = made(|second| Sight {
        stalled: Some(TENTH * [0, 3, 23][usize::from(second >= 100) + usize::from(second >= 110)]),
        ..Sight::default()
    });
    let times: Vec<_> = made.iter().map(|record| record.ended - record.began).collect();
    assert_eq!(times, [GAP * 2]);
}

#[test]
fn a_slow_call_is_recorded_where_nothing_else_has_it() {
    let call = |took: Duration, stalled: Duration| {
        made(|second| Sight {
            stalled: Some(if second < 100 { Duration::ZERO } else { stalled }),
            call: (second == 100).then(|| (START + GAP * 100, took)),
            ..Sight::default()
        })
    };
    let ended = START + GAP * 100;
    assert_eq!(about(&call(LEAST_CALL, Duration::ZERO)), [(Occasion::Call, ended - LEAST_CALL, ended)]);
    assert_eq!(call(LEAST_CALL - TENTH / 10, Duration::ZERO), []);
    assert_eq!(occasions(&call(GAP, GAP)), [Occasion::Stall]);
}

#[test]
fn refusals_are_recorded_once_an_hour() {
    // They began before the agent did; 3,899 s of them are seen.
    let found = made(|second| Sight { refused: Some(7 + second.saturating_sub(100)), ..Sight::default() });
    let began: Vec<_> = found.iter().map(|record| (record.occasion, record.began - START)).collect();
    assert_eq!(began, [(Occasion::Refused, GAP * 101), (Occasion::Refused, GAP * 3_701)]);
}

#[test]
fn client_buffers_are_recorded_when_they_swell_and_not_while_they_stay() {
    let found = |low: f64| {
        made(|second| Sight {
            buffers: Some(match second {
                ..100 => 0.05,
                3_800 => low,
                _ => 0.2,
            }),
            ..Sight::default()
        })
    };
    let began = |low| Vec::from_iter(found(low).iter().map(|record| (record.occasion, record.began - START)));
    assert_eq!(began(0.12), [(Occasion::Buffers, GAP * 100)]);
    let twice = [(Occasion::Buffers, GAP * 100), (Occasion::Buffers, GAP * 3_801)];
    assert_eq!(began(0.05), twice);
}

#[test]
fn client_buffers_that_swell_in_a_stall_belong_to_it() {
    let found = |swollen: u64| {
        occasions(&made(|second| Sight {
            stalled: Some(GAP * second.clamp(100, 110) as u32),
            buffers: Some(if second < swollen { 0.0 } else { 0.2 }),
            ..Sight::default()
        }))
    };
    assert_eq!(found(105), [Occasion::Stall]);
    assert_eq!(found(95), [Occasion::Buffers, Occasion::Stall]);
}

#[test]
fn lost_keys_are_recorded_until_they_no_longer_go() {
    let sight = |second: u64| {
        let loss = match second {
            102 => Some(Loss::Began(START + GAP * 100)),
            103..=110 => Some(Loss::GoesOn),
            _ => None,
        };
        Sight { loss, ..Sight::default() }
    };
    assert_eq!(about(&made(sight)), [(Occasion::Lost, START + GAP * 100, START + GAP * 110)]);
    // A burst that is recorded has them, too.
    let mut occasions = Occasions::default();
    for second in 0..115 {
        occasions.saw(START + GAP * second as u32, &sight(second));
    }
    occasions.ended(START + GAP * 115, &burst(BurstKind::SelfAmplifying, START + GAP * 99));
    assert_eq!(self::occasions(&occasions.finish(None)), [Occasion::Burst]);
}

#[test]
fn a_burst_without_end_is_recorded_again_and_again() {
    let mut occasions = Occasions::default();
    let made = follow(&mut occasions, HOUR, |_| true, |_| true);
    // Three at once, and one more every ten minutes.
    assert!((7..=8).contains(&made.len()), "{}", made.len());
    for record in made {
        assert_eq!((record.occasion, record.burst), (Occasion::Stall, None));
        assert!(record.ended - record.began <= LONGEST_STALL + TENTH);
    }
}

#[test]
fn a_cache_that_evicts_calmly_has_no_records() {
    let mut occasions = Occasions::default();
    assert_eq!(follow(&mut occasions, HOUR, |_| false, |_| true), []);
    assert_eq!(occasions.finish(None), []);
}

#[test]
fn who_asks_at_the_same_time_gets_the_same_record() {
    let mut occasions = Occasions::default();
    occasions.ask(START);
    occasions.ask(START + GAP);
    assert!(occasions.is_asked(START + AFTER / 2));
    // Its profile ends a moment before it is due.
    assert!(!occasions.is_asked(START + AFTER - GAP / 2));
    assert_eq!(occasions.due(START + AFTER).len(), 1);
    assert!(!occasions.is_asked(START));
}

#[test]
fn at_the_end_all_is_recorded_that_is_known() {
    let mut occasions = Occasions::default();
    occasions.ask(START);
    assert_eq!(follow(&mut occasions, GAP * 3, |_| true, |_| true), []);
    let made = occasions.finish(Some(START + GAP * 3));
    assert_eq!(self::occasions(&made), [Occasion::Asked, Occasion::Stall, Occasion::Ended]);
}

#[test]
fn limits_are_those_of_the_alerts() {
    assert_eq!(threshold("SlowCall"), Some(LEAST_CALL.as_secs_f64()));
    assert_eq!(threshold("SwollenShare"), Some(SWOLLEN));
}

proptest! {
    /// Records are bounded whatever happens.
    #[test]
    fn records_are_bounded(
        steps in prop::collection::vec((0..20_000_u64, 0..2_000_u64, 0..4_u8, any::<bool>()), 1..400),
    ) {
        let mut occasions = Occasions::default();
        let (mut now, mut stalled, mut recorded) = (HOUR, Duration::ZERO, 0);
        for (index, (pause, more, kind, has_burst)) in steps.iter().enumerate() {
            now += Duration::from_millis(*pause);
            stalled += Duration::from_millis((*more).min(*pause));
            let kind = BurstKind::ALL.get(usize::from(*kind));
            if let Some(kind) = kind {
                occasions.ended(now, &burst(*kind, now - GAP));
            }
            let sight = Sight {
                stalled: Some(stalled),
                has_open_burst: *has_burst,
                call: Some((now, Duration::from_millis(*more))),
                refused: Some(index as u64),
                buffers: Some(if *has_burst { 0.2 } else { 0.0 }),
                loss: has_burst.then_some(Loss::Began(now)),
            };
            occasions.saw(now, &sight);
            recorded += occasions.due(now).len();
            prop_assert!(occasions.waiting.len() <= 16);
        }
        recorded += occasions.finish(None).len();
        let hours = (now - HOUR).div_duration_f64(HOUR);
        prop_assert!(recorded as f64 <= 17.0 + 27.0 * hours, "{recorded} in {hours} hours");
    }
}
