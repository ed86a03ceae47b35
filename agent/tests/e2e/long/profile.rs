//! `evictscope profile` under an evicting load, on each server that runs here.
//!
//! Judged by what an agent's probes measure at the same time: they know nothing of stacks.

use evictscope_testkit::servers::{REDIS, on_each};

use crate::prelude::*;

/// The least share of stacks that reach the thread's start.
const WHOLE: f64 = 0.99;
/// How far the share of samples in evictions may be from the share of CPU time that the probes measured, besides chance
/// and what the probes cost: the two begin and end up to some tenths of a second apart.
const APART: f64 = 0.05;
/// The server looks at so many keys for each evicted one that a call takes many times as long as the probes on it.
const SAMPLES: [&str; 2] = ["--maxmemory-samples", "64"];

struct Stack {
    /// The outermost first.
    functions: Vec<String>,
    samples: f64,
}

impl Stack {
    fn evicts(&self) -> bool {
        self.functions.iter().any(|name| name == "performEvictions")
    }

    fn is_whole(&self) -> bool {
        self.functions.first().is_some_and(|name| name == "_start")
    }
}

/// Takes a profile, and returns its stacks and the share in evictions that it reports.
fn profile(redis: &Redis, seconds: &str) -> anyhow::Result<(Vec<Stack>, f64)> {
    let mut command = evictscope();
    command.args(["profile", &redis.pid().to_string(), "--seconds", seconds]);
    // More than an operator would ask for, so that chance matters less.
    command.args(["--hz", "199", "--format", "folded"]);
    let output = command.output()?;
    let printed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{printed}");
    println!("{printed}");
    let stacks = std::str::from_utf8(&output.stdout)?.lines().map(|line| {
        let (functions, samples) = line.rsplit_once(' ').context("no number")?;
        Ok(Stack { functions: functions.split(';').map(str::to_owned).collect(), samples: samples.parse()? })
    });
    let (_, share) = printed.split_once("in evictions ").context("no share")?;
    let (share, _) = share.split_once(" %").context("no share in percent")?;
    let percent: f64 = share.parse()?;
    Ok((stacks.collect::<anyhow::Result<_>>()?, percent / 100.0))
}

/// Starts a load that makes a server evict, and waits until it does. It is killed when the result is dropped.
fn evicting(redis: &Redis) -> anyhow::Result<Owned> {
    let load = redis.load("-t set -d 500 -r 10000000 -P 4 -n 20000000")?;
    until_true("it evicts", || Ok(redis.info("evicted_keys")? > 1_000.0))?;
    Ok(load)
}

#[test]
#[ignore = "needs root and BPF"]
fn stacks_are_whole_and_say_what_ran() -> anyhow::Result<()> {
    on_each(&REDIS, |program| {
        let redis = Redis::private_of(program, &SAMPLES)?;
        let agent = Agent::watching(&redis, &["--probe-mode", "evicting-only"])?;
        judge(&redis, &agent)
    })
}

fn sum(stacks: &[Stack], wanted: fn(&Stack) -> bool) -> f64 {
    stacks.iter().filter(|stack| wanted(stack)).map(|stack| stack.samples).sum()
}

fn judge(redis: &Redis, agent: &Agent) -> anyhow::Result<()> {
    let _load = evicting(redis)?;
    let cpu = |labels: &[(&str, &str)]| agent.reading(redis)?.sum("evictscope_main_thread_cpu_seconds_total", labels);
    let in_evictions = [("activity", "eviction")];
    let waiting = || anyhow::Ok(redis.main_thread_times()?.waiting.as_secs_f64());
    let times = || anyhow::Ok((cpu(&[])?, cpu(&in_evictions)?, waiting()?));
    // On a busy machine the thread may run for a small part of the time.
    let (before, (stacks, printed), after) = until("a profile has a hundred samples", || {
        let taken = (times()?, profile(redis, "5")?, times()?);
        Ok((sum(&taken.1.0, |_| true) >= 100.0).then_some(taken))
    })?;
    let sum = |wanted| sum(&stacks, wanted);
    let all = sum(|_| true);
    let whole = sum(Stack::is_whole) / all;
    ensure!(whole >= WHOLE, "{whole} of the stacks are whole");
    let share = sum(Stack::evicts) / all;
    // It is reported to a tenth of a percent.
    ensure!((printed - share).abs() < 0.000_51, "{share} in evictions, but {printed} is said");
    let cpu = after.0 - before.0;
    let measured = (after.1 - before.1) / cpu;
    // The probes measure how long a call took, even while something else had the server's CPU.
    let waited = (after.2 - before.2) / cpu;
    // A share of n samples has this standard deviation; four of them are exceeded once in 16,000 times.
    let chance = 4.0 * (measured * (1.0 - measured) / all).sqrt();
    // Probe hits are on the stack of an evicting call, before and after the part of it that is timed.
    let probes = agent.reading(redis)?.sum("evictscope_overhead_ratio", &[])?;
    println!(
        "{all} samples, {whole} whole; in evictions {share}, by the probes {measured}, which cost {probes}; waited for {waited}"
    );
    let expected = measured - waited - chance - APART..=measured + probes + chance + APART;
    ensure!(expected.contains(&share), "{share} is not in {expected:?}");
    redis.must_be_alive()
}

/// In every-call mode a probe on the return of `performEvictions` replaces its caller on the stack.
#[test]
#[ignore = "needs root and BPF"]
fn a_probe_on_the_return_hides_no_caller() -> anyhow::Result<()> {
    let redis = Redis::private(&SAMPLES)?;
    let _agent = Agent::watching(&redis, &["--probe-mode", "every-call"])?;
    let _load = evicting(&redis)?;
    let (stacks, evicting) = until("a profile has a hundred samples in evictions", || {
        let (stacks, _) = profile(&redis, "5")?;
        let evicting = sum(&stacks, Stack::evicts);
        Ok((evicting >= 100.0).then_some((stacks, evicting)))
    })?;
    let mut hidden: f64 = 0.0;
    for stack in stacks.iter().filter(|stack| stack.evicts() && !stack.is_whole()) {
        println!("{} times {:?}", stack.samples, stack.functions);
        hidden += stack.samples;
    }
    // As above, four deviations.
    let expected = evicting * (1.0 - WHOLE);
    ensure!(hidden <= expected + 4.0 * expected.sqrt(), "{hidden} of {evicting}");
    Ok(())
}
