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
    client::Client, fill::Filler, generator::Generator, latency, parameters::Parameters,
    record::Measured, recorder::Recorder, sample::Sample, scenario::Plan, schedule::Pace,
};

/// How long the capacity is measured each time.
const CALIBRATION: Duration = Duration::from_millis(1500);

/// How often the capacity is measured. The best counts, because other programs can only lower it.
const CALIBRATIONS: u32 = 4;

/// Unanswered requests meanwhile: enough to keep the server busy, and so few that its replies leave at once.
const CALIBRATION_UNANSWERED: u64 = 200;

/// How long the clients then run at the rate of the load, so that their buffers get their sizes.
const WARM_UP: Duration = Duration::from_secs(5);

/// How long they run at that rate now and then, so that their buffers keep these sizes.
const WARM: Duration = Duration::from_millis(50);

/// How long the backlog may take to be answered between two parts.
const SETTLE: Duration = Duration::from_secs(20);

/// The server's replication backlog where no replica comes, which is Redis's own default.
const DEFAULT_BACKLOG: u64 = 1024 * 1024;

/// Files that the server and the lab open beside one for each connection.
const OTHER_FILES: u64 = 512;

/// Starts the server on its core.
pub fn start_server(parameters: &Parameters, cores: Option<&Cores>) -> Result<Redis> {
    allow_open_files(parameters.connections)?;
    let replica = parameters.replica.as_ref();
    let backlog = replica.map_or(DEFAULT_BACKLOG, |replica| replica.backlog);
    let others = cores.map_or(&[][..], |cores| &cores.others[..]);
    let others: Vec<String> = others.iter().map(usize::to_string).collect();
    let others = others.join(",");
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
            &parameters.clients_limit.to_string(),
            "--lazyfree-lazy-eviction",
            if parameters.lazy_eviction {
                "yes"
            } else {
                "no"
            },
            "--latency-monitor-threshold",
            latency::THRESHOLD,
            "--repl-backlog-size",
            &backlog.to_string(),
            // A replica gets all data from a child process, as soon as it asks for it and over its connection.
            "--repl-diskless-sync",
            "yes",
            "--repl-diskless-sync-delay",
            "0",
            "--bgsave_cpulist",
            &others,
            "--maxclients",
            // The recorder connects, and a replica.
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

/// What is ready for the load.
pub struct Prepared {
    /// The clients.
    pub generator: Generator,
    /// What asks the server for its numbers.
    pub recorder: Recorder,
    /// What was measured.
    pub measured: Measured,
}

/// Connects the clients, measures the capacity, warms up and fills.
pub fn prepare(
    plan: &Plan,
    port: u16,
    progress: &Progress,
    interrupted: &AtomicBool,
) -> Result<Prepared> {
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
    let mut filler = Filler::begin(port, parameters, &mut generator.workload)?;

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

    filler.fit_lives(&mut generator.workload, rate)?;
    step("warming up")?;
    run_for(&mut generator, Pace::Rate(rate), WARM_UP)?;
    generator.settle(SETTLE)?;
    step("filling up")?;
    filler.fill_up(&mut generator, rate, |generator| {
        run_for(generator, Pace::Rate(rate), WARM)
    })?;
    generator.settle(SETTLE)?;
    let recorder = Recorder::connect(port, parameters.connections)?;
    let maxmemory = filler.set_limit()?;
    step("starting the load")?;
    let measured = Measured {
        capacity,
        cpu_share,
        rate,
        key_bytes: filler.key_bytes,
        maxmemory,
    };
    Ok(Prepared {
        generator,
        recorder,
        measured,
    })
}
