//! Before the load begins: a filled server, connected clients, and the rate of the load.
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

use crate::client::{Client, Sample, THRESHOLD};
use crate::counts::Load;
use crate::generator::Generator;
use crate::observer::{Measured, Recorder};
use crate::scenario::{Filled, Parameters, Plan};
use crate::schedule::{Pacer, Rate};
use crate::workload::Workload;

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
    // With DEBUG, active expiry can be switched off and on. The limit of clients' memory is far more than they take: it
    // makes the server account for a client after each command. Otherwise it visits a tenth of them in each round of
    // its event loop, and is ten rounds late. A replica gets all data from a child process over its connection, as soon
    // as it asks. The recorder and a replica also connect.
    let options = format!(
        "--maxmemory {} --maxclients {} --maxmemory-clients 4gb --enable-debug-command local --latency-monitor-threshold {THRESHOLD} \
         --lazyfree-lazy-eviction no --repl-diskless-sync yes --repl-diskless-sync-delay 0 {} {}",
        parameters.maxmemory,
        parameters.connections + 1024,
        parameters.options,
        parameters.remedy,
    );
    let mut options: Vec<&str> = options.split_whitespace().collect();
    let others = others.join(",");
    options.extend(["--bgsave_cpulist", &others]);
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
    let raised = Rlimit { current: Some(needed), maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised)
        .with_context(|| format!("cannot raise the limit of open files: run `ulimit -Hn {needed}` as root"))
}

pub struct Prepared {
    pub generator: Generator,
    pub recorder: Recorder,
    pub measured: Measured,
}

/// Connects the clients, finds the rate, warms up and fills.
pub fn prepare(plan: &Plan, server: &Redis, progress: &Progress, interrupted: &AtomicBool) -> Result<Prepared> {
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
        generator.run(&rate, tell, |_| begun.elapsed() >= time || interrupted.load(Ordering::Relaxed))
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
    filler.fill_up(&mut generator, rate.get(), |generator| run_for(generator, WARM, &mut |_| {}))?;
    generator.settle()?;
    let recorder = Recorder::connect(port, parameters.connections)?;
    let maxmemory = filler.set_limit()?;
    step("starting the load")?;
    let measured = Measured { capacity, rate: rate.get(), key_bytes: filler.key_bytes, maxmemory };
    Ok(Prepared { generator, recorder, measured })
}

/// How far the server is filled before its clients do anything, as a share of the memory that the load begins with. The
/// clients' buffers, and what they write while the capacity is measured, must still fit.
const FILLED_AT_FIRST: f64 = 0.4;

/// Keys with which the size of a key is measured.
const FIRST_KEYS: usize = 50_000;

/// Keys that are written between two looks at the server's memory. Its hash tables grow by megabytes at once.
const FILLED_AT_ONCE: u64 = 10_000;

/// The number of keys for each bucket at which Redis doubles a hash table of the keys even if that exceeds the limit.
/// With fewer, from one on, it doubles the table only if the new one fits below the limit.
const DOUBLES_AT: f64 = 1.618;

/// The most that a load may write before the tables double, as a share of the room below the limit.
const ROOM_FOR_WRITES: f64 = 0.6;

/// For how long new keys are written after the tables have doubled, in seconds.
const GROWS_ON: f64 = 3.0;

/// Fields that one script writes.
const FIELDS_AT_ONCE: u64 = 100_000;

/// Writes fields of a hash from the first one to the last one. Their values are all the same.
const WRITE_FIELDS: &str =
    "for i = ARGV[1], ARGV[2] do redis.call('HSET', KEYS[1], 'field:' .. i, 'value') end return 'OK'";

#[derive(Clone, Copy)]
enum To {
    Memory(u64),
    Keys(u64),
}

pub struct Filler<'a> {
    client: Client,
    parameters: &'a Parameters,
    /// The size of a key, in bytes.
    pub key_bytes: u64,
}

