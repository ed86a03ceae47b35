//! Runs and watches a build: compares the agent's numbers with what the server says about itself in `INFO` and of its
//! keys.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use evictscope_model::Member;
use evictscope_testkit::agent::Agent;
use evictscope_testkit::redis::{InfoAnswer, Redis};
use evictscope_testkit::scrape::Scrape;
use evictscope_testkit::wait::until;
use evictscope_testkit::{cache, process};
use rustix::process::Signal;

use super::build::{Build, LIMIT, Plan};
use crate::table::Row;

/// A lower limit, which makes a server evict for some milliseconds, and one far below what it has by then.
const LOWER_LIMIT: &str = "12mb";
const LOWEST_LIMIT: &str = "6mb";

const FAILING: u32 = 2_000;

/// How many clients have sent a part of a command, so that there are buffers to compare.
const WAITING: usize = 50;

/// How far the agent's sample of memory may be from `INFO`, in bytes: the client that asks for it takes memory too.
const NEAR: f64 = 128.0 * 1024.0;

/// How many keys are made, and how far the sum of what all take may be off: of large values, only a few elements are
/// looked at.
const KEYS: u64 = 5_000;
const NEAR_KEYS: f64 = 0.05;

/// What three expire cycles leave of the stale ratio if no key can expire: 0.95 for each. The cron then runs once a
/// second, so there is hardly one between two readings.
const STALE_LEFT: f64 = 0.857;
/// Half of the last digit of a percentage, as `INFO` prints it, and what its last bits add.
const PRINTED: f64 = 0.005_001;

const COMMANDS: &str = "total_commands_processed";
const STALE_RATIO: &str = "evictscope_expire_stale_ratio";
const USED_MEMORY: &str = "evictscope_used_memory_bytes";
const CLIENT_BUFFERS: &str = "evictscope_client_buffers_bytes";
const PART: &str = "evictscope_memory_part_bytes";
/// Parts of memory, and what `INFO` calls them.
const PARTS: [(&str, &str); 5] = [
    ("startup", "used_memory_startup"),
    ("replicas", "mem_clients_slaves"),
    ("backlog", "mem_replication_backlog"),
    ("aof_buffer", "mem_aof_buffer"),
    ("cluster_links", "mem_cluster_links"),
];
const CALLS: &str = "evictscope_eviction_calls_total";
const HITS: &str = "evictscope_probe_hits_total";

/// Returns the counters that must be equal: the metric, and the field of `INFO`.
fn counters() -> impl Iterator<Item = (&'static str, &'static str)> {
    Member::ALL.iter().filter_map(|member| Some((member.line().metric?.name, member.line().info?)))
}

