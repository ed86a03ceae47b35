//! Whether a run is what was wanted: what the agent says of its bursts, beside what the record shows.
//!
//! Judged is each burst once: its kind, when it was, what was evicted, and how high client buffers rose. The rest is
//! printed, and so is all of it where the run was disturbed: a server that waits for a CPU answers no `INFO` meanwhile.
//! What a burst or a stall is called, and when its reclaim ends, is judged on recorded readings
//! (`agent/telemetry/src/testdata`).

use anyhow::{Result, ensure};
use evictscope_testkit::{
    burst::Burst,
    text::{bytes, count, known},
};

use crate::{
    cycles::Cycle,
    record::{Measured, Outcome},
    scenario::PLAIN,
    witness::Testimony,
};

/// How far off the beginning and the end of a burst may be, in seconds, beside the uncertainty of the record.
const TIME: f64 = 0.1;
/// How far off amounts may be, as a share of what the record shows.
const AMOUNT: f64 = 0.1;
/// A burst of the agent's that begins this close to one of the record is the same, in seconds.
const SAME: f64 = 1.0;

/// A run that has ended.
pub struct Finished {
    /// What was measured before the load.
    pub measured: Measured,
    /// What the record shows.
    pub outcome: Outcome,
    /// What the agent said, where there was one.
    pub testimony: Option<Testimony>,
}

impl Finished {
    /// Fails where the run ended before it had this many complete cycles, unless it was disturbed.
    pub fn must_have_cycles(&self, wanted: usize) -> Result<()> {
        let outcome = &self.outcome;
        let cycles = outcome.cycles.iter();
        let complete = cycles.filter(|cycle| cycle.stands_alone()).count();
        if complete >= wanted {
            return Ok(());
        }
        let seconds = outcome.seconds;
        let text = format!("{complete} complete cycles instead of {wanted} in {seconds:.0} s");
        ensure!(outcome.was_disturbed(), text);
        println!("disturbed: {text}");
        Ok(())
    }

    /// Prints what the agent said beside what the record shows, where there was an agent. All bursts are to
    /// be of `kind`, where that is known.
    ///
    /// # Errors
    ///
    /// Fails where the two differ by more than they may, unless the run was disturbed.
    pub fn must_agree(&self, kind: Option<&str>) -> Result<()> {
        let Some(testimony) = &self.testimony else {
            return Ok(());
        };
        let (text, differences) = compare(&self.outcome, &testimony.bursts, kind);
        let stalled = testimony.stalled()?;
        println!("{text}evictions stalled clients for {stalled:.1} s");
        if differences.is_empty() {
            let bursts = testimony.bursts.len();
            println!("evictscope and the record agree: {bursts} bursts");
            return Ok(());
        }
        let text = format!(
            "evictscope and the record differ:\n  {}",
            differences.join("\n  ")
        );
        ensure!(self.outcome.was_disturbed(), text);
        println!("disturbed: {text}");
        Ok(())
    }
}

/// Compares the complete cycles of a load with the agent's bursts. Returns a table, and the
/// values that differ by more than they may.
///
/// The cycles that stand alone are to be of `kind`, where that is given. All bursts are to be [`PLAIN`] where
/// that is the kind.
fn compare(outcome: &Outcome, bursts: &[Burst], kind: Option<&str>) -> (String, Vec<String>) {
    let (begin, cycles) = (outcome.at - outcome.seconds, &outcome.cycles[..]);
    let mut text = String::new();
    let mut differences = Vec::new();
    for (number, cycle) in (1..).zip(cycles).filter(|(_, cycle)| cycle.complete) {
        match bursts.iter().find(|burst| is_same(cycle, burst)) {
            Some(burst) => {
                let beside = Beside::of(cycle, burst, begin, outcome.has_replica);
                text += &format!("burst {number:<22}{:>16}{:>16}\n", "record", "evictscope");
                text += &beside.table;
                let found = beside.differing.into_iter();
                differences.extend(found.map(|what| format!("burst {number}: {what}")));
            }
            None => differences.push(format!("burst {number} was not found")),
        }
    }
    for burst in bursts.iter().filter(|burst| burst.start > begin) {
        let at = burst.start - begin;
        let same = || cycles.iter().filter(|cycle| is_same(cycle, burst));
        if same().next().is_none() {
            differences.push(format!(
                "a burst {at:.1} s after the load began is not in the record"
            ));
        }
        let is_meant = kind == Some(PLAIN) || same().any(Cycle::stands_alone);
        if is_meant && kind.is_some_and(|kind| kind != burst.kind) {
            differences.push(format!(
                "the burst {at:.1} s after the load began is said to be {}: {}",
                burst.kind, burst.reason
            ));
        }
    }
    (text, differences)
}

/// Returns whether a burst of the agent's is this one.
fn is_same(cycle: &Cycle, burst: &Burst) -> bool {
    (burst.start - cycle.start).abs() <= SAME
}

/// A table of what both say of a burst, and the values in which the agent differs by more than it may.
#[derive(Default)]
struct Beside {
    table: String,
    differing: Vec<String>,
}

