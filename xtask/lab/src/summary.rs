//! The texts about a run on the terminal.

use evictscope_testkit::text::{bytes, count, known, percent};

use crate::{
    cycles::Cycle,
    expiry::Expiry,
    record::{Outcome, Run},
};

/// Returns a heading that says what is run. The record's path follows it.
pub fn heading(run: &Run) -> String {
    let parameters = &run.parameters;
    let mix = &parameters.mix;
    let place = match &run.cores {
        Some(cores) => format!(
            "server on core {}, the rest on {:?}",
            cores.server, cores.others
        ),
        None => "all on one core: these numbers prove nothing".to_owned(),
    };
    format!(
        "redis-server   pid {}, 127.0.0.1:{}, maxmemory {}, {} of {} samples, tenacity {}, expire effort {}; {place}\n\
         load           {} connections, {} requests a second for now ({} of the main thread), at most {} under way on each\n\
         requests       {:.0} % {} of {} B living {:.0} s on average, else MGET of {} of the newest {} keys\n\
         record         ",
        run.pid,
        run.port,
        bytes(run.measured.maxmemory),
        parameters.policy,
        parameters.samples,
        parameters.tenacity,
        parameters.effort,
        count(parameters.connections as f64),
        count(run.measured.rate),
        percent(run.measured.rate / run.measured.capacity),
        parameters.most_under_way,
        100.0 * mix.set_share,
        match mix.keys_per_write {
            0 | 1 => "SET".to_owned(),
            keys => format!("SET of {keys} keys"),
        },
        mix.value_bytes,
        mix.lives.mean(),
        mix.keys_per_read,
        count(mix.read_window as f64),
    )
}

/// Returns what there is to say about a cycle.
pub fn cycle(number: usize, cycle: &Cycle, shares_core: bool) -> String {
    let disturbance = cycle.during.disturbance(shares_core);
    let disturbed = disturbance.map_or_else(String::new, |what| format!("\n  disturbed: {what}"));
    format!(
        "cycle {number}        {:.1} s not saturated, {:.1} s saturated, {:.1} s reclaim; {} keys evicted\n  \
           before, in it  commands/s {}, {}; main thread {}, {}; backlog {}, {}; client buffers {}, {}\n  \
           memory         {}, at most {}, then {}; reclaimed {}{disturbed}",
        cycle.not_saturated_seconds,
        cycle.saturated_seconds,
        cycle.reclaim_seconds,
        count(cycle.evicted_keys as f64),
        known(cycle.throughput_before, count),
        count(cycle.throughput_during),
        percent(cycle.before.running),
        percent(cycle.during.running),
        count(cycle.backlog_before as f64),
        count(cycle.backlog_peak as f64),
        bytes(cycle.client_buffers_before),
        bytes(cycle.client_buffers_peak),
        bytes(cycle.memory_at_start),
        bytes(cycle.memory_peak),
        bytes(cycle.memory_after),
        bytes(cycle.reclaimed),
    )
}

/// Returns a summary of a record.
pub fn outcome(outcome: &Outcome, shares_core: bool) -> String {
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
    if let Some(disturbance) = outcome.premise.disturbance(shares_core) {
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
