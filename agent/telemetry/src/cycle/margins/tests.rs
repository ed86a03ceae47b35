use std::time::Duration;

use proptest::prelude::*;

use super::{EvictionLoad, Margins, Measured, MemoryGrowth, lab_costs};
use crate::{ClientBuffers, Moment, Phase};

/// Returns client buffers of so many bytes.
fn buffers(bytes: f64) -> Option<ClientBuffers> {
    Some(ClientBuffers { normal: bytes as u64, replica: 0, pubsub: 0, primary: 0 })
}

/// Returns a reading of a server without client buffers, whose main thread runs for a quarter of the time.
fn seen(second: f64, used_memory: f64) -> Moment {
    Moment {
        at: Duration::from_secs_f64(second),
        used_memory: Some(used_memory as u64),
        client_buffers: buffers(0.0),
        commands: Some((second * 1e4) as u64),
        evicted_keys: Some(0),
        cpu_eviction: Some(Duration::ZERO),
        cpu_other: Some(Duration::from_nanos((second * 0.25e9) as u64)),
        ..Moment::default()
    }
}

/// Returns what is known after `seconds` with this `used_memory`.
fn after(seconds: u32, used_memory: impl Fn(f64) -> f64) -> Margins {
    let mut margins = Margins::default();
    for second in 0..=seconds {
        let second = f64::from(second);
        margins.observe(&seen(second, used_memory(second)), Phase::NotSaturated);
    }
    margins
}

#[test]
fn a_straight_line_is_certain_and_a_wave_is_not() -> Result<(), &'static str> {
    assert_eq!(after(59, |second| 1e9 + 1e3 * second).growth(), None);
    let margins = after(60, |second| 1e9 + 1e3 * second);
    let straight = margins.growth().ok_or("not known")?;
    assert_eq!(straight, MemoryGrowth { mean: 1e3, error: 0.0, over: Duration::from_secs(60) });
    assert_eq!(straight.fills(60_000), [Some(60.0); 3]);
    assert_eq!(margins.busy(), Some(0.25));
    let wave = |second: f64| 1e9 + 1e3 * second + 4e6 * (second / 200.0).sin();
    let waving = after(7_200, wave).growth().ok_or("not known")?;
    assert!((waving.mean - 1e3).abs() < waving.error, "{waving:?}");
    let [earliest, likely, latest] = waving.fills(1_000_000);
    assert!(earliest < likely && latest.is_none_or(|latest| Some(latest) > likely));
    let falling = after(100, |second| 1e9 - second).growth();
    assert_eq!(falling.map(|growth| growth.fills(1)), Some([None; 3]));
    Ok(())
}

proptest! {
    /// Memory rises by `grown` bytes a command until the limit, where each freed byte costs `cost`. Meanwhile calls are
    /// observed for part of the time, buffers grow, and the limit is lowered.
    #[test]
    fn evictions_cost_what_they_cost_last(
        grown in 1.0..1e4_f64,
        cost in 1e-10..1e-7_f64,
        observed in 0.01..1.0_f64,
        swollen in 0.0..1e8_f64,
        lowered in 0.0..1e9_f64,
    ) {
        let calm = |second| seen(second, 1e12 + grown * 1e4 * second);
        let mut margins = Margins::default();
        for second in 0..300 {
            margins.observe(&calm(f64::from(second)), Phase::NotSaturated);
        }
        prop_assert_eq!(margins.evictions_would_add(), None, "nothing was evicted yet");
        let limit = calm(300.0);
        for tenth in 0..100_u32 {
            let second = f64::from(tenth) / 10.0;
            let done = second / 10.0;
            let freed = grown * 1e4 * second + done * (swollen + lowered);
            let cpu_ns = cost * freed * 1e9;
            let now = calm(300.0 + second);
            let evicting = Moment {
                used_memory: limit.used_memory.map(|bytes| bytes - (done * lowered) as u64),
                client_buffers: buffers(done * swollen),
                evicted_keys: Some(u64::from(tenth) * 1_000),
                cpu_eviction: Some(Duration::from_nanos((cpu_ns * observed) as u64)),
                cpu_other: now.cpu_other.map(|time| time.mul_f64(observed)),
                cpu_unobserved: Duration::from_nanos(((cpu_ns + 0.25e9 * second) * (1.0 - observed)) as u64),
                ..now
            };
            margins.observe(&evicting, Phase::Saturated);
        }
        prop_assert_eq!(margins.growth(), None);
        for second in 400..500 {
            margins.observe(&calm(f64::from(second)), Phase::NotSaturated);
        }
        let added = margins.evictions_would_add().map(|load| (load.measured, load.share));
        let (measured, added) = added.unwrap_or((Measured::InTheLab, 0.0));
        prop_assert_eq!(measured, Measured::Here);
        prop_assert!(!margins.needs_keys());
        let expected = cost * grown * 1e4;
        prop_assert!((added / expected - 1.0).abs() < 0.02, "{added} for {expected}");
    }
}