/// Runs a build below its limit and at it, in both probe modes, and adds what was found.
pub fn compare(build: &Build, plan: &Plan, agent: &Path, row: &mut Row) -> Result<()> {
    let own = build.copied()?;
    // Data that is not yet written to the AOF does not count.
    let redis = own.start(&["--maxmemory", LIMIT, "--appendonly", "yes"])?;
    let _waiting = clients(redis.port())?;
    let watch = |mode: &str| {
        let agent = Agent::of(agent, &["--probe-mode", mode, &own.only()])?;
        agent.watches(&redis)?;
        anyhow::Ok(agent)
    };

    let agent = watch("evicting-only")?;
    let begun = Reading::of(&agent, &redis)?;
    expire(&redis)?;
    redis.set_keys(1000, 20_000)?;
    let below = Reading::of(&agent, &redis)?;
    exceed_by_what_does_not_count(&redis)?;
    let between = Reading::of(&agent, &redis)?;
    redis.config_set("maxmemory", LIMIT)?;
    redis.config_set("hz", "10")?;
    redis.write_keys(60_000)?;
    // There is so much to evict at once that calls stop at their time limit.
    redis.config_set("maxmemory", LOWER_LIMIT)?;
    thread::sleep(Duration::from_millis(500));
    fail(&redis)?;
    // At the limit, the client that asks for INFO would make it evict.
    redis.config_set("maxmemory", LIMIT)?;
    let evicting = Reading::of(&agent, &redis)?;
    agent.end(Signal::TERM)?;

    // Without a time limit, nothing but a command makes a call. Redis 6.0 has none.
    let _ = redis.config_set("maxmemory-eviction-tenacity", "100");
    let agent = watch("every-call")?;
    let before = Reading::of(&agent, &redis)?;
    expire(&redis)?;
    redis.config_set("hz", "10")?;
    redis.write_keys(30_000)?;
    let all = Reading::of(&agent, &redis)?;
    let commands = agent.same_counts_by_command(&redis);
    agent.end(Signal::TERM)?;
    redis.must_be_alive()?;

    if !plan.eviction_call().is_null() {
        below.no_hits_since(&begun, "hits below the limit", row)?;
        between.no_hits_since(&below, "hits between the bounds", row)?;
    }
    for (metric, field) in counters().filter(|(metric, _)| all.exports(metric)) {
        let pair = |reading: &Reading| anyhow::Ok((reading.sum(metric, &[])?, reading.info.number(field)?));
        row.equal(field, &[pair(&evicting)?, pair(&all)?]);
    }
    below.compare_stale_ratio(row)?;
    all.compare_memory(row)?;
    all.compare_parts(row)?;
    let without = plan.not_found();
    if without.iter().all(|(item, _)| *item != "commands") {
        let shown = commands.as_ref().map_or_else(|error| format!("{error:#}"), |all| format!("{} equal", all.len()));
        row.check("commands", commands.is_ok(), &shown);
    }
    if evicting.exports(CALLS) {
        evicting.compare_evicting_calls(plan, row)?;
        // Without this, some calls have no result, and say so.
        let all_known = !without.iter().any(|(item, _)| *item == "eviction_result");
        evicting.compare_results(all_known, row);
        all.compare_calls_since(&before, row)?;
    }
    let exported = counters().map(|(metric, _)| metric).chain([STALE_RATIO, USED_MEMORY, CLIENT_BUFFERS, CALLS]);
    let absent: Vec<_> = exported.filter(|metric| without.is_empty() && !all.exports(metric)).collect();
    let withdrawn = [&evicting, &all].map(|reading| reading.page.by_label("evictscope_plan_withdrawn", "reason"));
    ensure!(absent.is_empty(), "the plan is complete, but {absent:?} are not exported");
    ensure!(withdrawn.iter().all(|reasons| reasons.is_empty()), "withdrawn for {withdrawn:?}");
    Ok(())
}

/// What the agent said between two answers of the server, when all was at rest.
struct Reading {
    earlier: InfoAnswer,
    page: Scrape,
    info: InfoAnswer,
}

impl Reading {
    fn of(agent: &Agent, redis: &Redis) -> Result<Self> {
        let earlier = redis.all_info()?;
        Ok(Self { earlier, page: agent.settled_reading(redis)?, info: redis.all_info()? })
    }

    fn exports(&self, metric: &str) -> bool {
        self.sum(metric, &[]).is_ok()
    }

    fn sum(&self, metric: &str, labels: &[(&str, &str)]) -> Result<f64> {
        self.page.sum(metric, labels)
    }

    fn hits(&self, probe: &str) -> Result<f64> {
        self.sum(HITS, &[("probe", probe)])
    }

    /// Checks that no program ran on an eviction call since another reading, and that nothing was ever evicted.
    fn no_hits_since(&self, before: &Self, column: &'static str, row: &mut Row) -> Result<()> {
        ensure!(self.exports(HITS), "the agent does not export {HITS}");
        let hits = self.page.by_label(HITS, "probe");
        let hits: f64 = hits.iter().filter(|(probe, _)| probe.starts_with("eviction_")).map(|(_, hits)| hits).sum();
        let commands = self.info.number(COMMANDS)? - before.info.number(COMMANDS)?;
        let right = hits == 0.0 && self.info.number("evicted_keys")? == 0.0;
        row.check(column, right, &format!("{} in {commands} commands", hits.abs()));
        Ok(())
    }

