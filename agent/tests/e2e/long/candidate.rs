//! What the agent says about the eviction pool, against the memory of a server that is stopped at its limit, on each
//! real server that runs here and on stripped copies.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use evictscope_host::load_bias;
use evictscope_model::Member;
use evictscope_plan::ProbePlan;
use evictscope_testkit::servers::{self, PACKAGED, on_each};

use crate::prelude::*;

/// Entries of a pool, and the bytes of each.
const ENTRIES: usize = 16;
const ENTRY: usize = 32;
/// How old a server must be for the idle times of all keys, seconds.
const AGE: f64 = 45.0;
/// Policies that use no pool of keys.
const OTHERS: [&str; 2] = ["allkeys-random", "noeviction"];

/// How a server chooses what it evicts.
struct Policy {
    name: &'static str,
    metric: &'static str,
    /// Writes the keys 1 to 40, each of 100 kB.
    write: &'static str,
    /// How many seconds the values of successive keys are apart, and which way they go as time passes.
    step: f64,
    way: f64,
    /// Returns the value expected of a key by the word that orders the pool, with the unit of idle times, at a time
    /// since 1970.
    ordered: fn(u64, Duration, Duration) -> f64,
}

const POLICIES: [Policy; 2] = [
    Policy {
        name: "allkeys-lru",
        metric: "evictscope_candidate_idle_seconds",
        write: "redis.call('SET', 'seed', string.rep('x', 100000)) \
                local seed = redis.call('DUMP', 'seed') \
                redis.call('DEL', 'seed') \
                for i = 1, 40 do redis.call('RESTORE', i, 0, seed, 'IDLETIME', i) end",
        step: 1.0,
        way: 1.0,
        ordered: |order, unit, _| order as f64 * unit.as_secs_f64(),
    },
    Policy {
        name: "volatile-ttl",
        metric: "evictscope_candidate_ttl_seconds",
        write: "for i = 1, 40 do redis.call('SET', i, string.rep('x', 100000), 'EX', 1000 * i) end",
        step: 1_000.0,
        way: -1.0,
        ordered: |order, _, now| (u64::MAX - order) as f64 / 1e3 - now.as_secs_f64(),
    },
];

#[test]
#[ignore = "needs root and BPF"]
fn the_candidate_is_the_best_key_in_the_pool_of_every_server() -> anyhow::Result<()> {
    let agent = Agent::start(&[])?;
    let directory = tempfile::tempdir()?;
    let started = RefCell::new(Vec::new());
    on_each(&PACKAGED, |program| {
        let stripped = directory.path().join(format!("{}", started.borrow().len()));
        servers::strip(program, &stripped)?;
        for program in [program.to_owned(), stripped] {
            for policy in &POLICIES {
                let redis = Redis::private_of(&program, &["--maxmemory-policy", policy.name])?;
                started.borrow_mut().push((program.clone(), policy, redis));
            }
        }
        Ok(())
    })?;
    for (program, policy, redis) in started.into_inner() {
        let what = format!("{} {}", program.display(), policy.name);
        until_true("idle times are no longer than the server has run", || Ok(redis.info("uptime_in_seconds")? > AGE))?;
        compare(&agent, &program, policy, redis).context(what)?;
    }
    Ok(())
}

fn compare(agent: &Agent, program: &Path, policy: &Policy, redis: Redis) -> anyhow::Result<()> {
    let plan = evictscope_plan::plan(&std::fs::read(program)?, None)?;
    let unit = (plan.identity.idle_time_unit()).context("the unit of idle times is not known")?;
    agent.watches(&redis)?;
    let begun = Instant::now();
    let exported = || Ok::<_, anyhow::Error>(agent.settled_reading(&redis)?.sum(policy.metric, &[]).ok());
    ensure!(exported()?.is_none(), "an empty pool is known: {:?}", exported()?);
    redis.cli(&["eval", policy.write, "0"])?;
    let limit = redis.info("used_memory")? - 850_000.0;
    redis.config_set("maxmemory", &limit.to_string())?;
    let evicted = redis.info("evicted_keys")?;
    ensure!((5.0..20.0).contains(&evicted), "{evicted} keys were evicted");

    redis.signal(Signal::STOP)?;
    let told_while_stopped = exported()?.context("the pool is not known")?;
    let (order, name) = best(&plan, redis.pid())?;
    redis.signal(Signal::CONT)?;
    let ordered = (policy.ordered)(order, unit, SystemTime::now().duration_since(UNIX_EPOCH)?);
    let named = policy.step * name;
    println!(
        "{} {}: {told_while_stopped} s were told; by the pool's memory {ordered} s, by the key's name about {named} s",
        program.display(),
        policy.name
    );
    // The server is stopped, so the idle times that it has noted stay the same.
    ensure!(policy.name == "volatile-ttl" || told_while_stopped == ordered, "not {ordered} s");
    let passed = policy.way * (told_while_stopped - named);
    let most = begun.elapsed().as_secs_f64() + 1.0;
    ensure!((-1.0..most).contains(&passed), "not {named} s");
    ensure!((told_while_stopped - ordered).abs() < most, "not {ordered} s");

    for other in OTHERS {
        redis.config_set("maxmemory-policy", other)?;
        until_true("the agent says nothing of the pool", || Ok(exported()?.is_none()))?;
        redis.config_set("maxmemory-policy", policy.name)?;
        until_true("the agent says something of it", || Ok(exported()?.is_some()))?;
    }
    if policy.name == "allkeys-lru" {
        // The keys of a policy with counters have no idle times until they are used again.
        redis.config_set("maxmemory-policy", "allkeys-lfu")?;
        until_true("the agent says nothing of the pool", || Ok(exported()?.is_none()))?;
        redis.config_set("maxmemory-policy", policy.name)?;
        ensure!(exported()?.is_none(), "{:?} s are older than the policy", exported()?);
    }
    Ok(())
}

/// Reads the last key of a server's pool: the word that it is ordered by, and its name, which is a number.
fn best(plan: &ProbePlan, pid: u32) -> anyhow::Result<(u64, f64)> {
    let pool = plan.member(Member::EvictionPool).context("no pool was found")?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let word = |address: u64| {
        let mut word = [0; 8];
        memory.read_exact_at(&mut word, address)?;
        Ok::<_, anyhow::Error>(word)
    };
    let pool = u64::from_ne_bytes(word(pool.address.at(load_bias(pid, plan.identity.entry_point)?).get())?);
    for entry in (0..ENTRIES).rev().map(|index| pool + (index * ENTRY) as u64) {
        let key = u64::from_ne_bytes(word(entry + 8)?);
        if key != 0 {
            let name = word(key)?;
            let name = name.split(|byte| *byte == 0).next().context("no name")?;
            return Ok((u64::from_ne_bytes(word(entry)?), std::str::from_utf8(name)?.parse()?));
        }
    }
    anyhow::bail!("the pool is empty")
}
