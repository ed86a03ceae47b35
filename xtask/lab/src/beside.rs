//! What the agent says about the bursts of a run, beside what the record shows. It is printed, and judges nothing.

use evictscope_testkit::{
    burst::Burst,
    text::{bytes, count, known},
};

use crate::{cycles::Cycle, record::Outcome, witness::Testimony};

/// How close a burst of the agent's begins to the same burst of the record, in seconds.
const SAME: f64 = 1.0;

/// Returns a table for each burst that the record or the agent has.
pub fn beside(outcome: &Outcome, testimony: &Testimony) -> String {
    let begin = outcome.at - outcome.seconds;
    let is_same = |cycle: &Cycle, burst: &Burst| (burst.start - cycle.start).abs() <= SAME;
    let mut text = String::new();
    for (number, cycle) in (1..).zip(&outcome.cycles) {
        let burst = testimony.bursts.iter().find(|burst| is_same(cycle, burst));
        text += &format!("burst {number:<22}{:>16}{:>16}\n", "record", "evictscope");
        text += &table(cycle, burst, begin);
    }
    for burst in testimony.bursts.iter().filter(|burst| burst.start > begin) {
        if !outcome.cycles.iter().any(|cycle| is_same(cycle, burst)) {
            let at = burst.start - begin;
            text += &format!("a burst {at:.1} s after the load began is not in the record\n");
        }
    }
    let stalled = known(testimony.stalled(), |seconds| format!("{seconds:.1} s"));
    text + &format!("evictions stalled clients for {stalled}\n")
}

fn table(cycle: &Cycle, burst: Option<&Burst>, begin: f64) -> String {
    let seconds = |time: f64| format!("{:.3} s", time - begin);
    let mut text = String::new();
    let mut add = |what: &str, record: String, agent: Option<String>| {
        let agent = agent.unwrap_or_else(|| "-".to_owned());
        text += &format!("  {what:<26}{record:>16}{agent:>16}\n");
    };
    let agent = burst.map(|burst| seconds(burst.start));
    add("beginning", seconds(cycle.start), agent);
    let agent = burst.map(|burst| seconds(burst.end));
    add("end", seconds(cycle.end), agent);
    let agent = burst.map(|burst| seconds(burst.end + burst.reclaim_seconds));
    add("end of reclaim", seconds(cycle.reclaim_end), agent);
    let agent = burst.and_then(|burst| burst.evicted_keys).map(count);
    add("evicted keys", count(cycle.evicted_keys as f64), agent);
    let agent = burst.and_then(|burst| burst.client_buffers_peak_bytes);
    let record = bytes(cycle.client_buffers_peak);
    add("peak of client buffers", record, agent.map(bytes));
    let agent = burst.and_then(|burst| burst.reclaimed_bytes);
    add("reclaimed memory", bytes(cycle.reclaimed), agent.map(bytes));
    if let Some(burst) = burst {
        let stalled = known(burst.stalled_seconds, |seconds| format!("{seconds:.1} s"));
        let (kind, reason) = (&burst.kind, &burst.reason);
        text += &format!("  clients stalled for {stalled}; {kind}: {reason}\n");
    }
    text
}