    /// Compares the server's estimate of what is stale with `INFO`, which has it in percent.
    fn compare_stale_ratio(&self, row: &mut Row) -> Result<()> {
        if let Ok(ratio) = self.sum(STALE_RATIO, &[]) {
            let (told, own) = (ratio * 100.0, self.info.number("expired_stale_perc")?);
            let right = own > 0.0 && told >= own - PRINTED && told * STALE_LEFT <= own + PRINTED;
            row.check("stale", right, &format!("{told:.2} = {own} %"));
        }
        Ok(())
    }

    /// Compares what the agent samples with `INFO` before and after. A server at rest frees memory, too, such as the
    /// larger of two hash tables after a resize.
    fn compare_memory(&self, row: &mut Row) -> Result<()> {
        let replicas = self.sum(CLIENT_BUFFERS, &[("class", "replica")]).unwrap_or(0.0);
        for (column, metric, less, field) in [
            ("used memory", USED_MEMORY, 0.0, "used_memory"),
            ("client buffers", CLIENT_BUFFERS, replicas, "mem_clients_normal"),
        ] {
            if let Ok(told) = self.sum(metric, &[]) {
                let (earlier, own, told) = (self.earlier.number(field)?, self.info.number(field)?, told - less);
                let least = earlier.min(own) - NEAR;
                let right = least > 0.0 && (least..=earlier.max(own) + NEAR).contains(&told);
                row.check(column, right, &format!("{:+} B of {own}", told - own));
            }
        }
        Ok(())
    }

    /// Compares parts of memory with `INFO`, if it has them.
    fn compare_parts(&self, row: &mut Row) -> Result<()> {
        let mut differ = Vec::new();
        for (part, field) in PARTS {
            if let (Ok(told), Ok(own)) = (self.sum(PART, &[("part", part)]), self.info.number(field)) {
                // Redis 6 counts what the allocator gave for some, not what was asked for.
                if (told - own).abs() > 64.0 + 0.005 * own {
                    differ.push(format!("{part} {told} = {own}"));
                }
            }
        }
        let parts = self.page.by_label(PART, "part");
        row.no_faults("parts of memory", &differ, &format!("{} known", parts.len()));
        Ok(())
    }

    /// Checks that each evicting call begins once and ends once: at a done site, or, for the [`FAILING`] calls and more
    /// that must not evict, at the goal site if the plan ends them there. A call may pass more done sites, if it leaves
    /// a jump another way.
    fn compare_evicting_calls(&self, plan: &Plan, row: &mut Row) -> Result<()> {
        let calls = self.sum(CALLS, &[("kind", "evicting")])?;
        let (begun, ended) = (self.hits("eviction_goal")?, self.hits("eviction_done")?);
        let (ways, ends_at_goal) = plan.exits();
        let (least, most) =
            if ends_at_goal { (f64::from(FAILING), self.sum(CALLS, &[("result", "fail")])?) } else { (0.0, 0.0) };
        let hits = calls - most..=(calls - least) * (1 + ways) as f64;
        let right = calls > 0.0 && begun == calls && hits.contains(&ended);
        row.check("evicting calls", right, &format!("{begun} begun, {calls} ended, {ended} hits of done probes"));
        Ok(())
    }

    /// Checks that [`FAILING`] calls failed, and that the result of each call is known if all must be.
    fn compare_results(&self, all_known: bool, row: &mut Row) {
        let results = self.page.by_label(CALLS, "result");
        let failed = results.get("fail").copied().unwrap_or(0.0);
        let known = results.keys().all(|result| ["ok", "running", "fail"].contains(&result.as_str()));
        let shown: Vec<_> = results.iter().map(|(result, calls)| format!("{calls} {result}")).collect();
        row.check("results", !all_known || (known && failed >= f64::from(FAILING)), &shown.join(", "));
    }

    /// Checks that each command since another reading made one call, which is one hit of each probe.
    fn compare_calls_since(&self, before: &Self, row: &mut Row) -> Result<()> {
        let calls = |kind| anyhow::Ok(self.sum(CALLS, &[("kind", kind)])? - before.sum(CALLS, &[("kind", kind)])?);
        let hits = |probe| anyhow::Ok(self.hits(probe)? - before.hits(probe)?);
        // An INFO does not count itself: the first is in the difference, the second is not.
        let commands = self.info.number(COMMANDS)? - before.info.number(COMMANDS)?;
        let (noop, evicting) = (calls("noop")?, calls("evicting")?);
        let (entered, begun) = (hits("eviction_enter")?, hits("eviction_goal")?);
        let right = noop > 0.0 && noop + evicting == commands && entered == commands && begun == evicting;
        let shown = format!("{noop} no-op + {evicting} = {commands} commands, {entered} entered, {begun} begun");
        row.check("every call", right, &shown);
        Ok(())
    }
}

