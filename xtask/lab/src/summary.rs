//! The texts about a run on the terminal.

use std::path::PathBuf;

use evictscope_testkit::burst::Burst;
use evictscope_testkit::cores::Cores;
use evictscope_testkit::redis::Redis;
use evictscope_testkit::text::{bytes, count, known, percent};

use crate::cycles::Cycle;
use crate::expiry::Expiry;
use crate::observer::{Measured, Outcome};
use crate::scenario::Parameters;
use crate::witness::Testimony;

/// A run that has ended.
pub struct Finished {
    /// What was measured before the load.
    pub measured: Measured,
    /// What the record shows.
    pub outcome: Outcome,
    /// What the agent said, if it watched to the end.
    pub testimony: Option<Testimony>,
    /// Copies of the records that the agent kept, the oldest first.
    pub records: Vec<PathBuf>,
}

pub fn heading(server: &Redis, cores: Option<&Cores>, measured: &Measured, parameters: &Parameters) -> String {
    let place = match cores {
        Some(cores) => format!("on core {}, the rest on {:?}", cores.server, cores.others),
        None => "and all else on one core: these numbers prove nothing".to_owned(),
    };
    format!(
        "redis-server   pid {}, 127.0.0.1:{}, maxmemory {} {}; {place}\n\
         load           {} connections, {} requests a second for now ({} of the main thread), at most {} under way on each",
        server.pid(),
        server.port(),
        bytes(measured.maxmemory),
        [parameters.options, parameters.remedy].join(" ").trim_end(),
        count(parameters.connections as f64),
        count(measured.rate),
        percent(measured.rate / measured.capacity),
        parameters.most_under_way,
    )
}

pub fn cycle(number: usize, cycle: &Cycle) -> String {
    let keys = count(cycle.evicted_keys as f64);
    let seconds = cycle.end - cycle.start;
    format!("cycle {number}        {seconds:.1} s saturated; {keys} keys evicted")
}

pub fn outcome(outcome: &Outcome) -> String {
    let (load, totals) = (&outcome.load, &outcome.load.totals);
    let mut text = format!(
        "{:.0} s of load{}: {} requests answered, {} with an error; {} keys evicted in {} bursts\n\
         latency: highest {}, p99 {}\n",
        outcome.seconds,
        if outcome.interrupted { ", interrupted" } else { "" },
        count(outcome.answered as f64),
        count(totals.errors as f64),
        count(outcome.evicted_keys as f64),
        outcome.cycles.len(),
        milliseconds(load.latency_max),
        milliseconds(load.latency_p99),
    );
    if let Some(longest) = outcome.longest_call {
        text += &format!("longest evicting call, by the server: {}\n", milliseconds(longest));
    }
    if let Some(disturbance) = &outcome.disturbance {
        text += &format!("disturbed: {disturbance}\n");
    }
    if let Some(expiry) = &outcome.expiry {
        text += &format!(
            "{} keys expired; of {} keys, {} had a time to live; a SCAN deleted {} of them, and freed {} without clients, \
             estimated as {}\n",
            count(expiry.expired_keys() as f64),
            count(expiry.before.keys as f64),
            count(expiry.before.keys_with_ttl as f64),
            count(expiry.held_keys() as f64),
            bytes(expiry.held()),
            bytes(expiry.estimate() as u64),
        );
    }
    text
}

/// How close a burst of the agent's begins to the same burst of the record, in seconds.
const SAME: f64 = 1.0;

/// Returns what the record and the agent say of each burst that one of them has. Times are seconds of load.
pub fn beside(outcome: &Outcome, testimony: &Testimony) -> String {
    let begin = outcome.at - outcome.seconds;
    let is_same = |cycle: &Cycle, burst: &Burst| (burst.start - cycle.start).abs() <= SAME;
    let line = |who: &str, start: f64, end: f64, keys: Option<f64>| {
        let (start, end, keys) = (start - begin, end - begin, known(keys, count));
        format!("  {who:<12}{start:>10.3} s to {end:>8.3} s, {keys:>9} keys evicted")
    };
    let of_agent = |burst: &Burst| {
        let stalled = known(burst.stalled_seconds, |seconds| format!("{seconds:.1} s"));
        format!(
            "{}, reclaim of {:.1} s and {}, client buffers up to {}, clients stalled for {stalled}; {}: {}\n",
            line("evictscope", burst.start, burst.end, burst.evicted_keys),
            burst.reclaim_seconds,
            known(burst.reclaimed_bytes, bytes),
            known(burst.client_buffers_peak_bytes, bytes),
            burst.kind,
            burst.reason,
        )
    };
    let mut text = String::new();
    for (number, cycle) in (1..).zip(&outcome.cycles) {
        let record = line("record", cycle.start, cycle.end, Some(cycle.evicted_keys as f64));
        let burst = testimony.bursts.iter().find(|burst| is_same(cycle, burst));
        let agent = burst.map_or_else(|| "  evictscope does not have it\n".to_owned(), of_agent);
        text += &format!("burst {number}\n{record}\n{agent}");
    }
    for burst in testimony.bursts.iter().filter(|burst| burst.start > begin) {
        if !outcome.cycles.iter().any(|cycle| is_same(cycle, burst)) {
            text += &format!("not in the record\n{}", of_agent(burst));
        }
    }
    let stalled = known(testimony.stalled(), |seconds| format!("{seconds:.1} s"));
    text + &format!("evictions stalled clients for {stalled}\n")
}

/// A line of the table: its label, and the text of a run, if the run has one.
type Line = (&'static str, fn(&Finished) -> Option<String>);

const LINES: &[Line] = &[
    ("seconds of load", |run| Some(format!("{:.0}", run.outcome.seconds))),
    ("requests answered a second", |run| Some(count(run.outcome.answered as f64 / run.outcome.seconds))),
    ("bursts", |run| of_bursts(run, run.outcome.cycles.len().to_string())),
    ("keys evicted", |run| of_bursts(run, count(run.outcome.evicted_keys as f64))),
    ("p99 of the latency", |run| Some(milliseconds(run.outcome.load.latency_p99))),
    ("highest latency", |run| Some(milliseconds(run.outcome.load.latency_max))),
    ("stalled by evictions", |run| Some(format!("{:.1} s", run.testimony.as_ref()?.stalled()?))),
    ("longest evicting call", |run| of_bursts(run, known(run.outcome.longest_call, milliseconds))),
    ("keys expired", |run| of_expiry(run, |expiry| count(expiry.expired_keys() as f64))),
    ("held by expired keys", |run| of_expiry(run, |expiry| bytes(expiry.held()))),
];

pub fn comparison(runs: &[(String, Finished)]) -> String {
    let line = |label: &str, texts: Vec<String>| {
        let columns: String = texts.iter().map(|text| format!("{text:>14}")).collect();
        format!("{label:<32}{columns}\n")
    };
    let mut table = line("", runs.iter().map(|(name, _)| name.clone()).collect());
    for (label, text) in LINES {
        let texts: Option<Vec<String>> = runs.iter().map(|(_, finished)| text(finished)).collect();
        table += &texts.map_or_else(String::new, |texts| line(label, texts));
    }
    table
}

/// Returns a text about bursts, or `None` for a run about expiry.
fn of_bursts(run: &Finished, text: String) -> Option<String> {
    run.outcome.expiry.is_none().then_some(text)
}

fn of_expiry(run: &Finished, text: impl Fn(&Expiry) -> String) -> Option<String> {
    run.outcome.expiry.as_ref().map(text)
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.0} ms", seconds * 1000.0)
}
