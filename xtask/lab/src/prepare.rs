//! Before the load begins: a filled server, connected clients, and the rate of the load.
//!
//! Machines differ, and so does one machine from hour to hour. The rate is therefore the one that keeps the server's
//! main thread as busy as the scenario wants it, given the CPU time that a request takes at that rate.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::redis::Redis;
use evictscope_testkit::text::Progress;
use evictscope_testkit::threads::Cores;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::generator::{Generator, Workload};
use crate::pace::{LoadCounts, Pacer, Rate};
use crate::scenario::{Parameters, RunPlan};
use crate::seen::{InfoSample, THRESHOLD};

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

/// Starts the server of a run on the first of these cores.
pub fn start_server(parameters: &Parameters, cores: Option<&Cores>) -> Result<Redis> {
    allow_open_files(parameters.connections)?;
    let others = cores.map_or(&[][..], |cores| &cores.others[..]);
    let others = Vec::from_iter(others.iter().map(usize::to_string)).join(",");
    // With DEBUG, active expiry can be switched off and on. The limit of clients' memory is far more than they take: it
    // makes the server account for a client after each command. Otherwise it visits a tenth of them in each round of
    // its event loop, and is ten rounds late. A replica gets all data from a child process over its connection, as soon
    // as it asks. What asks the server for its numbers also connects, and so does a visitor.
    let options = format!(
        "--maxmemory {} --maxclients {} --maxmemory-clients 4gb --enable-debug-command local --latency-monitor-threshold {THRESHOLD} \
         --lazyfree-lazy-eviction no --repl-diskless-sync yes --repl-diskless-sync-delay 0 {} {}",
        parameters.maxmemory,
        parameters.connections + 1024,
        parameters.options,
        parameters.remedy,
    );
    let mut options: Vec<&str> = options.split_whitespace().collect();
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

/// The server before the load, and the rate that follows from it.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Replies per second of CPU time of the main thread, at about the rate of the load and below the limit.
    pub capacity: f64,
    /// Requests due a second when the load began.
    pub rate: f64,
    /// The size of a key in the server's memory, in bytes.
    pub key_bytes: u64,
    /// The limit under load, in bytes.
    pub maxmemory: u64,
}

pub fn prepare(
    plan: &RunPlan,
    server: &Redis,
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
    let mut generator = Generator::connect(server, parameters)?;
    step("filling")?;
    let filler = Filler::begin(server, parameters, &mut generator.workload)?;

    let rate = Rate::new(plan.rate.unwrap_or(GUESS));
    let run_for = |generator: &mut Generator, time: Duration, tell: &mut dyn FnMut(LoadCounts)| {
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
    let (before, after) = loads.first().zip(loads.last()).context("the clients did nothing")?;
    let answered = after.totals.answered - before.totals.answered;
    let capacity = answered as f64 / (after.running - before.running);
    ensure!(capacity > 0.0, "the redis-server answered nothing");
    rate.set(plan.rate.unwrap_or(capacity * parameters.busy).max(1.0));
    filler.fill_up(&mut generator, |generator| run_for(generator, WARM, &mut |_| {}))?;
    generator.settle()?;
    let mut maxmemory = parameters.maxmemory;
    if let Some(room) = parameters.room {
        maxmemory = filler.used()? + room;
        server.config_set("maxmemory", &maxmemory.to_string())?;
    }
    step("starting the load")?;
    Ok((generator, Measured { capacity, rate: rate.get(), key_bytes: filler.key_bytes, maxmemory }))
}

/// How far the server is filled before its clients do anything, as a share of the memory that the load begins with. The
/// clients' buffers, and what they write while the capacity is measured, must still fit.
const FILLED_AT_FIRST: f64 = 0.4;

/// Keys with which the size of a key is measured.
const FIRST_KEYS: u64 = 50_000;

/// Keys that are written between two looks at the server's memory, by one script. Its hash tables grow by megabytes at
/// once.
const FILLED_AT_ONCE: u64 = 10_000;

/// Writes the keys from the first number to the last as the clients do, with values of this length, and with the times
/// to live, in milliseconds, that keys written some time ago have left. A key that lives long is met more often, at any
/// time of its life: if lives are spread evenly up to the longest, the density of what is left of them falls linearly.
const WRITE_KEYS: &str = include_str!("scripts/write_keys.lua");

const FIELDS_AT_ONCE: usize = 100_000;

/// Writes fields of a hash from the first one to the last one. Their values are all the same.
const WRITE_FIELDS: &str = "for i = ARGV[1], ARGV[2] do redis.call('HSET', KEYS[1], 'field:' .. i, 'value') end";

struct Filler<'a> {
    server: &'a Redis,
    parameters: &'a Parameters,
    /// The size of a key, in bytes.
    key_bytes: u64,
}