/// Connects clients that have each sent two thirds of a key.
fn clients(port: u16) -> Result<Vec<TcpStream>> {
    let part = format!("*2\r\n$3\r\nGET\r\n$30000\r\n{}", "k".repeat(20_000));
    let connect = |_| {
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        client.write_all(part.as_bytes())?;
        Ok(client)
    };
    (0..WAITING).map(connect).collect::<std::io::Result<_>>().context("cannot connect to the server")
}

/// Looks keys up, and lets keys expire: first so many at once, with so little time, that expire cycles reach their time
/// limit; then some so slowly that the server's estimate of what is stale stays for a while.
fn expire(redis: &Redis) -> Result<()> {
    redis.look_up()?;
    redis.config_set("hz", "500")?;
    redis.expire_keys(20_000)?;
    redis.config_set("hz", "1")?;
    redis.expire_keys(2_000)
}

/// Makes calls that can evict nothing: one with each command, which only reads.
fn fail(redis: &Redis) -> Result<()> {
    redis.config_set("maxmemory-policy", "noeviction")?;
    redis.config_set("maxmemory", LOWEST_LIMIT)?;
    process::answer_of(&mut redis.benchmark(&format!("-t get -n {FAILING}")))?;
    redis.config_set("maxmemory", LOWER_LIMIT)?;
    redis.config_set("maxmemory-policy", "allkeys-lru")
}

/// The least bytes that do not count. What the sockets also take is less, and what the calling clients take is less
/// than half.
const NOT_COUNTED: f64 = 8e6;

/// Makes calls while half of what the server keeps for a replica that does not read is above the limit.
fn exceed_by_what_does_not_count(redis: &Redis) -> Result<()> {
    // What is kept for a replica counts up to this.
    redis.config_set("repl-backlog-size", "16384")?;
    let replica = TcpStream::connect((Ipv4Addr::LOCALHOST, redis.port()));
    let mut replica = replica.context("cannot connect to the server")?;
    replica.write_all(b"SYNC\r\n")?;
    let mut before = None;
    let limit = until("the sockets to a replica are full", || {
        let info = redis.all_info()?;
        let not_counted = info.number("mem_not_counted_for_evict")?;
        if not_counted < NOT_COUNTED {
            process::answer_of(&mut redis.benchmark("-t set -d 10000 -n 500"))?;
        }
        let is_full = before.replace(not_counted) == Some(not_counted) && not_counted >= NOT_COUNTED;
        Ok(is_full.then_some(info.number("used_memory")? - not_counted / 2.0))
    })?;
    redis.config_set("maxmemory", &limit.round().to_string())?;
    process::answer_of(&mut redis.benchmark("-t get -n 2000"))?;
    Ok(())
}

/// Fills a build with keys, and compares what `evictscope keys` finds with what the server says about each.
pub fn compare_keys(build: &Build, agent: &Path, row: &mut Row) -> Result<()> {
    let own = build.copied()?;
    let redis = own.start(&["--maxmemory", "0"])?;
    cache::fill(&redis, KEYS)?;
    let bytes: f64 = cache::kinds(&redis)?.values().map(|kind| kind.bytes).sum();
    // While the server moves keys to larger tables, no table is looked through as a whole.
    let said = until("all keys are looked at", || {
        let said = cache::told(Command::new(agent), redis.pid(), &[])?;
        Ok((said["is_whole"] == true).then_some(said))
    })?;
    let told = said["bytes"].as_f64().context("no bytes")?;
    let right = said["sampled"] == KEYS && (told / bytes - 1.0).abs() < NEAR_KEYS;
    row.check("keys", right, &format!("{told:.0} B of {bytes} in {} of {KEYS}", said["sampled"]));
    Ok(())
}
