//! The texts about a run on the terminal.

use std::path::PathBuf;

use evictscope_model::Burst;
use evictscope_testkit::redis::Redis;
use evictscope_testkit::text::{bytes, count, known, percent};
use evictscope_testkit::threads::Cores;

use crate::counts::LoadCounts;
use crate::prepare::Measured;
use crate::scenario::Parameters;
use crate::seen::{EvictionCycle, Expiry};
use crate::witness::Testimony;

/// A run that has ended.
pub struct Finished {
    /// What was measured before the load.
    pub measured: Measured,
    /// What the server's own numbers and the generator's show.
    pub outcome: RunOutcome,
    /// What the agent said, if it watched to the end.
    pub testimony: Option<Testimony>,
    /// Copies of the records that the agent kept, the oldest first.
    pub records: Vec<PathBuf>,
}

/// What was seen, from the beginning of the load to its end.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// When the load ended, in seconds since 1970.
    pub at: f64,
    /// Whether the run was ended by the user.
    pub interrupted: bool,
    pub seconds: f64,
    pub load: LoadCounts,
    pub answered: u64,
    /// Requests due a second at the end.
    pub rate: f64,
    pub evicted_keys: u64,
    /// How long the longest evicting call took according to the server, in seconds; `None` if all were brief.
    pub longest_call: Option<f64>,
    pub cycles: Vec<EvictionCycle>,
    /// What was missing under load, if that was too much.
    pub disturbance: Option<String>,
    /// For `expire`: what expired, and what expired keys held at the end.
    pub expiry: Option<Expiry>,
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

pub fn cycle(number: usize, cycle: &EvictionCycle) -> String {
    let keys = count(cycle.evicted_keys as f64);
    let seconds = cycle.end - cycle.start;
    format!("cycle {number}        {seconds:.1} s saturated; {keys} keys evicted")
}

pub fn outcome(outcome: &RunOutcome) -> String {
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
            count(expiry.expired_keys as f64),
            count(expiry.before.keys as f64),
            count(expiry.before.keys_with_ttl as f64),
            count(expiry.held_keys as f64),
            bytes(expiry.held),
            bytes(expiry.estimate as u64),
        );
    }
    text
}

/// How far apart the record and the agent may have the same burst, in seconds: samples come late when rounds are long.
const SAME: f64 = 1.0;

/// Returns the bursts of the record and of the agent, side by side, and says which of them only one of the two has.
/// Times are seconds of load.
pub fn beside(outcome: &RunOutcome, testimony: &Testimony) -> String {
    let begin = outcome.at - outcome.seconds;
    let times = |burst: &Burst| (burst.started.as_secs_f64(), (burst.started + burst.duration).as_secs_f64());
    let is_same = |cycle: &EvictionCycle, burst: &Burst| {
        let (start, end) = times(burst);
        start <= cycle.end + SAME && cycle.start <= end + SAME
    };
    let line = |who: &str, start: f64, end: f64, keys: Option<f64>| {
        let (start, end, keys) = (start - begin, end - begin, known(keys, count));
        format!("{start:>8.3} s to {end:>8.3} s, {keys:>9} keys evicted, by {who}")
    };
    let mut lines: Vec<(f64, String)> = Vec::new();
    for cycle in &outcome.cycles {
        let is_known = testimony.bursts.iter().any(|listed| is_same(cycle, &listed.burst));
        let who = if is_known { "the record" } else { "the record; evictscope does not have it" };
        lines.push((cycle.start, line(who, cycle.start, cycle.end, Some(cycle.evicted_keys as f64))));
    }
    for listed in &testimony.bursts {
        let burst = &listed.burst;
        let (start, end) = times(burst);
        if start <= begin {
            continue;
        }
        let is_known = outcome.cycles.iter().any(|cycle| is_same(cycle, burst));
        let who = if is_known { "evictscope" } else { "evictscope, not in the record" };
        let text = format!(
            "{}: reclaim of {:.1} s and {}, client buffers up to {}, clients stalled for {}; {}: {}",
            line(who, start, end, burst.evicted_keys.map(|keys| keys as f64)),
            burst.reclaim.as_secs_f64(),
            known(listed.reclaimed_bytes, bytes),
            known(burst.client_buffers_peak, bytes),
            known(burst.stalled, |time| format!("{:.1} s", time.as_secs_f64())),
            listed.kind,
            listed.reason,
        );
        lines.push((start, text));
    }
    lines.sort_by(|left, right| left.0.total_cmp(&right.0));
    let stalled = known(testimony.stalled(), |seconds| format!("{seconds:.1} s"));
    let lines = Vec::from_iter(lines.into_iter().map(|(_, line)| line)).join("\n");
    format!("{lines}\nevictions stalled clients for {stalled}\n")
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.0} ms", seconds * 1000.0)
}
