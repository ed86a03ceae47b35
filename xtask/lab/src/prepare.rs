//! Before the record begins: a filled server, connected clients, and the rate of the load.
//!
//! Machines differ, and so does one machine from hour to hour. The rate is therefore a share of the capacity that was
//! just measured below the limit, with the same clients and requests.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{cores::Cores, progress::Progress, redis::Redis};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{
    client::Client,
    generator::Generator,
    record::Measured,
    sample::Sample,
    scenario::{Parameters, Plan},
    schedule::Pace,
};

/// How far the server is filled before its clients do anything, as a share of the memory that the load begins
/// with. The clients' buffers, and what they write while the capacity is measured, must find room.
const FILLED_AT_FIRST: f64 = 0.4;

/// Keys with which the size of a key is measured.
const FIRST_KEYS: usize = 50_000;

/// Keys that are written between two looks at the server's memory. Its hash tables grow by megabytes at once.
const FILLED_AT_ONCE: usize = 10_000;

/// How long the capacity is measured each time.
const CALIBRATION: Duration = Duration::from_millis(1500);

/// How often the capacity is measured. The best counts, because other programs can only lower it.
const CALIBRATIONS: u32 = 4;

/// Unanswered requests meanwhile: enough to keep the server busy, and so few that its replies leave at once.
const CALIBRATION_UNANSWERED: u64 = 200;

/// How long the clients then run at the rate of the load, so that their buffers get their sizes.
const WARM_UP: Duration = Duration::from_secs(5);

/// How long the backlog may take to be answered between two parts.
const SETTLE: Duration = Duration::from_secs(20);

/// Files that the server and the lab open beside one for each connection.
const OTHER_FILES: u64 = 512;

/// Starts the server on its core.
pub fn start_server(parameters: &Parameters, cores: Option<&Cores>) -> Result<Redis> {
    allow_open_files(parameters.connections)?;
    let start = || {
        Redis::start(&[
            "--maxmemory",
            &parameters.maxmemory.to_string(),
            "--maxmemory-policy",
            parameters.policy,
            "--maxmemory-eviction-tenacity",
            &parameters.tenacity.to_string(),
            "--maxmemory-samples",
            &parameters.samples.to_string(),
            "--active-expire-effort",
            &parameters.effort.to_string(),
            // With it, active expiry can be switched off and on.
            "--enable-debug-command",
            "local",
            // Far more than the clients take. It makes the server account for a client after each command.
            // Otherwise it visits a tenth of them in each round of its event loop, and is ten rounds late.
            "--maxmemory-clients",
            "4gb",
            "--maxclients",
            // The recorder connects, too.
            &(parameters.connections + 1024).to_string(),
        ])
    };
    match cores {
        Some(cores) => cores.on_the_servers(start),
        None => start(),
    }
}

/// Lets this process, and those that it starts, open a socket for each connection.
fn allow_open_files(connections: usize) -> Result<()> {
    let needed = connections as u64 + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    ensure!(
        limit.maximum.is_none_or(|maximum| maximum >= needed),
        "{connections} connections need {needed} open files, and no more than {} are allowed: \
         raise the limit (`ulimit -Hn {needed}` as root), or ask for fewer with --connections",
        limit.maximum.unwrap_or_default()
    );
    let raised = Rlimit {
        current: Some(needed),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised)
        .with_context(|| format!("cannot raise the limit of open files to {needed}"))
}

/// Connects the clients, measures the capacity, warms up and fills.
pub fn prepare(
    plan: &Plan,
    port: u16,
    progress: &Progress,
    interrupted: &AtomicBool,
) -> Result<(Generator, Measured)> {
    let parameters = &plan.parameters;
    let step = |text: &str| {
        progress.show(text.to_owned());
        ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
        Ok(())
    };
    step("connecting the clients")?;
    let mut generator = Generator::connect(port, parameters)?;
    let mut client = Client::connect(port)?;
    let mut sample = || Sample::take(&mut client);

    step("filling")?;
    let mut filler = Client::connect(port)?;
    let empty = sample()?.used_memory;
    filler.fill(&mut generator.workload, FIRST_KEYS)?;
    let key_bytes = sample()?.used_memory.saturating_sub(empty) / FIRST_KEYS as u64;
    ensure!(key_bytes > 0, "the redis-server keeps no keys");
    let first = (parameters.filled as f64 * FILLED_AT_FIRST) as u64;
    let keys = |to: u64, from: u64| (to.saturating_sub(from) / key_bytes) as usize;
    filler.fill(&mut generator.workload, keys(first, sample()?.used_memory))?;

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
        // By CPU time, because other programs on this core take some of the time.
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
        filler.fill(&mut generator.workload, missing.min(FILLED_AT_ONCE))?;
        if missing <= FILLED_AT_ONCE {
            break;
        }
    }
    step("starting the load")?;
    let measured = Measured {
        capacity,
        cpu_share,
        rate,
        key_bytes,
    };
    Ok((generator, measured))
}
