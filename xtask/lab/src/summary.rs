//! The texts about a run on the terminal.

use std::path::PathBuf;

use evictscope_testkit::redis::Redis;
use evictscope_testkit::text::{bytes, count, known, percent};
use evictscope_testkit::threads::Cores;

use crate::pace::LoadCounts;
use crate::prepare::Measured;
use crate::scenario::Parameters;
use crate::seen::{EvictionCycle, Expiry, Testimony};

/// What was seen of a run, from the beginning of the load to its end.
pub struct Finished {
    pub measured: Measured,
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

pub fn outcome(run: &Finished) -> String {
    let (load, totals) = (&run.load, &run.load.totals);
    let mut text = format!(
        "{:.0} s of load{}: {} requests answered, {} with an error; {} keys evicted in {} bursts\n\
         latency: highest {}, p99 {}\n",
        run.seconds,
        if run.interrupted { ", interrupted" } else { "" },
        count(run.answered as f64),
        count(totals.errors as f64),
        count(run.evicted_keys as f64),
        run.cycles.len(),
        milliseconds(load.latency_max),
        milliseconds(load.latency_p99),
    );
    if let Some(longest) = run.longest_call {
        text += &format!("longest evicting call, by the server: {}\n", milliseconds(longest));
    }
    if let Some(disturbance) = &run.disturbance {
        text += &format!("disturbed: {disturbance}\n");
    }
    if let Some(expiry) = &run.expiry {
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

/// Returns the bursts of the record and of the agent, side by side. Times are seconds of load.
pub fn beside(run: &Finished, testimony: &Testimony) -> String {
    let begin = run.at - run.seconds;
    let seconds = |seconds| format!("{seconds:.1} s");
    let line = |who: &str, start: f64, end: f64, keys: Option<f64>| {
        let keys = known(keys, count);
        format!("{:>8.3} s to {:>8.3} s, {keys:>9} keys evicted, by {who}", start - begin, end - begin)
    };
    let recorded = run
        .cycles
        .iter()
        .map(|cycle| (cycle.start, line("the record", cycle.start, cycle.end, Some(cycle.evicted_keys as f64))));
    let listed = testimony.bursts.iter().map(|listed| {
        let burst = &listed.burst;
        let start = burst.started.as_secs_f64();
        let text = format!(
            "{}: reclaim of {:.1} s and {}, client buffers up to {}, clients stalled for {}; {}: {}",
            line("evictscope", start, start + burst.duration.as_secs_f64(), burst.evicted_keys.map(|keys| keys as f64)),
            burst.reclaim.as_secs_f64(),
            known(listed.reclaimed_bytes, bytes),
            known(burst.client_buffers_peak, bytes),
            known(burst.stalled.map(|time| time.as_secs_f64()), seconds),
            listed.kind,
            listed.reason,
        );
        (start, text)
    });
    let mut lines = Vec::from_iter(recorded.chain(listed.filter(|(start, _)| *start > begin)));
    lines.sort_by(|left, right| left.0.total_cmp(&right.0));
    let stalled = testimony.reading.sum("evictscope_stall_seconds_total", &[("cause", "eviction")]);
    let lines = Vec::from_iter(lines.into_iter().map(|(_, line)| line)).join("\n");
    format!("{lines}\nevictions stalled clients for {}\n", known(stalled.ok(), seconds))
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.0} ms", seconds * 1000.0)
}
