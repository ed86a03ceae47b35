//! The texts about a run on the terminal.

use std::path::Path;

use evictscope_testkit::text::{bytes, count, known, percent};

use crate::{
    cycles::Cycle,
    expiry::Expiry,
    record::{Outcome, Run},
    swelling::Swelling,
};

/// The heading above the lines of [`cycle`].
pub const CYCLES_HEADING: &str = "\ncycle  not_saturated  saturated  reclaim  commands/s before  during    \
    backlog before  peak     evicted   client buffers before  peak        CPU before  in it   memory at start  peak        after       reclaimed";

/// Returns a heading that says what is run.
pub fn heading(run: &Run, record: &Path) -> String {
    let parameters = &run.parameters;
    let mix = &parameters.mix;
    let place = match &run.cores {
        Some(cores) => format!(
            "server on core {}, the rest on {:?}",
            cores.server, cores.others
        ),
        None => "all on one core: nothing here is evidence".to_owned(),
    };
    format!(
        "redis-server   pid {}, 127.0.0.1:{}, maxmemory {}, {} of {} samples, tenacity {}, expire effort {}; {place}\n\
         load           {} connections, {} requests a second for now ({} of the main thread), at most {} under way on each\n\
         requests       {:.0} % {} of {} B living {}, else MGET of {} of the newest {} keys\n\
         record         {}",
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
        mix.lives,
        mix.keys_per_read,
        count(mix.read_window as f64),
        record.display(),
    )
}

/// Returns a line about a cycle.
pub fn cycle(number: usize, cycle: &Cycle) -> String {
    format!(
        "{number:<5}  {:>11.1} s  {:>7.1} s  {:>5.1} s  {:>17}  {:>8}  {:>14}  {:>7}  {:>8}  {:>21}  {:>10}  {:>8.0} %  {:>4.0} %  {:>15}  {:>10}  {:>10}  {:>10}",
        cycle.not_saturated_seconds,
        cycle.saturated_seconds,
        cycle.reclaim_seconds,
        known(cycle.throughput_before, count),
        count(cycle.throughput_during),
        count(cycle.backlog_before as f64),
        count(cycle.backlog_peak as f64),
        count(cycle.evicted_keys as f64),
        bytes(cycle.client_buffers_before),
        bytes(cycle.client_buffers_peak),
        100.0 * cycle.main_thread_cpu_before,
        100.0 * cycle.main_thread_cpu,
        bytes(cycle.memory_at_start),
        bytes(cycle.memory_peak),
        bytes(cycle.memory_after),
        bytes(cycle.reclaimed),
    )
}

/// Returns a summary of a record.
pub fn outcome(outcome: &Outcome) -> String {
    let complete = outcome.cycles.iter().filter(|cycle| cycle.complete).count();
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
        count(outcome.errors as f64),
        count(outcome.evicted_keys as f64),
        outcome.cycles.len(),
        count(outcome.backlog_peak as f64),
        outcome.latency_max * 1000.0,
        bytes(outcome.client_buffers_peak),
        outcome.latency_p99 * 1000.0,
    );
    if outcome.hung_up > 0 {
        text += &format!(
            "the server closed {} connections, and {} requests with them\n",
            count(outcome.hung_up as f64),
            count(outcome.lost as f64)
        );
    }
    if let Some(longest) = outcome.longest_call {
        text += &format!(
            "longest evicting call, by the server: {:.0} ms\n",
            longest * 1000.0
        );
    }
    for disturbance in outcome.disturbances() {
        text += &format!("disturbed: {disturbance}\n");
    }
    if let Some(swelling) = &outcome.swelling {
        text.push_str(&self::swelling(swelling));
    }
    if let Some(expiry) = &outcome.expiry {
        text.push_str(&self::expiry(expiry));
    }
    text
}

fn swelling(swelling: &Swelling) -> String {
    let rate = |value: f64| format!("{:.2} MiB/s", value / 1024.0 / 1024.0);
    format!(
        "slow for {:.1} s: {} requests a second due, {} answered, {:.0} bytes a reply; backlog {} at the end; {} keys evicted\n\
         client buffers grew from {} to {}\n\
           predicted (arrival - response) x bytes            {}\n\
           less what waits in the kernel (x response/arrival) {}\n\
           measured, client buffers                          {}\n\
           measured, used memory                             {}\n",
        swelling.end - swelling.start,
        count(swelling.arrival),
        count(swelling.response),
        swelling.reply_bytes,
        count(swelling.backlog_at_end as f64),
        count(swelling.evicted_keys as f64),
        bytes(swelling.client_buffers_before),
        bytes(swelling.client_buffers_peak),
        rate(swelling.predicted_of_backlog),
        rate(swelling.predicted),
        rate(swelling.measured_client_buffers),
        rate(swelling.measured_used_memory),
    )
}

fn expiry(expiry: &Expiry) -> String {
    let before = &expiry.before;
    let estimate = |estimate: f64| {
        let off = known(expiry.error(estimate), |off| {
            format!("{:+.0} %", 100.0 * off)
        });
        format!("{:>11}  {off}", bytes(estimate as u64))
    };
    format!(
        "{} keys expired; cycles took {} of the time and ended {} times at their time limit; stale ratio {} in the end\n\
         held by expired keys: used memory before and after a SCAN of {:.1} s, without clients\n\
           keys, those with a time to live        {}, {}\n\
           deleted by the SCAN                    {} ({} of those with a time to live)\n\
           freed by the SCAN                      {:>11}\n\
           stale ratio x keys with a TTL x size   {}\n\
           stale ratio x used memory              {}\n",
        count(expiry.expired_keys() as f64),
        percent(expiry.cycles_share()),
        count(expiry.time_limit_hits() as f64),
        percent(before.sample.stale_ratio),
        expiry.scan_seconds,
        count(before.keys as f64),
        count(before.keys_with_ttl as f64),
        count(expiry.held_keys() as f64),
        percent(expiry.held_ratio()),
        bytes(expiry.held()),
        estimate(expiry.estimate_by_keys()),
        estimate(expiry.estimate_by_memory()),
    )
}
