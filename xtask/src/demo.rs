//! `cargo xtask demo`: a throw-away redis-server that must evict, and what evictscope sees of it.
//!
//! Every number shown comes from the agent's `/metrics`. Everything started here ends with it.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use indicatif::{BinaryBytes, HumanCount};

use crate::{
    agent::Agent,
    build,
    histogram::Histogram,
    process,
    redis::{Load, Server},
    scrape::Reading,
    workspace,
};

/// What the server may use: little, so that it evicts within seconds.
const MAXMEMORY: &str = "32mb";

/// How long to watch.
const LENGTH: Duration = Duration::from_secs(20);

/// From one shown line to the next.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long the agent may take to read a server that has nothing to do any more.
const SETTLE: Duration = Duration::from_millis(1500);

/// Lines between two headings.
const HEADING_EVERY: usize = 10;

/// Runs the demo.
pub fn run() -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "the demo attaches BPF programs, which needs root (CAP_SYS_ADMIN): \
         run `cargo xtask demo` as root"
    );
    build::run()?;
    let binary = workspace::agent_binary()?;

    // Only from here on, so that Ctrl-C ends a set-up or a build at once.
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .context("cannot catch Ctrl-C")?;

    let mut server = Server::start(MAXMEMORY)?;
    println!(
        "redis-server   pid {}, 127.0.0.1:{}, maxmemory {MAXMEMORY}, allkeys-lru (throw-away)",
        server.pid(),
        server.port()
    );
    let mut agent = Agent::start(&binary, &[])?;
    println!(
        "evictscope     pid {}, {}",
        agent.pid(),
        agent.metrics_url()
    );
    agent.wait_for(&server, || interrupted.load(Ordering::Relaxed))?;

    let begun = Instant::now();
    let mut load = Load::start(server.port())?;
    println!(
        "load           200 clients write random keys, 100 read 20 at once, for {} s\n",
        LENGTH.as_secs()
    );
    let costs = watch(&mut agent, &mut server, &mut load, &interrupted)?;
    drop(load);
    let loaded = begun.elapsed();

    if interrupted.load(Ordering::Relaxed) {
        println!("\ninterrupted");
    }
    thread::sleep(SETTLE);
    let reading = agent.read(&server)?;
    println!("\n{}", summary(&reading, loaded, &costs));
    drop(agent);
    drop(server);
    println!("The load, the agent and the redis-server have ended.");
    Ok(())
}

/// Shows a line a second until the time is over or the user has had enough; what the probes cost in
/// each of those seconds, as a share of the main thread.
fn watch(
    agent: &mut Agent,
    server: &mut Server,
    load: &mut Load,
    interrupted: &AtomicBool,
) -> Result<Vec<f64>> {
    let started = Instant::now();
    let mut before = agent.read(server)?;
    let mut read_at = started;
    let mut lines: usize = 0;
    let mut costs = Vec::new();
    while started.elapsed() < LENGTH {
        thread::sleep(Duration::from_millis(50));
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        if read_at.elapsed() < INTERVAL {
            continue;
        }
        server.must_be_alive()?;
        load.must_be_alive()?;
        let elapsed = read_at.elapsed();
        read_at = Instant::now();
        let now = agent.read(server)?;
        if lines.is_multiple_of(HEADING_EVERY) {
            println!("{HEADING}");
        }
        println!("{}", line(started.elapsed(), elapsed, &before, &now));
        lines += 1;
        costs.extend(now.sum(OVERHEAD, &[]));
        before = now;
    }
    Ok(costs)
}

const CALLS: &str = "evictscope_eviction_calls_total";
const DURATION: &str = "evictscope_eviction_call_duration_seconds";
const OVERHEAD: &str = "evictscope_overhead_ratio";
const EVICTING: (&str, &str) = ("kind", "evicting");

const HEADING: &str = "    time  evicting calls/s  p50      p99      mem_tofree p50  p99       \
                       client buffers  evicted keys/s  used memory  probe cost";