#[test]
fn where_nothing_was_evicted_the_lab_tells_by_the_size_of_a_key() {
    let with_keys = |keys, used_memory: f64| {
        let mut margins = Margins::default();
        for second in 0..=60 {
            let second = f64::from(second);
            let seen =
                Moment { keys: Some(keys).filter(|_| second == 0.0), ..seen(second, used_memory + 1e6 * second) };
            margins.observe(&seen, Phase::NotSaturated);
        }
        assert!(margins.needs_keys());
        margins.evictions_would_add()
    };
    let load = with_keys(1_000_000, 1e9);
    let share = 1e6 * lab_costs::of_a_byte(1e3);
    let measured = Measured::InTheLab;
    assert_eq!(load, Some(EvictionLoad { share, measured }));
    assert_eq!(with_keys(0, 1e9), None, "no key");
    assert_eq!(with_keys(10, 1e6), None, "not keys'");
}

/// Fills a server to `filled` bytes in `filling` seconds, from when it writes on at a tenth of a percent of that a
/// second.
fn filled(filled: f64, filling: f64) -> impl Fn(f64) -> f64 {
    move |second| filled * (second / filling).min(1.0) + 1e-3 * filled * (second - filling).max(0.0)
}

#[test]
fn a_fill_foretells_nothing() {
    for filling in [20.0, 50.0, 110.0, 290.0] {
        for seconds in 0..=1_200 {
            let growth = after(seconds, filled(1e9, filling)).growth();
            let Some(growth) = growth else {
                let since = f64::from(seconds) - filling;
                assert!(since < 200.0, "{filling} s of fill, {since} s before: nothing");
                continue;
            };
            assert!((growth.mean / 1e6 - 1.0).abs() < 0.35, "{filling} s, {seconds} s: {growth:?}");
        }
    }
    // What is merely small when it begins, and grows on and on, is none.
    assert!(after(700, |second| 1e6 * second).growth().is_some());
    assert_eq!(after(590, |second| 1e6 * second).growth(), None);
}

#[test]
fn what_does_not_count_against_the_limit_does_not_fill_it() {
    let mut margins = Margins::default();
    for second in 0..=120 {
        let second = f64::from(second);
        let seen = Moment { not_counted: Some((second * 1e6) as u64), ..seen(second, 1e9 + second * 1e6) };
        margins.observe(&seen, Phase::NotSaturated);
    }
    assert_eq!(margins.growth().map(|growth| growth.mean), Some(0.0));
}

#[test]
fn a_thread_that_spins_is_not_busy() {
    let busy = |hides_work| {
        let mut margins = Margins::default();
        for second in 0..=60 {
            let second = f64::from(second);
            let seen = Moment {
                cpu_other: Some(Duration::from_secs_f64(second * 0.99)),
                no_work: Duration::from_secs_f64(second * 0.81),
                hides_work,
                ..seen(second, 1e9)
            };
            margins.observe(&seen, Phase::NotSaturated);
        }
        margins.busy()
    };
    assert!(busy(false).is_some_and(|busy| (busy - 0.18).abs() < 1e-6));
    assert_eq!(busy(true), None);
}
