//! Whether a run is what was wanted: what the agent says of it, beside what the record shows.

use anyhow::{Result, ensure};
use evictscope_testkit::{
    burst::Burst,
    text::{bytes, known, percent},
};

use crate::{
    cycles::Cycle,
    expired, judge_kept,
    record::{Measured, Outcome},
    scenario::PLAIN,
    witness::Testimony,
};

/// How far off the beginning and the end of a burst may be, in seconds, beside the uncertainty of the record.
pub const TIME: f64 = 0.1;
/// How far off amounts may be, as a share of what the record shows, beside its uncertainty.
pub const AMOUNT: f64 = 0.1;
/// How far off the seconds in which evictions stalled the server may be, as a share of those in which it evicted and
/// executed less than half of what it can.
const STALLED: f64 = 0.15;
/// How far off they may be beside that for each burst, in seconds: at each of its two ends, a tenth counts whole or not at
/// all.
const ENDS: f64 = 0.2;
/// A burst of the agent's that begins this close to one of the record is the same, in seconds.
const SAME: f64 = 1.0;
/// After so many seconds in `not_saturated` the agent knows what a server does usually.
const USUAL: f64 = 5.0;

/// Above the lines of [`compare`].
const HEADING: &str = "burst  start (agent - record)  end      end of reclaim (± the record's uncertainty)  throughput (record, agent)  \
    client buffers at their peak  reclaimed (± the record's uncertainty)  kind";

/// A run that has ended.
pub struct Finished {
    /// What was measured before the load.
    pub measured: Measured,
    /// What the record shows.
    pub outcome: Outcome,
    /// What the agent said, where there was one.
    pub testimony: Option<Testimony>,
    /// What the onlooker found, where there was one.
    pub onlooker: Result<()>,
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
    /// What depends on the premise of the lab is not judged where that was gone: the kind of a burst, its throughput, the end
    /// of its reclaim, and the seconds in which evictions stalled the server.
    ///
    /// # Errors
    ///
    /// Fails where the two differ by more than they may.
    pub fn must_agree(&self, kind: Option<&str>) -> Result<()> {
        let Some(testimony) = &self.testimony else {
            return Ok(());
        };
        let outcome = &self.outcome;
        let (text, mut differences) = compare(outcome, &testimony.bursts, kind);
        println!("{text}");
        let stalled = testimony.stalled()?;
        let slow = outcome.slow_seconds;
        println!("stalled by evictions for {stalled:.1} s");
        if kind != Some(PLAIN) {
            println!(
                "by the record, it evicted and did less than half of what it can for {slow:.1} s"
            );
        }
        if !outcome.was_disturbed() {
            differences.extend(stalls(stalled, slow, outcome.cycles.len(), kind));
        }
        if let Some(records) = &testimony.records {
            let (text, found) = judge_kept::compare(outcome, &testimony.bursts, records);
            print!("{text}");
            differences.extend(found);
        }
        if let (Some(expiry), Some(reading)) = (&outcome.expiry, &testimony.expiry) {
            let (text, found) = expired::compare(expiry, reading)?;
            print!("{text}");
            differences.extend(found);
        }
        ensure!(
            differences.is_empty(),
            "evictscope and the record differ:\n  {}",
            differences.join("\n  ")
        );
        println!(
            "evictscope and the record agree: {} bursts",
            testimony.bursts.len()
        );
        if outcome.was_disturbed() {
            println!(
                "disturbed: the kind, the throughput and the end of reclaim of the bursts named above were not judged, \
                 nor the stalled seconds"
            );
        }
        Ok(())
    }
}

/// Compares the complete cycles of a load with the agent's bursts. Returns a table, and the
/// values that differ by more than they may.
///
/// The cycles that stand alone are to be of `kind`, where that is given. All bursts are to be [`PLAIN`] where
/// that is the kind. Neither is asked of one that was disturbed.
fn compare(outcome: &Outcome, bursts: &[Burst], kind: Option<&str>) -> (String, Vec<String>) {
    let (begin, cycles) = (outcome.at - outcome.seconds, &outcome.cycles[..]);
    let has_replica = outcome.has_replica;
    let mut text = format!("{HEADING}\n");
    let mut differences = Vec::new();
    let mut calm = 0.0;
    for (number, cycle) in (1..).zip(cycles) {
        calm += cycle.not_saturated_seconds;
        match bursts.iter().find(|burst| is_same(cycle, burst)) {
            Some(burst) if cycle.complete => {
                text += &format!("{}\n", line(number, cycle, burst));
                let found = differing(cycle, burst, calm >= USUAL, has_replica).into_iter();
                differences.extend(found.map(|what| format!("burst {number}: {what}")));
            }
            None if cycle.complete => differences.push(format!("burst {number} was not found")),
            _ => {}
        }
    }
    for burst in bursts.iter().filter(|burst| burst.start > begin) {
        if !cycles.iter().any(|cycle| is_same(cycle, burst)) {
            differences.push(format!(
                "a burst {:.1} s after the load began is not in the record",
                burst.start - begin
            ));
        }
        let same = || cycles.iter().filter(|cycle| is_same(cycle, burst));
        let is_meant = (kind == Some(PLAIN) || same().any(Cycle::stands_alone))
            && !same().any(Cycle::was_disturbed);
        if is_meant && kind.is_some_and(|kind| kind != burst.kind) {
            differences.push(format!(
                "the burst {:.1} s after the load began is said to be {}: {}",
                burst.start - begin,
                burst.kind,
                burst.reason
            ));
        }
    }
    (text, differences)
}