impl Beside {
    /// Compares a burst. What the server counts as the buffers of a replica, its `INFO` does not tell.
    fn of(cycle: &Cycle, burst: &Burst, begin: f64, has_replica: bool) -> Self {
        let mut beside = Self::default();
        let seconds = |seconds: f64| format!("{seconds:.3} s");
        let size = |value: f64| bytes(value as u64);
        let since = |time: f64| Some(time - begin);
        let number = |value: u64| value as f64;

        let near = Some(TIME + cycle.start_uncertainty);
        let (record, agent) = (since(cycle.start), since(burst.start));
        beside.add("beginning", record, agent, seconds, near);
        let near = Some(TIME + cycle.end_uncertainty);
        let (record, agent) = (since(cycle.end), since(burst.end));
        beside.add("end", record, agent, seconds, near);
        let agent = since(burst.end + burst.reclaim_seconds);
        let record = since(cycle.reclaim_end);
        beside.add("end of reclaim", record, agent, seconds, None);
        let keys = number(cycle.evicted_keys);
        let (record, near) = (Some(keys), Some(AMOUNT * keys));
        beside.add("evicted keys", record, burst.evicted_keys, count, near);
        let peak = number(cycle.client_buffers_peak);
        let near = (!has_replica).then_some(AMOUNT * peak);
        let agent = burst.client_buffers_peak_bytes.map(number);
        beside.add("peak of client buffers", Some(peak), agent, size, near);
        let agent = burst.reclaimed_bytes.map(number);
        let record = Some(number(cycle.reclaimed));
        beside.add("reclaimed memory", record, agent, size, None);
        let agent = burst.stalled_seconds;
        beside.add("clients stalled", None, agent, seconds, None);
        beside.table += &format!("  {}: {}\n", burst.kind, burst.reason);
        beside
    }

    /// Adds a value, in which the agent may be `near` the record, or differ where there is no such limit.
    fn add(
        &mut self,
        what: &str,
        record: Option<f64>,
        agent: Option<f64>,
        unit: fn(f64) -> String,
        near: Option<f64>,
    ) {
        let off = agent.zip(record).map(|(agent, record)| agent - record);
        let differs = near.is_some_and(|near| off.is_none_or(|off| off.abs() > near));
        let [record, agent] = [record, agent].map(|value| known(value, unit));
        self.table += &format!("  {what:<26}{record:>16}{agent:>16}\n");
        if differs {
            let text = format!("its {what}: {agent}, by the record {record}");
            self.differing.push(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::premise::Premise;

    fn cycle() -> Cycle {
        Cycle {
            start: 1_010.0,
            end: 1_013.0,
            end_uncertainty: 0.05,
            complete: true,
            throughput_before: Some(1_000.0),
            evicted_keys: 10_000,
            client_buffers_peak: 120 << 20,
            ..Cycle::default()
        }
    }

    fn burst() -> Burst {
        Burst {
            server: "7001".to_owned(),
            start: 1_010.05,
            end: 1_012.95,
            duration_seconds: 2.9,
            reclaim_seconds: 2.25,
            evicting_calls: None,
            evicted_keys: Some(10_100.0),
            stalled_seconds: None,
            client_buffers_peak_bytes: Some(118 << 20),
            reclaimed_bytes: None,
            kind: "self_amplifying".to_owned(),
            reason: String::new(),
        }
    }

    fn differences(cycles: &[Cycle], bursts: &[Burst], kind: Option<&str>) -> Vec<String> {
        let outcome = Outcome {
            at: 1_100.0,
            seconds: 100.0,
            cycles: cycles.to_vec(),
            ..Outcome::default()
        };
        compare(&outcome, bursts, kind).1
    }

    #[test]
    fn each_value_is_compared_and_small_differences_are_allowed() {
        let changes: [fn(&mut Burst); 8] = [
            |_| {},
            |burst| burst.start -= 0.3,
            |burst| burst.end += 0.3,
            |burst| burst.evicted_keys = Some(8_000.0),
            |burst| burst.evicted_keys = None,
            |burst| burst.client_buffers_peak_bytes = Some(100 << 20),
            |burst| burst.client_buffers_peak_bytes = None,
            |burst| burst.kind = "plain".to_owned(),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut burst = burst();
            change(&mut burst);
            let found = differences(&[cycle()], &[burst], Some("self_amplifying"));
            assert_eq!(
                found.len(),
                usize::from(number > 0),
                "change {number}: {found:?}"
            );
        }
    }

    #[test]
    fn cycles_may_be_missing_from_a_disturbed_run_only() {
        let run = |behind| Finished {
            measured: Measured::default(),
            outcome: Outcome {
                rest: Premise {
                    behind,
                    ..Premise::default()
                },
                ..Outcome::default()
            },
            testimony: None,
        };
        assert!(run(0.04).must_have_cycles(1).is_err());
        assert!(run(0.06).must_have_cycles(1).is_ok());
    }

    #[test]
    fn a_burst_that_only_one_of_them_has_is_a_difference() {
        assert_eq!(
            differences(&[cycle()], &[], None),
            ["burst 1 was not found"]
        );
        let incomplete = Cycle {
            complete: false,
            ..cycle()
        };
        assert_eq!(differences(&[incomplete], &[], None), [""; 0]);
        assert_eq!(differences(&[], &[burst()], None).len(), 1);
        let before_the_load = Burst {
            start: 990.0,
            ..burst()
        };
        assert_eq!(differences(&[], &[before_the_load], None), [""; 0]);
    }
}
