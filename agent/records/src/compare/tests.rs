use super::*;
use crate::fixture::{burst_record, noise};

/// Returns a number that is nearly normally distributed, with a deviation of 1: the sum of twelve that are not.
fn normal(noise: &mut impl FnMut() -> u64) -> f64 {
    let sum: f64 = (0..12).map(|_| noise() as f64 / (1_u64 << 31) as f64).sum();
    sum - 6.0
}

/// Returns the made-up record with commands that scatter by a tenth from second to second, times `factor`.
fn scattered(noise: &mut impl FnMut() -> u64, factor: f64) -> Record {
    let mut record = burst_record();
    let first = record.moments.first().map_or(0, |moment| moment.unix_us());
    let rates: Vec<f64> = (0..120).map(|_| factor * 10_000.0 * (1.0 + 0.1 * normal(noise))).collect();
    for moment in &mut record.moments {
        let at = (moment.unix_us() - first) as f64 / 1e6;
        let whole = at as usize;
        let begun: f64 = rates.iter().take(whole).sum();
        let part = rates.get(whole).map_or(0.0, |rate| rate * (at - whole as f64));
        moment.commands = Some((begun + part) as u64);
    }
    record
}

fn change(before: &Record, after: &Record, name: &str) -> Option<Change> {
    Some(records(before, after).into_iter().find(|row| row.name == name)?.change)
}

#[test]
fn a_profile_that_would_take_forever_to_draw_is_none() {
    let deep = |frames, samples| format!("{}main {samples}\n", "f;".repeat(frames));
    assert!(is_profile(&deep(1_000, 1).repeat(1_000)));
    for other in [
        deep(3_000_000, 1),
        deep(1_000, 1).repeat(1_100),
        format!("{} 1\n", "f".repeat(70 << 20)),
        String::new(),
        deep(1, 1) + "main\n",
    ] {
        assert!(!is_profile(&other));
    }
}

#[test]
fn records_of_the_same_state_are_called_the_same() {
    let mut noise = noise(1);
    let (mut wrong_before, mut wrong_during) = (0, 0);
    for _ in 0..200 {
        let (one, other) = (scattered(&mut noise, 1.0), scattered(&mut noise, 1.0));
        let changed = Some(Change::Changed);
        wrong_before += u32::from(change(&one, &other, "commands/s before") == changed);
        wrong_during += u32::from(change(&one, &other, "commands/s in it") == changed);
    }
    // A minute, and seven seconds.
    assert_eq!(wrong_before, 0);
    assert!(wrong_during <= 6, "{wrong_during} of 200");
    let same = records(&burst_record(), &burst_record());
    assert!(same.iter().all(|row| row.change != Change::Changed), "{same:?}");
}

#[test]
fn a_difference_beyond_the_scatter_is_found() {
    let mut noise = noise(2);
    let mut missed = 0;
    for _ in 0..100 {
        let (one, other) = (scattered(&mut noise, 1.0), scattered(&mut noise, 1.5));
        missed += u32::from(change(&one, &other, "commands/s before") != Some(Change::Changed));
    }
    assert_eq!(missed, 0);
}

#[test]
fn what_has_one_value_a_record_is_not_judged() {
    let mut after = burst_record();
    after.burst = None;
    after.ended_us = after.began_us + 7_000_000;
    let rows = records(&burst_record(), &after);
    let memory = rows.iter().find(|row| row.name == "memory, after");
    assert_eq!(memory.map(ComparedRow::cells).unwrap_or_default(), ["memory, after", "300 MiB", "-", "", "not judged"]);
    let rows = records(&burst_record(), &burst_record());
    let peak = rows.iter().find(|row| row.name == "client buffers, peak");
    assert_eq!(peak.map(|row| row.change), Some(Change::NotJudged));
}
