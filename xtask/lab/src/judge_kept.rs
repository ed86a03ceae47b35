//! Whether the agent's records of a run say what the lab's own record shows.

use evictscope_testkit::{
    burst::Burst,
    text::{bytes, count, known},
};

use crate::{
    cycles::Cycle,
    judge::{AMOUNT, TIME, is_same},
    kept::{Kept, KeptBurst, of_burst},
    record::Outcome,
    scenario::PLAIN,
};

/// How far off the duration of the slowest evicting call may be beside [`AMOUNT`], in seconds. Redis has it in
/// whole milliseconds, and begins a little later.
const CALL: f64 = 0.002;

/// Above the lines of [`compare`].
const HEADING: &str = "record of burst  start (record - lab)  end      memory at its peak (lab, record)  growth of client buffers  \
    keys evicted        commands/s in it  file";

/// Compares the agent's records with the cycles of a load that began at `begin`. Returns a table, and the values that
/// differ by more than they may.
///
/// Each of the agent's bursts that is not plain is to have one record.
pub fn compare(outcome: &Outcome, bursts: &[Burst], records: &[Kept]) -> (String, Vec<String>) {
    let begin = outcome.at - outcome.seconds;
    let mut text = format!("{HEADING}\n");
    let mut differences = Vec::new();
    for burst in bursts.iter().filter(|burst| burst.start > begin) {
        let found = of_burst(burst, records);
        let at = burst.start - begin;
        let [record] = found[..] else {
            if burst.kind != PLAIN || found.len() > 1 {
                let number = found.len();
                differences.push(format!(
                    "the {} burst {at:.1} s after the load began has {number} records",
                    burst.kind
                ));
            }
            continue;
        };
        let cycles = outcome.cycles.iter();
        let cycle = (1..).zip(cycles).find(|(_, cycle)| is_same(cycle, burst));
        let (Some((number, cycle)), Some(kept)) = (cycle, &record.burst) else {
            continue;
        };
        if cycle.complete {
            text += &format!("{}\n", line(number, cycle, kept, record));
            let found = differing(cycle, kept, outcome.has_replica).into_iter();
            differences.extend(found.map(|what| format!("the record of burst {number}: {what}")));
        }
    }
    let slowest = records.iter().filter_map(|record| record.slowest);
    if let (Some(lab), Some(slowest)) = (outcome.longest_call, slowest.reduce(f64::max)) {
        text += &format!(
            "slowest evicting call: {:.0} ms by the server, {:.1} ms in the records\n",
            lab * 1e3,
            slowest * 1e3
        );
        if (slowest - lab).abs() > AMOUNT * lab + CALL {
            differences.push(format!(
                "the slowest evicting call of the records took {slowest:.4} s, by the server {lab:.3} s"
            ));
        }
    }
    (text, differences)
}

fn line(number: usize, cycle: &Cycle, kept: &KeptBurst, record: &Kept) -> String {
    let milliseconds = |agent: f64, lab: f64| format!("{:+.0} ms", (agent - lab) * 1e3);
    let both = |lab: u64, record| format!("{}, {}", bytes(lab), known(record, bytes));
    let counts = |lab: f64, record| format!("{}, {}", count(lab), known(record, count));
    format!(
        "{number:<15}  {:>20}  {:>7}  {:>32}  {:>24}  {:>18}  {:>16}  {}",
        milliseconds(kept.start, cycle.start),
        milliseconds(kept.end, cycle.end),
        both(cycle.memory_peak, kept.memory_peak),
        both(growth_of(cycle), growth(kept)),
        counts(
            cycle.evicted_keys as f64,
            kept.evicted_keys.map(|keys| keys as f64)
        ),
        counts(cycle.throughput_during, kept.throughput),
        record.path.display(),
    )
}

fn growth_of(cycle: &Cycle) -> u64 {
    (cycle.client_buffers_peak).saturating_sub(cycle.client_buffers_before)
}

fn growth(kept: &KeptBurst) -> Option<u64> {
    Some(
        kept.client_buffers_peak?
            .saturating_sub(kept.client_buffers_before?),
    )
}

