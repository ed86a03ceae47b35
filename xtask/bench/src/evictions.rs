//! `cargo xtask bench evictions`: what evicting a key costs the main thread, by its size, as the agent measures it. The
//! table in `telemetry/src/cycle/lab_costs.rs` is what this printed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use evictscope_testkit::agent::Agent;
use evictscope_testkit::process;
use evictscope_testkit::redis::Redis;

use crate::probes::Spread;

/// Bytes of the values.
const SIZES: [u32; 6] = [16, 200, 1_000, 4_000, 16_000, 64_000];
/// Bytes of values written for each measurement, counting each value as at least 100: several times the limit.
const WRITTEN: u32 = 1 << 30;
const LIMIT: &str = "256mb";

/// What to measure, and how often.
#[derive(Clone, clap::Args)]
pub struct Arguments {
    /// Rounds, each of which measures every size once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// A redis-server or valkey-server other than the one on PATH
    #[arg(long, value_name = "PATH", default_value = "redis-server")]
    server: PathBuf,
}

pub fn run(arguments: &Arguments, agent: &Path) -> Result<()> {
    let mut costs = SIZES.map(|_| Vec::new());
    let mut bytes = SIZES.map(|_| 0.0);
    for _ in 0..arguments.rounds {
        for (index, size) in SIZES.iter().enumerate() {
            let (key, cost) = measure(arguments, *size, agent)?;
            bytes[index] = key;
            costs[index].push(cost);
        }
    }
    println!("bytes of a value  of a key  ns to evict one: median [quartiles] (least … greatest)");
    for ((size, key), costs) in SIZES.iter().zip(bytes).zip(costs) {
        println!("{size:>16} {key:>9.0}  {}", Spread::of(costs).text(0));
    }
    Ok(())
}

/// Returns the bytes that a key takes, and the CPU time of evicting one, nanoseconds.
fn measure(arguments: &Arguments, size: u32, agent: &Path) -> Result<(f64, f64)> {
    const CPU: &str = "evictscope_main_thread_cpu_seconds_total";
    const KEYS: &str = "evictscope_evicted_keys_total";
    let program = Command::new(&arguments.server);
    let redis = Redis::start_program(program, &["--maxmemory", LIMIT])?;
    let write = || {
        let requests = WRITTEN / size.max(100);
        let load = format!("-t set -r 1000000000 -P 16 -c 4 -d {size} -n {requests}");
        process::answer_of(&mut redis.benchmark(&load))
    };
    write()?;
    let key = redis.info("used_memory")? / redis.cli(&["DBSIZE"])?.trim().parse::<f64>()?;
    let agent = Agent::of(agent, &[])?;
    agent.watches(&redis)?;
    let read = || {
        let scrape = agent.settled_reading(&redis)?;
        let cpu = scrape.sum(CPU, &[("activity", "eviction")])?;
        anyhow::Ok((cpu, scrape.sum(KEYS, &[])?))
    };
    let before = read()?;
    write()?;
    let after = read()?;
    Ok((key, (after.0 - before.0) * 1e9 / (after.1 - before.1)))
}
