//! Before the record begins: a filled server, connected clients, and the rate of the load.
//!
//! Machines differ, and so does one machine from hour to hour. The rate is therefore the one that keeps the server's
//! main thread as busy as the scenario wants it, given the CPU time that a request takes at that rate.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::cores::Cores;
use evictscope_testkit::progress::Progress;
use evictscope_testkit::redis::Redis;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::client::THRESHOLD;
use crate::counts::Load;
use crate::fill::Filler;
use crate::generator::Generator;
use crate::observer::Measured;
use crate::recorder::Recorder;
use crate::scenario::{Parameters, Plan};
use crate::schedule::{Pacer, Rate};

/// The rate with which the search for one begins: no machine is too slow for it.
const GUESS: f64 = 500.0;

/// How long to search for the rate: six looks.
const SEARCH: Duration = Duration::from_millis(3500);

/// How long the clients then run at that rate, so that their buffers get their sizes.
const WARM_UP: Duration = Duration::from_secs(5);

/// How long they now and then run at the rate of the load, so that their buffers keep these sizes.
const WARM: Duration = Duration::from_millis(50);

/// Files that the server and the lab open besides one for each connection.
const OTHER_FILES: u64 = 512;

pub fn start_server(parameters: &Parameters, cores: Option<&Cores>) -> Result<Redis> {
    allow_open_files(parameters.connections)?;
    let others = cores.map_or(&[][..], |cores| &cores.others[..]);
    let others: Vec<String> = others.iter().map(usize::to_string).collect();
    let lazy_eviction = if parameters.lazy_eviction {
        "yes"
    } else {
        "no"
    };
    let directives = [
        ("maxmemory", parameters.maxmemory.to_string()),
        ("maxmemory-policy", parameters.policy.to_owned()),
        ("maxmemory-samples", parameters.samples.to_string()),
        ("active-expire-effort", parameters.effort.to_string()),
        // With it, active expiry can be switched off and on.
        ("enable-debug-command", "local".to_owned()),
        // Far more than the clients take. It makes the server account for a client after each command.
        // Otherwise it visits a tenth of them in each round of its event loop, and is ten rounds late.
        ("maxmemory-clients", "4gb".to_owned()),
        ("lazyfree-lazy-eviction", lazy_eviction.to_owned()),
        ("latency-monitor-threshold", THRESHOLD.to_owned()),
        ("repl-backlog-size", parameters.backlog.to_string()),
        (
            "client-output-buffer-limit",
            parameters.subscribers_limit.to_owned(),
        ),
        // A replica gets all data from a child process over its connection, as soon as it asks.
        ("repl-diskless-sync", "yes".to_owned()),
        ("repl-diskless-sync-delay", "0".to_owned()),
        ("bgsave_cpulist", others.join(",")),
        // The recorder and a replica also connect.
        ("maxclients", (parameters.connections + 1024).to_string()),
    ];
    let options = directives.map(|(directive, value)| [format!("--{directive}"), value]);
    let options: Vec<&str> = options.as_flattened().iter().map(String::as_str).collect();
    match cores {
        Some(cores) => cores.on_the_servers(|| Redis::start(&options)),
        None => Redis::start(&options),
    }
}

/// Lets this process, and those that it starts, open a socket for each connection.
fn allow_open_files(connections: usize) -> Result<()> {
    let needed = connections as u64 + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(needed),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).with_context(|| {
        format!("cannot raise the limit of open files: run `ulimit -Hn {needed}` as root")
    })
}

/// What is ready for the load.
pub struct Prepared {
    /// The clients.
    pub generator: Generator,
    /// What asks the server for its numbers.
    pub recorder: Recorder,
    pub measured: Measured,
}

/// Connects the clients, finds the rate, warms up and fills.
pub fn prepare(
    plan: &Plan,
    server: &Redis,
    progress: &Progress,
    interrupted: &AtomicBool,
) -> Result<Prepared> {
    let (parameters, port) = (&plan.parameters, server.port());
    let step = |text: &str| {
        progress.show(text.to_owned());
        ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
        Ok(())
    };
    step("connecting the clients")?;
    let mut generator = Generator::connect(server, parameters)?;

    step("filling")?;
    let mut filler = Filler::begin(port, parameters, &mut generator.workload)?;

    let rate = Rate::new(plan.rate.unwrap_or(GUESS));
    let run_for = |generator: &mut Generator, time: Duration, tell: &mut dyn FnMut(Load)| {
        let begun = Instant::now();
        generator.run(&rate, tell, |_| {
            begun.elapsed() >= time || interrupted.load(Ordering::Relaxed)
        })
    };
    if plan.rate.is_none() {
        step("finding the rate")?;
        let mut pacer = Pacer::finds(parameters.busy);
        run_for(&mut generator, SEARCH, &mut |load| {
            if let Some(found) = pacer.look(rate.get(), &load) {
                rate.set(found);
            }
        })?;
        generator.settle()?;
    }
    step("warming up")?;
    let mut loads = Vec::new();
    run_for(&mut generator, WARM_UP, &mut |load| loads.push(load))?;
    generator.settle()?;
    step("filling up")?;
    let (before, after) = (loads.first().zip(loads.last())).context("the clients did nothing")?;
    let answered = after.totals.answered - before.totals.answered;
    let capacity = answered as f64 / (after.running - before.running);
    ensure!(capacity > 0.0, "the redis-server answered nothing");
    rate.set(plan.rate.unwrap_or(capacity * parameters.busy).max(1.0));
    filler.fill_up(&mut generator, rate.get(), |generator| {
        run_for(generator, WARM, &mut |_| {})
    })?;
    generator.settle()?;
    let recorder = Recorder::connect(port, parameters.connections)?;
    let maxmemory = filler.set_limit()?;
    step("starting the load")?;
    let measured = Measured {
        capacity,
        rate: rate.get(),
        key_bytes: filler.key_bytes,
        maxmemory,
    };
    Ok(Prepared {
        generator,
        recorder,
        measured,
    })
}
