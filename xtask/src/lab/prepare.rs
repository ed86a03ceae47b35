//! Before the record begins: a filled server, connected clients, and the rate of the load.
//!
//! Machines differ, and so does one machine from hour to hour. The rate is therefore a share of what
//! the server was just measured to answer below its limit, with the same clients and requests.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use super::{
    client::Client,
    clock::Clock,
    cores::{self, Cores},
    generator::Generator,
    info::Sample,
    run::Plan,
    scenario::Parameters,
    schedule::Pace,
    workload::Workload,
};
use crate::{process::Progress, redis::Server};

/// How much of what it begins the load with the server holds before its clients do anything: their
/// buffers and what they write while the capacity is measured, half as much again, must not fill it
/// further than that.
const FILLED_AT_FIRST: f64 = 0.4;

/// Keys by which it is measured what a key takes.
const FIRST_KEYS: u64 = 50_000;

/// Keys that are filled in before it is looked again how full the server is: its hash tables grow by
/// megabytes at once.
const FILLED_AT_ONCE: u64 = 10_000;

/// How long the capacity is measured each time.
const CALIBRATION: Duration = Duration::from_millis(1500);

/// How often: the best is taken, since others on the machine only ever take away from it.
const CALIBRATIONS: u32 = 4;

/// Requests unanswered meanwhile: enough to keep the server busy, few enough for its replies to
/// leave at once.
const CALIBRATION_UNANSWERED: u64 = 200;

/// How long the clients then run at the rate of the load: within, buffers get their size.
const WARM_UP: Duration = Duration::from_secs(5);

/// How long the backlog may take to be answered between two parts.
const SETTLE: Duration = Duration::from_secs(20);

/// All that the load needs.
pub struct Ready {
    /// The clients.
    pub generator: Generator,
    /// Replies for each second of CPU time that the server's main thread had, busy all the time.
    pub capacity: f64,
    /// That CPU time as a share of the time that passed: well below 1, and others were on its core,
    /// or the generator could not keep it busy.
    pub cpu_share: f64,
    /// Requests a second that are to be due.
    pub rate: f64,
    /// What one key takes of the server's memory, in bytes.
    pub key_bytes: u64,
}

/// Starts the server on its core, and leaves this thread on the lab's.
pub fn start_server(parameters: &Parameters, cores: Option<Cores>) -> Result<Server> {
    cores::allow_connections(parameters.connections)?;
    if let Some(cores) = cores {
        cores::pin(cores.server)?;
    }
    let server = Server::start_with(
        &parameters.maxmemory.to_string(),
        &[
            // The last one counts.
            "--maxmemory-policy",
            parameters.policy,
            "--maxmemory-eviction-tenacity",
            &parameters.tenacity.to_string(),
            "--maxmemory-samples",
            &parameters.samples.to_string(),
            // Far more than the clients take: it makes the server account for each client after each
            // command, where it else visits a tenth of them in each round of its event loop, and is
            // ten rounds late when it matters.
            "--maxmemory-clients",
            "4gb",
            "--maxclients",
            // And the recorder's.
            &(parameters.connections + 1024).to_string(),
        ],
    );
    if let Some(cores) = cores {
        cores::pin(cores.lab)?;
    }
    server
}

/// Connects the clients, measures the capacity, warms up and fills.
pub fn prepare(
    plan: &Plan,
    port: u16,
    clock: Clock,
    progress: &Progress,
    interrupted: &AtomicBool,
) -> Result<Ready> {
    let parameters = &plan.parameters;
    let step = |text: &str| {
        progress.show(text.to_owned());
        progress.sign_of_life();
        ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
        Ok(())
    };
    step("connecting the clients")?;
    let mut generator = Generator::connect(
        port,
        parameters.connections,
        parameters.most_under_way,
        Workload::new(parameters.mix),
        clock,
    )?;
    let mut client = Client::connect(port)?;
    let mut sample = || Sample::take(&mut client, &clock);

    step("filling")?;
    let mut filler = Client::connect(port)?;
    let empty = sample()?.used_memory;
    filler.fill(generator.workload(), FIRST_KEYS)?;
    let key_bytes = sample()?.used_memory.saturating_sub(empty) / FIRST_KEYS;
    ensure!(key_bytes > 0, "the redis-server keeps no keys");
    let first = (parameters.filled as f64 * FILLED_AT_FIRST) as u64;
    let keys = |to: u64, from: u64| to.saturating_sub(from) / key_bytes;
    filler.fill(generator.workload(), keys(first, sample()?.used_memory))?;

    let run_for = |generator: &mut Generator, pace: Pace, time: Duration| -> Result<()> {
        let begun = Instant::now();
        generator.run(
            pace,
            |_| {},
            |_| begun.elapsed() >= time || interrupted.load(Ordering::Relaxed),
        )
    };
    step("measuring what the server can answer")?;
    let pace = Pace::Unanswered(CALIBRATION_UNANSWERED);
    let (mut capacity, mut cpu_share) = (0.0, 0.0);
    for _ in 0..CALIBRATIONS {
        let (before, answered_before) = (sample()?, generator.totals().answered);
        run_for(&mut generator, pace, CALIBRATION)?;
        let (after, answered) = (sample()?, generator.totals().answered - answered_before);
        // By its CPU time: what others on this core take from it does not count.
        let cpu = after.main_thread_cpu - before.main_thread_cpu;
        ensure!(cpu > 0.0, "the redis-server answered nothing");
        if answered as f64 / cpu > capacity {
            capacity = answered as f64 / cpu;
            cpu_share = cpu / (after.at - before.at);
        }
    }
    generator.settle(SETTLE)?;
    let rate = plan
        .rate
        .unwrap_or(capacity * parameters.share_of_capacity)
        .max(1.0);

    step("warming up")?;
    run_for(&mut generator, Pace::Rate(rate), WARM_UP)?;
    generator.settle(SETTLE)?;
    step("filling up")?;
    loop {
        let missing = keys(parameters.filled, sample()?.used_memory);
        filler.fill(generator.workload(), missing.min(FILLED_AT_ONCE))?;
        if missing <= FILLED_AT_ONCE {
            break;
        }
    }
    step("starting the load")?;
    Ok(Ready {
        generator,
        capacity,
        cpu_share,
        rate,
        key_bytes,
    })
}