/// Returns how the seconds in which the agent says that evictions stalled the server differ from what they are to be:
/// none where all bursts are [`PLAIN`], else those in which it was slow in this many bursts.
fn stalls(stalled: f64, slow: f64, bursts: usize, kind: Option<&str>) -> Option<String> {
    let (expected, near) = match kind? {
        PLAIN => (0.0, 0.0),
        _ => (slow, STALLED * slow + ENDS * bursts as f64),
    };
    let differs = (stalled - expected).abs() > near;
    differs.then(|| {
        format!("evictions stalled the server for {stalled:.2} s, by the record {expected:.2} s")
    })
}

/// Returns whether a burst of the agent's is this one.
pub fn is_same(cycle: &Cycle, burst: &Burst) -> bool {
    (burst.start - cycle.start).abs() <= SAME
}

fn line(number: usize, cycle: &Cycle, burst: &Burst) -> String {
    let milliseconds = |agent: f64, record: f64| format!("{:+.0} ms", (agent - record) * 1e3);
    let both = |record: u64, agent| format!("{}, {}", bytes(record), known(agent, bytes));
    format!(
        "{number:<5}  {:>22}  {:>7}  {:>43}  {:>26}  {:>28}  {:>38}  {}",
        milliseconds(burst.start, cycle.start),
        milliseconds(burst.end, cycle.end),
        format!(
            "{} (± {:.0} ms)",
            milliseconds(burst.end + burst.reclaim_seconds, cycle.reclaim_end),
            cycle.reclaim_end_uncertainty * 1e3
        ),
        format!(
            "{}, {}",
            known(cycle.throughput_ratio(), percent),
            known(burst.throughput_ratio, percent)
        ),
        both(cycle.client_buffers_peak, burst.client_buffers_peak_bytes),
        format!(
            "{} (± {})",
            both(cycle.reclaimed, burst.reclaimed_bytes),
            bytes(cycle.memory_after_uncertainty)
        ),
        burst.kind,
    )
}