/// What happened between two readings.
fn line(time: Duration, elapsed: Duration, before: &Reading, now: &Reading) -> String {
    let rate = |name, labels: &[(&str, &str)]| {
        let (before, now) = (before.sum(name, labels), now.sum(name, labels));
        now.map_or_else(unknown, |now| {
            count((now - before.unwrap_or(0.0)) / elapsed.as_secs_f64())
        })
    };
    let histogram = |name, labels: &[(&str, &str)]| {
        now.histogram(name, labels)
            .since(&before.histogram(name, labels))
    };
    let duration = histogram(DURATION, &[EVICTING]);
    let goal = histogram("evictscope_mem_tofree_bytes", &[]);
    format!(
        "{:>6} s  {:<16}  {:<7}  {:<7}  {:<14}  {:<8}  {:<14}  {:<14}  {:<11}  {}",
        time.as_secs(),
        rate(CALLS, &[EVICTING]),
        quantile(&duration, 0.50, duration_text),
        quantile(&duration, 0.99, duration_text),
        quantile(&goal, 0.50, bytes),
        quantile(&goal, 0.99, bytes),
        now.sum("evictscope_client_buffers_bytes", &[])
            .map_or_else(unknown, bytes),
        rate("evictscope_evicted_keys_total", &[]),
        now.sum("evictscope_used_memory_bytes", &[])
            .map_or_else(unknown, bytes),
        now.sum(OVERHEAD, &[]).map_or_else(unknown, percent),
    )
}

/// What happened from beginning to end.
fn summary(reading: &Reading, loaded: Duration, costs: &[f64]) -> String {
    let mut text = String::new();
    let mut add = |label: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {label:<28}{value}");
    };
    for (label, kind) in [("evicting calls", "evicting"), ("no-op calls", "noop")] {
        let calls = reading.sum(CALLS, &[("kind", kind)]);
        let value = match calls {
            Some(calls) if calls > 0.0 => count(calls),
            _ if kind == "noop" => "not counted in this probe mode".to_owned(),
            _ => "none".to_owned(),
        };
        add(label, value);
        let duration = reading.histogram(DURATION, &[("kind", kind)]);
        if duration.count() > 0.0 {
            add("  duration", percentiles(&duration, duration_text));
        }
    }
    let goal = reading.histogram("evictscope_mem_tofree_bytes", &[]);
    add("mem_tofree", percentiles(&goal, bytes));
    let buffers = reading.histogram("evictscope_client_buffers_sample_bytes", &[]);
    let peak = reading
        .sum("evictscope_client_buffers_peak_bytes", &[])
        .map_or_else(unknown, bytes);
    add(
        "client buffers",
        format!("{}, peak {peak}", percentiles(&buffers, bytes)),
    );
    let evicted = reading.sum("evictscope_evicted_keys_total", &[]);
    add("evicted keys", evicted.map_or_else(unknown, count));
    add("under load for", process::seconds(loaded));
    let mut label = "probe hits";
    for (probe, hits) in reading.by_label("evictscope_probe_hits_total", "probe") {
        let rate = count(hits / loaded.as_secs_f64());
        add(label, format!("{probe}: {}, {rate} a second", count(hits)));
        label = "";
    }
    let most = costs.iter().copied().fold(0.0, f64::max);
    let average = costs.iter().sum::<f64>() / costs.len().max(1) as f64;
    add(
        "probes cost",
        format!(
            "{} of the main thread on average, {} at most",
            percent(average),
            percent(most)
        ),
    );
    format!("Summary, from /metrics alone:\n{}", text)
}

fn percentiles(histogram: &Histogram, text: fn(f64) -> String) -> String {
    format!(
        "p50 {}, p99 {} ({} values)",
        quantile(histogram, 0.50, text),
        quantile(histogram, 0.99, text),
        count(histogram.count())
    )
}

fn quantile(histogram: &Histogram, quantile: f64, text: fn(f64) -> String) -> String {
    histogram.quantile(quantile).map_or_else(unknown, text)
}

fn unknown() -> String {
    "-".to_owned()
}

fn count(value: f64) -> String {
    HumanCount(value.round().max(0.0) as u64).to_string()
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn bytes(value: f64) -> String {
    BinaryBytes(value.round().max(0.0) as u64).to_string()
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
