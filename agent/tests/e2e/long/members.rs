//! The members of `server`, against `INFO`, on each real server that runs here: as the agent exports them, and, for
//! those that it does not export, where the plan says that they are.

use std::path::Path;

use evictscope_host::{Words, load_bias};
use evictscope_model::{Content, Member};
use evictscope_plan::ProbePlan;
use evictscope_testkit::redis::InfoAnswer;
use evictscope_testkit::servers::{PACKAGED, on_each};

use crate::prelude::*;

/// How often a second the cron runs at first: so often that its cycles have little time and meet their limit.
const OFTEN: &str = "500";
const EFFORT: u32 = 3;
/// Half of the last digit of a percentage, as `INFO` prints it, and what its last bits add.
const PRINTED: f64 = 0.005_001;

#[test]
#[ignore = "needs root and BPF"]
fn members_are_what_info_says_on_every_server() -> anyhow::Result<()> {
    on_each(&PACKAGED, compare)
}

fn compare(program: &Path) -> anyhow::Result<()> {
    let effort = EFFORT.to_string();
    let options =
        ["--hz", OFTEN, "--active-expire-effort", &effort, "--lazyfree-lazy-eviction", "yes", "--databases", "7"];
    let redis = Redis::private_of(program, &options)?;
    let agent = Agent::watching(&redis, &[])?;
    let mut members = Members::of(&redis, program)?;
    redis.look_up()?;
    evict(&redis)?;
    let has_fields = expire(&redis)?;
    // From here on nothing expires, so that both say the same.
    let answer = redis.cli(&["client", "pause", "120000", "write"])?;
    ensure!(answer.trim() == "OK", "CLIENT PAUSE: {answer}");

    let info = redis.all_info()?;
    let percentage = info.number("expired_stale_perc")?;
    let ratio = f64::from_bits(members.word(Member::StatExpiredStalePerc)?);
    ensure!((ratio * 100.0 - percentage).abs() <= PRINTED, "a stale ratio of {ratio}, INFO says {percentage} %");
    let milliseconds = info.number("expire_cycle_cpu_milliseconds")?;
    let counter = members.word(Member::StatExpireCycleTimeUsed)?;
    ensure!(
        milliseconds > 0.0 && (counter / 1000) as f64 == milliseconds,
        "{counter} us in cycles, INFO says {milliseconds} ms"
    );
    configured(&mut members, &redis)?;
    if members.plan.member(Member::ClientObufLimits).is_some() {
        redis.config_set("client-output-buffer-limit", "pubsub 1mb 256kb 5")?;
        let limits = members.words(Member::ClientObufLimits)?;
        ensure!(limits[6..] == [1 << 20, 256 << 10, 5], "{limits:?}");
    }
    ensure!(members.word(Member::StatExpiredSubkeys).is_ok() == has_fields, "whether fields expire");
    if has_fields {
        let fields = expired_fields(&info)?;
        let counter = members.word(Member::StatExpiredSubkeys)?;
        ensure!(counter as f64 == fields, "{counter} expired fields of {fields}");
    }

    exported(&agent, &redis)?;
    println!("{}: {percentage} % stale, {milliseconds} ms in cycles", program.display());
    Ok(())
}

/// Compares each member that a directive sets with `CONFIG GET`, if that says a number, or yes or no.
fn configured(members: &mut Members, redis: &Redis) -> anyhow::Result<()> {
    for member in Member::of_server() {
        let Some(directive) = member.line().directive else { continue };
        let answer = redis.cli(&["config", "get", directive])?;
        let value = match answer.lines().nth(1) {
            Some("yes") => 1,
            Some("no") => 0,
            Some(value) if value.parse::<u64>().is_ok() => value.parse()?,
            _ => continue,
        };
        let word = members.word(member)?;
        let read = if member.line().content == Content::Int { u64::from(word as u32) } else { word };
        println!("  {directive}: {read}");
        ensure!(read == value, "{directive} is {read}, not {value}");
    }
    Ok(())
}