/// Returns the values in which a record differs by more than it may.
fn differing(cycle: &Cycle, kept: &KeptBurst, has_replica: bool) -> Vec<String> {
    let mut differing = Vec::new();
    let mut time = |what: &str, record: f64, lab: f64, uncertainty: f64| {
        let off = record - lab;
        if off.abs() > TIME + uncertainty {
            differing.push(format!("its {what} is {off:+.3} s off"));
        }
    };
    time(
        "beginning",
        kept.start,
        cycle.start,
        cycle.start_uncertainty,
    );
    time("end", kept.end, cycle.end, cycle.end_uncertainty);
    if !cycle.was_disturbed() {
        let uncertainty = cycle.reclaim_end_uncertainty;
        time(
            "end of reclaim",
            kept.reclaim_end,
            cycle.reclaim_end,
            uncertainty,
        );
    }
    let mut amount = |what: &str, record: Option<u64>, lab: u64, of: u64| {
        let near = AMOUNT * of as f64;
        if record.is_none_or(|record| record.abs_diff(lab) as f64 > near) {
            let record = known(record, |record| record.to_string());
            differing.push(format!("its {what} is {record}, by the lab {lab}"));
        }
    };
    amount(
        "peak of memory",
        kept.memory_peak,
        cycle.memory_peak,
        cycle.memory_peak,
    );
    if !has_replica {
        amount(
            "growth of client buffers",
            growth(kept),
            growth_of(cycle),
            cycle.client_buffers_peak,
        );
    }
    amount(
        "number of evicted keys",
        kept.evicted_keys,
        cycle.evicted_keys,
        cycle.evicted_keys,
    );
    differing
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn outcome() -> Outcome {
        Outcome {
            at: 1_100.0,
            seconds: 100.0,
            longest_call: Some(0.5),
            cycles: vec![Cycle {
                start: 1_010.0,
                end: 1_013.0,
                reclaim_end: 1_015.0,
                complete: true,
                client_buffers_before: 40 << 20,
                client_buffers_peak: 80 << 20,
                memory_peak: 330 << 20,
                evicted_keys: 10_000,
                ..Cycle::default()
            }],
            ..Outcome::default()
        }
    }

    fn burst(kind: &str) -> Burst {
        Burst {
            server: "7001".to_owned(),
            start: 1_010.05,
            end: 1_012.95,
            duration_seconds: 2.9,
            reclaim_seconds: 2.0,
            evicting_calls: None,
            evicted_keys: None,
            throughput_ratio: None,
            client_buffers_peak_bytes: None,
            reclaimed_bytes: None,
            kind: kind.to_owned(),
            reason: String::new(),
        }
    }

    fn record() -> Kept {
        Kept {
            path: PathBuf::from("a.json.gz"),
            occasion: "burst".to_owned(),
            began: 1_010.05,
            ended: 1_014.95,
            burst: Some(KeptBurst {
                start: 1_010.05,
                end: 1_012.95,
                reclaim_end: 1_014.95,
                evicted_keys: Some(10_100),
                throughput: Some(5_000.0),
                client_buffers_before: Some(41 << 20),
                client_buffers_peak: Some(79 << 20),
                memory_peak: Some(329 << 20),
            }),
            slowest: Some(0.51),
            memory_peak: Some(329 << 20),
            commands: Some(5_000.0),
        }
    }

    fn differences(kind: &str, records: &[Kept]) -> Vec<String> {
        compare(&outcome(), &[burst(kind)], records).1
    }

    #[test]
    fn small_differences_are_allowed() {
        assert_eq!(differences("self_amplifying", &[record()]), [""; 0]);
        assert_eq!(differences(PLAIN, &[]), [""; 0]);
    }

    #[test]
    fn each_burst_that_is_not_plain_has_one_record() {
        assert_eq!(differences("unknown", &[]).len(), 1);
        assert_eq!(differences("unknown", &[record(), record()]).len(), 1);
    }

    #[test]
    fn each_value_is_compared() {
        let changes: [fn(&mut KeptBurst); 6] = [
            |burst| {
                burst.end += 0.3;
            },
            |burst| burst.reclaim_end += 0.3,
            |burst| burst.evicted_keys = Some(8_000),
            |burst| burst.client_buffers_peak = Some(60 << 20),
            |burst| burst.client_buffers_before = None,
            |burst| burst.memory_peak = Some(200 << 20),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut record = record();
            record.burst.as_mut().map(change);
            let found = differences("self_amplifying", &[record]);
            assert_eq!(found.len(), 1, "change {number}: {found:?}");
        }
        let slow = Kept {
            slowest: Some(0.6),
            ..record()
        };
        assert_eq!(differences("self_amplifying", &[slow]).len(), 1);
    }
}
