//! `cargo xtask demo`: one eviction burst on a throw-away redis-server, and what evictscope sees of it.
//!
//! The lab makes the cycle happen and prints its own record. Every other number comes from the agent. All that is
//! started here ends with the demo.

use std::time::Duration;

use anyhow::{Result, ensure};
use evictscope_lab::{Outcome, Testimony, one_cycle};
use evictscope_testkit::{
    agent::Program,
    burst::Burst,
    histogram::Histogram,
    process,
    scrape::Scrape,
    text::{bytes, count, known, seconds},
    workspace,
};

use crate::build;

/// Runs the demo.
pub fn run() -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "the demo attaches BPF programs, which needs root (CAP_SYS_ADMIN): \
         run `cargo xtask demo` as root"
    );
    build::run()?;
    let agent = Program::Built(workspace::agent_binary()?);

    // Until here, Ctrl-C ends the set-up or the build at once.
    let interrupted = process::catch_ctrl_c()?;

    println!(
        "A throw-away redis-server is filled almost to its maxmemory, and asked for so much that its\n\
         main thread is busy for half of the time. In some 20 s it is full: watch what happens then. This takes a minute in all.\n"
    );
    let finished = one_cycle(agent, &interrupted)?;
    match &finished.testimony {
        Some(testimony) => {
            let loaded = Duration::from_secs_f64(finished.outcome.seconds);
            println!("\n{}", summary(&testimony.reading, loaded));
            println!("{}", bursts(&testimony.bursts));
            must_show_what_is_meant(testimony, &finished.outcome)?;
        }
        None => println!("\ninterrupted"),
    }
    println!("The load, the agent and the redis-server have ended.");
    Ok(())
}

/// Says why no burst was called self-amplifying, where the machine was too busy for one.
///
/// # Errors
///
/// Fails where there was no such burst though nothing disturbed the run.
fn must_show_what_is_meant(testimony: &Testimony, outcome: &Outcome) -> Result<()> {
    if testimony
        .bursts
        .iter()
        .any(|burst| burst.kind == "self_amplifying")
    {
        return Ok(());
    }
    ensure!(
        outcome.was_disturbed(),
        "no burst was called self-amplifying, though nothing disturbed the server. The table above says why; the \
         record has the rest"
    );
    println!(
        "No burst amplified itself, because this machine was busy with something else:\n  {}\n\
         The above is what evictscope saw nevertheless. Run the demo again when less else runs here.\n",
        outcome.disturbances().join("\n  ")
    );
    Ok(())
}

const CALLS: &str = "evictscope_eviction_calls_total";
const DURATION: &str = "evictscope_eviction_call_duration_seconds";
const LONGEST: &str = "evictscope_eviction_call_longest_seconds";

/// Returns a table of the bursts.
fn bursts(bursts: &[Burst]) -> String {
    let mut text =
        "Bursts, from /api/v1/bursts:\n  duration  reclaimed   client buffers at their peak  \
         clients stalled  kind\n"
            .to_owned();
    for burst in bursts {
        let amount = |value: Option<u64>| known(value, bytes);
        text += &format!(
            "  {:>6.1} s  {:>10}  {:>28}  {:>15}  {}: {}\n",
            burst.end - burst.start,
            amount(burst.reclaimed_bytes),
            amount(burst.client_buffers_peak_bytes),
            known(burst.stalled_seconds, |seconds| format!("{seconds:.1} s")),
            burst.kind,
            burst.reason,
        );
    }
    if bursts.is_empty() {
        text.push_str("  none\n");
    }
    text
}

/// Returns what happened from beginning to end.
fn summary(reading: &Scrape, loaded: Duration) -> String {
    let histogram = |name: &str, labels: &[_]| reading.histogram(name, labels).unwrap_or_default();
    let one = |name: &str| reading.sum(name, &[]).ok();
    let sum = |name: &str, text: fn(f64) -> String| known(one(name), text);
    let mut text = String::new();
    let mut add = |label: &str, value: String| {
        text += &format!("  {label:<28}{value}\n");
    };
    let evicting = [("kind", "evicting")];
    let calls = reading.sum(CALLS, &evicting).unwrap_or(0.0);
    add("evicting calls", count(calls));
    let longest = one(LONGEST);
    let duration = histogram(DURATION, &evicting);
    add("  duration", percentiles(&duration, longest, duration_text));
    add("  longest", known(longest, duration_text));
    add(
        "stalled",
        known(one("evictscope_stall_seconds_total"), |seconds| {
            format!("{seconds:.1} s")
        }),
    );
    let goal = histogram("evictscope_mem_tofree_bytes", &[]);
    add("mem_tofree", percentiles(&goal, None, size));
    let buffers = histogram("evictscope_client_buffers_sample_bytes", &[]);
    let peak = one("evictscope_client_buffers_peak_bytes");
    let peak_text = known(peak, size);
    add(
        "client buffers",
        format!("{}, peak {peak_text}", percentiles(&buffers, peak, size)),
    );
    add("evicted keys", sum("evictscope_evicted_keys_total", count));
    add("under load for", seconds(loaded));
    let mut label = "probe hits";
    for (probe, hits) in reading.by_label("evictscope_probe_hits_total", "probe") {
        let rate = count(hits / loaded.as_secs_f64());
        add(label, format!("{probe}: {}, {rate} a second", count(hits)));
        label = "";
    }
    for (phase, seconds) in reading.by_label("evictscope_phase_seconds_total", "phase") {
        add(&format!("in phase {phase}"), format!("{seconds:.1} s"));
    }
    add(
        "probes cost, last 10 s",
        sum("evictscope_overhead_ratio", |share| {
            format!("{:.2} %", share * 100.0)
        }),
    );
    format!("Summary, from /metrics alone:\n{}", text)
}

/// Returns the median and the 99th percentile. They are estimates within a bucket, so they may lie above the highest of
/// the values, where that is known.
fn percentiles(histogram: &Histogram, highest: Option<f64>, text: fn(f64) -> String) -> String {
    let quantile = |quantile| {
        let estimate = histogram.quantile(quantile)?;
        Some(highest.map_or(estimate, |highest| estimate.min(highest)))
    };
    format!(
        "p50 {}, p99 {} ({} values)",
        known(quantile(0.50), text),
        known(quantile(0.99), text),
        count(histogram.count())
    )
}

fn size(value: f64) -> String {
    bytes(value.round().max(0.0) as u64)
}

fn duration_text(seconds: f64) -> String {
    if seconds < 1e-3 {
        format!("{:.1} µs", seconds * 1e6)
    } else if seconds < 1.0 {
        format!("{:.1} ms", seconds * 1e3)
    } else {
        format!("{seconds:.1} s")
    }
}