/// Compares each metric that is an unchanged member with `INFO`, or with the directive that sets it.
fn exported(agent: &Agent, redis: &Redis) -> anyhow::Result<()> {
    let page = agent.settled_reading(redis)?;
    let info = redis.all_info()?;
    for member in Member::ALL {
        let Some(metric) = member.line().metric else { continue };
        let by_info = match (member.line().info, member.line().directive) {
            (Some(name), _) => info.number(name)?,
            (None, Some(directive)) => {
                redis.cli(&["config", "get", directive])?.lines().nth(1).context("CONFIG GET has no value")?.parse()?
            }
            // Memory is never at rest.
            (None, None) => continue,
        };
        let exported = page.sum(metric.name, &[])?;
        println!("  {}: {exported}", metric.name);
        ensure!(exported == by_info, "{} is {exported}, not {by_info}", metric.name);
        ensure!(by_info > 0.0, "the server counts nothing of {member}");
    }
    let (exported, percentage) =
        (page.sum("evictscope_expire_stale_ratio", &[])? * 100.0, info.number("expired_stale_perc")?);
    ensure!((exported - percentage).abs() <= PRINTED, "{exported} % are stale, INFO says {percentage} %");
    Ok(())
}

fn evict(redis: &Redis) -> anyhow::Result<()> {
    redis.set_keys(10_000, 20_000)?;
    redis.config_set("maxmemory", "1")?;
    until("keys are evicted", || Ok((redis.info("evicted_keys")? > 0.0).then_some(())))?;
    redis.config_set("maxmemory", "64mb")
}

/// Makes a server count all that it counts about expiry: so many keys at once that cycles meet their time limit, then
/// some at a slow pace, so that the stale ratio stays. Returns whether fields of hashes can expire too; if so, some
/// have.
fn expire(redis: &Redis) -> anyhow::Result<bool> {
    until("a cycle meets its time limit", || {
        redis.expire_keys(20_000)?;
        let hits = redis.info("expired_time_cap_reached_count")?;
        Ok((hits > 0.0).then_some(()))
    })?;
    let until = |what: &str, counts: &dyn Fn(&InfoAnswer) -> anyhow::Result<bool>| {
        until(what, || Ok(counts(&redis.all_info()?)?.then_some(())))
    };
    redis.config_set("hz", "1")?;
    redis.cli(&["hset", "hash", "kept", "1", "short", "1"])?;
    let has_fields = redis.cli(&["hpexpire", "hash", "20", "fields", "1", "short"]).is_ok();
    if has_fields {
        until("a field expires", &|info| Ok(expired_fields(info)? > 0.0))?;
    }
    redis.expire_keys(2_000)?;
    until("expired keys are sampled", &|info| Ok(info.number("expired_stale_perc")? >= 1.0))?;
    Ok(has_fields)
}

/// Returns how many fields of hashes have expired, as Redis or Valkey names it.
fn expired_fields(info: &InfoAnswer) -> anyhow::Result<f64> {
    info.number("expired_subkeys").or_else(|_| info.number("expired_fields"))
}

/// The memory of a server, and where its members are according to the plan.
struct Members {
    memory: Words,
    load_bias: u64,
    plan: ProbePlan,
}

impl Members {
    fn of(redis: &Redis, program: &Path) -> anyhow::Result<Self> {
        let plan = evictscope_plan::plan(&std::fs::read(program)?, None)?;
        Ok(Self {
            memory: Words::open(redis.pid())?,
            load_bias: load_bias(redis.pid(), plan.identity.entry_point)?,
            plan,
        })
    }

    /// Returns the 8 bytes where a member is.
    fn word(&mut self, member: Member) -> anyhow::Result<u64> {
        self.words(member)?.first().copied().context("no word")
    }

    fn words(&mut self, member: Member) -> anyhow::Result<Vec<u64>> {
        let found = self.plan.member(member).with_context(|| format!("{member} was not found"))?;
        self.memory.choose(&Vec::from_iter(found.words().map(|address| address.at(self.load_bias))));
        Ok(self.memory.read()?)
    }
}