/// Returns the values in which the agent's burst differs by more than it may. Where the server `has_usual` throughput not
/// yet, the agent may not know by how much it fell.
///
/// What the server counts as the buffers of a replica, its `INFO` does not tell.
fn differing(cycle: &Cycle, burst: &Burst, has_usual: bool, has_replica: bool) -> Vec<String> {
    let mut differing = Vec::new();
    let mut time = |what: &str, agent: f64, record: f64, uncertainty: f64| {
        let off = agent - record;
        if off.abs() > TIME + uncertainty {
            differing.push(format!("its {what} is {off:+.3} s off"));
        }
    };
    let (start, end) = (cycle.start_uncertainty, cycle.end_uncertainty);
    time("beginning", burst.start, cycle.start, start);
    time("end", burst.end, cycle.end, end);
    let reclaimed = burst.end + burst.reclaim_seconds;
    // How memory falls is known from many samples a second. A server or an agent that waits for a CPU has few.
    if !cycle.was_disturbed() {
        let uncertainty = cycle.reclaim_end_uncertainty;
        time("end of reclaim", reclaimed, cycle.reclaim_end, uncertainty);
    }
    let mut amount = |what: &str, agent: Option<f64>, record: f64, uncertainty: f64| {
        let near = AMOUNT * record + uncertainty;
        if agent.is_none_or(|agent| (agent - record).abs() > near) {
            let agent = agent.map_or("not known".to_owned(), |agent| format!("{agent:.3}"));
            differing.push(format!("its {what} is {agent}, by the record {record:.3}"));
        }
    };
    if let Some(ratio) = cycle
        .throughput_ratio()
        .filter(|_| cycle.shows_throughput() && !cycle.was_disturbed())
        .filter(|_| has_usual || burst.throughput_ratio.is_some())
    {
        amount("throughput ratio", burst.throughput_ratio, ratio, 0.0);
    }
    let number = |bytes: u64| bytes as f64;
    let (buffers, peak) = (burst.client_buffers_peak_bytes, cycle.client_buffers_peak);
    let buffers = buffers.map(number);
    if !has_replica {
        amount("peak of client buffers", buffers, number(peak), 0.0);
    }
    let reclaimed = burst.reclaimed_bytes.map(number);
    let uncertainty = number(cycle.memory_after_uncertainty);
    amount(
        "reclaimed memory",
        reclaimed,
        number(cycle.reclaimed),
        uncertainty,
    );
    differing
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
            reclaim_end: 1_015.0,
            reclaim_end_uncertainty: 0.2,
            not_saturated_seconds: 6.0,
            saturated_seconds: 3.0,
            complete: true,
            throughput_before: Some(1_000.0),
            throughput_during: 300.0,
            client_buffers_peak: 120 << 20,
            reclaimed: 30 << 20,
            memory_after_uncertainty: 1 << 20,
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
            evicted_keys: None,
            throughput_ratio: Some(0.31),
            client_buffers_peak_bytes: Some(118 << 20),
            reclaimed_bytes: Some(29 << 20),
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
    fn small_differences_are_allowed() {
        let agreed = differences(&[cycle()], &[burst()], Some("self_amplifying"));
        assert_eq!(agreed, Vec::<String>::new());
    }

    #[test]
    fn each_value_is_compared() {
        let changes: [fn(&mut Burst); 8] = [
            |burst| burst.start -= 0.3,
            |burst| {
                burst.end += 0.3;
                burst.reclaim_seconds -= 0.3;
            },
            |burst| burst.reclaim_seconds += 0.5,
            |burst| burst.throughput_ratio = Some(0.34),
            |burst| burst.throughput_ratio = None,
            |burst| burst.client_buffers_peak_bytes = Some(100 << 20),
            |burst| burst.reclaimed_bytes = Some(35 << 20),
            |burst| burst.kind = "plain".to_owned(),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut burst = burst();
            change(&mut burst);
            let found = differences(&[cycle()], &[burst], Some("self_amplifying"));
            assert_eq!(found.len(), 1, "change {number}: {found:?}");
        }
    }

    #[test]
    fn a_burst_at_the_beginning_of_the_load_may_have_no_throughput_before_it() {
        let early = [Cycle {
            not_saturated_seconds: 0.3,
            ..cycle()
        }];
        let with = |throughput_ratio| Burst {
            throughput_ratio,
            ..burst()
        };
        let differ = |ratio| differences(&early, &[with(ratio)], None).len();
        assert_eq!([None, Some(0.31), Some(0.34)].map(differ), [0, 0, 1]);
    }

    #[test]
    fn stalls_are_compared_with_the_time_in_which_the_server_was_slow() {
        let differ = |stalled, slow, kind| stalls(stalled, slow, 2, kind).is_some();
        let bursts = Some("self_amplifying");
        let stalled = [8.0, 8.2, 11.8, 12.0].map(|stalled| differ(stalled, 10.0, bursts));
        assert_eq!(stalled, [true, false, false, true]);
        // Something else made it slow.
        let plain = [0.0, 0.1].map(|stalled| differ(stalled, 10.0, Some(PLAIN)));
        assert_eq!(plain, [false, true]);
        assert!(!differ(5.0, 10.0, None));
    }

    #[test]
    fn what_depends_on_the_premise_is_not_judged_without_it() {
        let gone = Premise {
            waiting: 0.2,
            ..Premise::default()
        };
        let kept = Premise {
            waiting: 0.04,
            behind: 0.04,
            ..gone
        };
        let dependent = Burst {
            kind: "stalling".to_owned(),
            throughput_ratio: Some(0.9),
            ..burst()
        };
        // What both observe is judged nevertheless.
        let late = Burst {
            end: 1_013.5,
            reclaim_seconds: 9.0,
            ..dependent.clone()
        };
        let differ = |cycle: Cycle, burst: &Burst| {
            let kind = Some("self_amplifying");
            differences(&[cycle], std::slice::from_ref(burst), kind).len()
        };
        let phases: [fn(&mut Cycle) -> &mut Premise; 3] = [
            |cycle| &mut cycle.not_saturated,
            |cycle| &mut cycle.saturated,
            |cycle| &mut cycle.reclaim,
        ];
        for phase in phases {
            let with = |premise| {
                let mut cycle = cycle();
                *phase(&mut cycle) = premise;
                cycle
            };
            assert_eq!(differ(with(kept), &dependent), 2);
            assert_eq!(differ(with(gone), &dependent), 0);
            assert_eq!(differ(with(gone), &late), 1);
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
            onlooker: Ok(()),
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
        assert_eq!(differences(&[incomplete], &[], None), Vec::<String>::new());
        assert_eq!(differences(&[], &[burst()], None).len(), 1);
        let before_the_load = Burst {
            start: 990.0,
            ..burst()
        };
        assert_eq!(
            differences(&[], &[before_the_load], None),
            Vec::<String>::new()
        );
    }
}