impl<'a> Filler<'a> {
    /// Writes the big key, if there is to be one, and as many others as there may be before the clients do anything.
    /// Measures the size of a key.
    fn begin(server: &'a Redis, parameters: &'a Parameters, workload: &mut Workload) -> Result<Self> {
        for first in (1..=parameters.big_key_fields).step_by(FIELDS_AT_ONCE) {
            let last = (first + FIELDS_AT_ONCE as u64 - 1).min(parameters.big_key_fields);
            script(server, &[WRITE_FIELDS, "1", "big", &first.to_string(), &last.to_string()])?;
        }
        let mut filler = Self { server, parameters, key_bytes: 0 };
        let empty = filler.used()?;
        filler.write(workload, FIRST_KEYS)?;
        let used = filler.used()?;
        filler.key_bytes = used.saturating_sub(empty) / FIRST_KEYS;
        ensure!(filler.key_bytes > 0, "the redis-server keeps no keys");
        let first = (parameters.filled as f64 * FILLED_AT_FIRST) as u64;
        filler.write(workload, first.saturating_sub(used) / filler.key_bytes)?;
        Ok(filler)
    }

    /// Fills up to what the load begins with. Calls `keep_warm` now and then to run the clients for a moment: Redis
    /// takes buffers away from idle clients.
    fn fill_up(
        &self,
        generator: &mut Generator,
        mut keep_warm: impl FnMut(&mut Generator) -> Result<()>,
    ) -> Result<()> {
        loop {
            if self.parameters.room.is_some() {
                keep_warm(generator)?;
            }
            let missing = self.parameters.filled.saturating_sub(self.used()?) / self.key_bytes;
            self.write(&mut generator.workload, missing.min(FILLED_AT_ONCE))?;
            if missing <= FILLED_AT_ONCE {
                return Ok(());
            }
        }
    }

    /// Writes new keys as if they had been written some time ago.
    fn write(&self, workload: &mut Workload, keys: u64) -> Result<()> {
        let mix = &self.parameters.mix;
        let (bytes, longest) = (mix.value_bytes.to_string(), (mix.longest_life * 1e3).to_string());
        let end = workload.new_keys(keys) + keys;
        for first in (end - keys..end).step_by(FILLED_AT_ONCE as usize) {
            let last = (first + FILLED_AT_ONCE).min(end) - 1;
            let (first, last) = (first.to_string(), last.to_string());
            script(self.server, &[WRITE_KEYS, "0", &first, &last, &bytes, &longest, &mix.lives_differ.to_string()])?;
        }
        Ok(())
    }

    fn used(&self) -> Result<u64> {
        Ok(InfoSample::take(self.server)?.used_memory)
    }
}

/// Runs a script that answers nothing unless something is wrong.
fn script(server: &Redis, words: &[&str]) -> Result<()> {
    let answer = server.cli(&[&["eval"], words].concat())?;
    ensure!(answer.trim().is_empty(), "the redis-server of the lab is not filled: {answer}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use evictscope_testkit::servers;

    use super::*;

    #[test]
    fn of_an_even_spread_most_have_little_left() -> Result<()> {
        if servers::find_or_skip(servers::DEBIAN)?.is_none() {
            return Ok(());
        }
        let redis = Redis::start(&[])?;
        script(&redis, &[WRITE_KEYS, "0", "0", "19999", "1", "120000", "true"])?;
        let short = "local keys = 0 for i = 0, 19999 do \
            if redis.call('PTTL', string.format('key:%010d', i)) < 60000 then keys = keys + 1 end end return keys";
        let first_half = redis.cli(&["eval", short, "0"])?.trim().parse::<f64>()? / 20_000.0;
        assert!((0.73..0.77).contains(&first_half), "{first_half}");
        Ok(())
    }
}