impl<'a> Filler<'a> {
    /// Writes the big key, if there is to be one, and as many others as there may be before the clients do anything.
    /// Measures the size of a key.
    pub fn begin(port: u16, parameters: &'a Parameters, workload: &mut Workload) -> Result<Self> {
        let mut client = Client::connect(port)?;
        write_big_key(&mut client, parameters.big_key_fields)?;
        let empty = Sample::take(&mut client)?.used_memory;
        client.fill(workload, FIRST_KEYS)?;
        let used = Sample::take(&mut client)?.used_memory;
        let key_bytes = used.saturating_sub(empty) / FIRST_KEYS as u64;
        ensure!(key_bytes > 0, "the redis-server keeps no keys");
        let bytes = match parameters.filled {
            Filled::Memory { bytes } => bytes,
            Filled::Table { buckets, .. } => buckets * key_bytes,
        };
        let first = (bytes as f64 * FILLED_AT_FIRST) as u64;
        let missing = first.saturating_sub(used) / key_bytes;
        client.fill(workload, missing as usize)?;
        Ok(Self { client, parameters, key_bytes })
    }

    /// Fills up to what a load of `rate` requests a second begins with. Calls `keep_warm` now and then to run the
    /// clients at that rate for a moment: Redis takes buffers away from idle clients.
    pub fn fill_up(
        &mut self,
        generator: &mut Generator,
        rate: f64,
        mut keep_warm: impl FnMut(&mut Generator) -> Result<()>,
    ) -> Result<()> {
        let mut next = |filler: &mut Self, to| {
            if filler.parameters.room.is_some() {
                keep_warm(generator)?;
            }
            filler.fill_towards(&mut generator.workload, to)
        };
        match self.parameters.filled {
            Filled::Memory { bytes } => {
                while !next(self, To::Memory(bytes))? {}
                Ok(())
            }
            Filled::Table { buckets, after } => {
                while !next(self, To::Keys(buckets - FILLED_AT_ONCE))? {}
                // With this room the tables double before the keys alone reach the limit.
                let room = self.parameters.room.unwrap_or(buckets);
                let most = ROOM_FOR_WRITES * room as f64 / self.key_bytes as f64;
                let written = (rate * self.parameters.mix.set_share * after).min(most);
                let keys = (buckets as f64 * DOUBLES_AT - written) as u64;
                // The limit is never so far above the used memory that twice as many buckets fit.
                let room = buckets * size_of::<u64>() as u64;
                let mut is_full = false;
                while !is_full {
                    self.set_limit_above(room)?;
                    is_full = next(self, To::Keys(keys))?;
                }
                // What is evicted later would have another cause.
                let growth = written * (after + GROWS_ON) / after;
                generator.workload.end_growth_after(growth as u64);
                Ok(())
            }
        }
    }

    /// Sets the limit for the load, and returns it.
    pub fn set_limit(&mut self) -> Result<u64> {
        match self.parameters.room {
            Some(room) => self.set_limit_above(room),
            None => Ok(self.parameters.maxmemory),
        }
    }

    fn set_limit_above(&mut self, room: u64) -> Result<u64> {
        let limit = self.used()? + room;
        let set = ["CONFIG", "SET", "maxmemory", &limit.to_string()];
        self.client.call(&set)?;
        Ok(limit)
    }

    /// Writes some of the keys that are missing, and returns whether these were all.
    fn fill_towards(&mut self, workload: &mut Workload, to: To) -> Result<bool> {
        let missing = match to {
            To::Memory(bytes) => bytes.saturating_sub(self.used()?) / self.key_bytes,
            To::Keys(keys) => keys.saturating_sub(Sample::take(&mut self.client)?.keys),
        };
        let now = missing.min(FILLED_AT_ONCE);
        self.client.fill(workload, now as usize)?;
        Ok(missing == now)
    }

    fn used(&mut self) -> Result<u64> {
        Ok(Sample::take(&mut self.client)?.used_memory)
    }
}

fn write_big_key(client: &mut Client, fields: u64) -> Result<()> {
    let mut first = 1;
    while first <= fields {
        let last = (first + FIELDS_AT_ONCE - 1).min(fields);
        let (from, to) = (first.to_string(), last.to_string());
        client.call(&["EVAL", WRITE_FIELDS, "1", "big", &from, &to])?;
        first = last + 1;
    }
    Ok(())
}
