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

/// Returns a heading that says what is run.
pub fn heading(
    server: &Redis,
    cores: Option<&Cores>,
    measured: &Measured,
    parameters: &Parameters,
) -> String {
    let mix = &parameters.mix;
    let place = match cores {
        Some(cores) => format!(
            "server on core {}, the rest on {:?}",
            cores.server, cores.others
        ),
        None => "all on one core: these numbers prove nothing".to_owned(),
    };
    format!(
        "redis-server   pid {}, 127.0.0.1:{}, maxmemory {}, {} of {} samples, expire effort {}; {place}\n\
         load           {} connections, {} requests a second for now ({} of the main thread), at most {} under way on each\n\
         requests       {:.0} % {} of {} B, else MGET of {} of the newest {} keys",
        server.pid(),
        server.port(),
        bytes(measured.maxmemory),
        parameters.policy,
        parameters.samples,
        parameters.effort,
        count(parameters.connections as f64),
        count(measured.rate),
        percent(measured.rate / measured.capacity),
        parameters.most_under_way,
        100.0 * mix.set_share,
        match mix.keys_per_write {
            0 | 1 => "SET".to_owned(),
            keys => format!("SET of {keys} keys"),
        },
        mix.value_bytes,
        mix.keys_per_read,
        count(mix.read_window as f64),
    )
}

/// Returns what there is to say about a cycle.
pub fn cycle(number: usize, cycle: &Cycle) -> String {
    format!(
        "cycle {number}        {:.1} s saturated, {:.1} s reclaim; {} keys evicted\n  \
           before, in it  commands/s {}, {}; backlog up to {}, client buffers {}; reclaimed {}",
        cycle.end - cycle.start,
        cycle.reclaim_end - cycle.end,
        count(cycle.evicted_keys as f64),
        known(cycle.throughput_before, count),
        count(cycle.throughput_during),
        count(cycle.backlog_peak as f64),
        bytes(cycle.client_buffers_peak),
        bytes(cycle.reclaimed),
    )
}

/// Returns a summary of a record.
pub fn outcome(outcome: &Outcome) -> String {
    let complete = outcome.cycles.iter().filter(|cycle| cycle.complete).count();
    let (load, totals) = (&outcome.load, &outcome.load.totals);
    let mut text = format!(
        "{:.0} s of load{}: {} requests answered, {} with an error; {} keys evicted in {} bursts, {complete} of them complete cycles\n\
         highest: backlog {}, latency {:.0} ms, client buffers {}; p99 of the latency {:.1} ms\n",
        outcome.seconds,
        if outcome.interrupted {
            ", interrupted"
        } else {
            ""
        },
        count(outcome.answered as f64),
        count(totals.errors as f64),
        count(outcome.evicted_keys as f64),
        outcome.cycles.len(),
        count(outcome.backlog_peak as f64),
        load.latency_max * 1000.0,
        bytes(outcome.client_buffers_peak),
        load.latency_p99 * 1000.0,
    );
    if totals.hung_up > 0 {
        text += &format!(
            "the server closed {} connections, and {} requests with them\n",
            count(totals.hung_up as f64),
            count(totals.lost as f64)
        );
    }
    if let Some(longest) = outcome.longest_call {
        text += &format!(
            "longest evicting call, by the server: {:.0} ms\n",
            longest * 1000.0
        );
    }
    if let Some(disturbance) = &outcome.disturbance {
        text += &format!("disturbed: {disturbance}\n");
    }
    if let Some(expiry) = &outcome.expiry {
        text.push_str(&self::expiry(expiry));
    }
    text
}

fn expiry(expiry: &Expiry) -> String {
    let before = &expiry.before;
    format!(
        "{} keys expired; cycles took {} of the time and ended {} times at their time limit; stale ratio {} in the end\n\
         of {} keys, {} had a time to live; a SCAN of {:.1} s deleted {} of them ({}), and freed {} without clients, estimated as {}\n",
        count(expiry.expired_keys() as f64),
        percent(expiry.cycles_share()),
        count(expiry.time_limit_hits() as f64),
        percent(before.stale_ratio),
        count(before.keys as f64),
        count(before.keys_with_ttl as f64),
        expiry.scan_seconds,
        count(expiry.held_keys() as f64),
        percent(expiry.held_ratio()),
        bytes(expiry.held()),
        bytes(expiry.estimate() as u64),
    )
}

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

/// A line of the table: its label, and the text of a run, if the run has one.
type Line = (&'static str, fn(&Finished) -> Option<String>);

const LINES: &[Line] = &[
    ("seconds of load", |run| {
        Some(format!("{:.0}", run.outcome.seconds))
    }),
    ("requests answered a second", |run| {
        Some(count(run.outcome.answered as f64 / run.outcome.seconds))
    }),
    ("bursts", |run| {
        of_bursts(run, |cycles| cycles.len().to_string())
    }),
    ("time saturated", |run| {
        of_bursts(run, |cycles| {
            // An empty sum is -0.
            let saturated = (cycles.iter()).fold(0.0, |sum, cycle| sum + cycle.end - cycle.start);
            format!("{:.1} %", 100.0 * saturated / run.outcome.seconds)
        })
    }),
    ("throughput in the worst burst", |run| {
        of_bursts(run, |cycles| {
            let ratios = cycles.iter().filter_map(Cycle::throughput_ratio);
            known(ratios.reduce(f64::min), percent)
        })
    }),
    ("keys evicted", |run| {
        of_bursts(run, |_| count(run.outcome.evicted_keys as f64))
    }),
    ("p99 of the latency", |run| {
        Some(milliseconds(run.outcome.load.latency_p99))
    }),
    ("highest latency", |run| {
        Some(milliseconds(run.outcome.load.latency_max))
    }),
    ("stalled by evictions", |run| {
        let stalled = run.testimony.as_ref()?.stalled()?;
        Some(format!("{stalled:.1} s"))
    }),
    ("longest evicting call", |run| {
        of_bursts(run, |_| known(run.outcome.longest_call, milliseconds))
    }),
    ("keys expired", |run| {
        of(run, |expiry| count(expiry.expired_keys() as f64))
    }),
    ("held by expired keys", |run| {
        of(run, |expiry| bytes(expiry.held()))
    }),
];

/// Compares runs, each with its name.
pub fn comparison(runs: &[(String, Finished)]) -> String {
    let line = |label: &str, texts: Vec<String>| {
        let columns: String = texts.iter().map(|text| format!("{text:>14}")).collect();
        format!("{label:<32}{columns}\n")
    };
    let names = runs.iter().map(|(name, _)| name.clone()).collect();
    let mut table = line("", names);
    for (label, text) in LINES {
        let texts: Option<Vec<String>> = runs.iter().map(|(_, finished)| text(finished)).collect();
        if let Some(texts) = texts {
            table += &line(label, texts);
        }
    }
    table
}

/// Returns a text about bursts, or `None` for a run about expiry.
fn of_bursts(run: &Finished, text: impl Fn(&[Cycle]) -> String) -> Option<String> {
    let cycles = &run.outcome.cycles;
    run.outcome.expiry.is_none().then(|| text(cycles))
}

fn of(run: &Finished, text: impl Fn(&Expiry) -> String) -> Option<String> {
    run.outcome.expiry.as_ref().map(text)
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.0} ms", seconds * 1000.0)
}
