//! Compares what the agent exports with what the server says about itself in `INFO`.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use evictscope_model::Member;
use evictscope_testkit::agent::Agent;
use evictscope_testkit::redis::{Info, Redis};
use evictscope_testkit::scrape::Scrape;

use super::plan::Plan;
use crate::table::Row;

/// How far the agent's sample of memory may be from `INFO`, in bytes: the client that asks for it takes memory too.
const NEAR: f64 = 128.0 * 1024.0;

/// Returns the counters that must be equal: the metric, and the field of `INFO`.
fn counters() -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = Member::ALL.iter();
    all.filter_map(|member| Some((member.metric()?.name, member.in_info()?)))
}

const COMMANDS: &str = "total_commands_processed";

const STALE_RATIO: &str = "evictscope_expire_stale_ratio";
/// What three expire cycles leave of the stale ratio if no key can expire: 0.95 for each. The cron then runs once a
/// second, so there is hardly one between two readings.
const STALE_LEFT: f64 = 0.857;
/// Half of the last digit of a percentage, as `INFO` prints it, and what its last bits add.
const PRINTED: f64 = 0.005_001;
const USED_MEMORY: &str = "evictscope_used_memory_bytes";
const CLIENT_BUFFERS: &str = "evictscope_client_buffers_bytes";
const CALLS: &str = "evictscope_eviction_calls_total";
const HITS: &str = "evictscope_probe_hits_total";

/// What the agent said between two answers of the server, when all was at rest.
pub struct Reading {
    earlier: Info,
    page: Scrape,
    info: Info,
}

pub struct Readings {
    /// In evicting-only mode, before any load.
    pub begun: Reading,
    /// After a load below the limit.
    pub below: Reading,
    /// After calls that were over the limit only by what does not count.
    pub between: Reading,
    /// After a load at the limit.
    pub evicting: Reading,
    /// At least this many calls of that load could evict nothing.
    pub failing: u32,
    /// In every-call mode, before a load.
    pub before: Reading,
    /// After a load at the limit.
    pub all: Reading,
}

impl Readings {
    pub fn judge(&self, plan: &Plan, row: &mut Row) -> Result<()> {
        let (evicting, all) = (&self.evicting, &self.all);
        if plan.eviction_call().is_some() {
            let periods = [
                ("hits below the limit", &self.begun, &self.below),
                ("hits between the bounds", &self.below, &self.between),
            ];
            for (column, begun, ended) in periods {
                let hits = ended.hits()?;
                let commands = ended.since(begun, COMMANDS)?;
                let evicted = ended.info.number("evicted_keys")?;
                let shown = format!("{hits} in {commands} commands");
                row.check(column, hits == 0.0 && evicted == 0.0, &shown);
            }
        }
        for (metric, field) in counters() {
            if all.exports(metric) {
                compare([evicting, all], metric, field, row)?;
            }
        }
        stale_ratio(&self.below, row)?;
        memory(all, row)?;
        if evicting.exports(CALLS) {
            evicting_calls(evicting, plan, self.failing, row)?;
            let is_missing = |(item, _): &(&str, &str)| *item == "eviction_result";
            match plan.not_found().iter().any(is_missing) {
                // Then some calls have no result, and say so.
                true => row.fact("results", &shown_results(evicting)),
                false => results([evicting, all], self.failing, row),
            }
            every_call(&self.before, all, row)?;
        }
        if plan.not_found().is_empty() {
            let metrics = counters().map(|(metric, _)| metric);
            let metrics = metrics.chain([STALE_RATIO, USED_MEMORY, CLIENT_BUFFERS, CALLS]);
            for metric in metrics.filter(|metric| !all.exports(metric)) {
                row.fault(&format!("the plan is complete, but {metric} is not exported"));
            }
        }
        for reading in [evicting, all] {
            let withdrawn = reading.page.by_label("evictscope_plan_withdrawn", "reason");
            if !withdrawn.is_empty() {
                row.fault(&format!("withdrawn for {withdrawn:?}"));
            }
        }
        Ok(())
    }
}

impl Reading {
    /// Asks the agent and the server when all is at rest.
    pub fn of(agent: &Agent, redis: &Redis) -> Result<Self> {
        let earlier = redis.all_info()?;
        let page = agent.settled_reading(redis)?;
        let info = redis.all_info()?;
        Ok(Self { earlier, page, info })
    }

    fn exports(&self, metric: &str) -> bool {
        self.page.sum(metric, &[]).is_ok()
    }

    /// Returns how far a number of `INFO` has grown since another reading.
    fn since(&self, before: &Self, field: &str) -> Result<f64> {
        Ok(self.info.number(field)? - before.info.number(field)?)
    }

    /// Returns how often any program ran on an eviction call.
    fn hits(&self) -> Result<f64> {
        let hits = self.page.by_label(HITS, "probe");
        ensure!(self.exports(HITS), "the agent does not export {HITS}");
        let of_calls = hits.iter().filter(|(probe, _)| probe.starts_with("eviction_"));
        Ok(of_calls.fold(0.0, |sum, (_, hits)| sum + hits))
    }
}

/// Compares a counter with `INFO` in all readings, and shows the last.
fn compare(readings: [&Reading; 2], metric: &str, field: &'static str, row: &mut Row) -> Result<()> {
    let mut right = true;
    let mut shown = String::new();
    for reading in readings {
        let told = reading.page.sum(metric, &[])?;
        let own = reading.info.number(field)?;
        right &= told == own && own > 0.0;
        shown = match right {
            true => format!("{told} = {own}"),
            false => format!("{shown} {told}, INFO {own}"),
        };
    }
    row.check(field, right, shown.trim());
    Ok(())
}

/// Compares the server's estimate of what is stale with `INFO`, which has it in percent.
fn stale_ratio(reading: &Reading, row: &mut Row) -> Result<()> {
    if let Ok(ratio) = reading.page.sum(STALE_RATIO, &[]) {
        let own = reading.info.number("expired_stale_perc")?;
        let told = ratio * 100.0;
        let right = own > 0.0 && told >= own - PRINTED && told * STALE_LEFT <= own + PRINTED;
        row.check("stale", right, &format!("{told:.2} = {own} %"));
    }
    Ok(())
}

/// Compares what the agent samples with `INFO` before and after. A server at rest frees memory, too, such as the larger
/// of two hash tables after a resize.
fn memory(reading: &Reading, row: &mut Row) -> Result<()> {
    let mut near = |column, told: f64, field| {
        let earlier = reading.earlier.number(field)?;
        let own = reading.info.number(field)?;
        let least = earlier.min(own) - NEAR;
        let right = least > 0.0 && (least..=earlier.max(own) + NEAR).contains(&told);
        row.check(column, right, &format!("{:+} B of {own}", told - own));
        anyhow::Ok(())
    };
    if let Ok(told) = reading.page.sum(USED_MEMORY, &[]) {
        near("used memory", told, "used_memory")?;
    }
    if let Ok(all) = reading.page.sum(CLIENT_BUFFERS, &[]) {
        let replicas = reading.page.sum(CLIENT_BUFFERS, &[("class", "replica")])?;
        near("client buffers", all - replicas, "mem_clients_normal")?;
    }
    Ok(())
}

/// Checks that each evicting call begins once and ends once: at a done site, or, for calls that must not evict, at the
/// goal site if the plan ends them there. At least `failing` of those were made. A call may pass more done sites, if it
/// leaves a jump another way.
fn evicting_calls(reading: &Reading, plan: &Plan, failing: u32, row: &mut Row) -> Result<()> {
    let page = &reading.page;
    let calls = page.sum(CALLS, &[("kind", "evicting")])?;
    let begun = page.sum(HITS, &[("probe", "eviction_goal")])?;
    let ended = page.sum(HITS, &[("probe", "eviction_done")])?;
    let at_goal = match plan.ends_at_goal() {
        true => f64::from(failing)..=page.sum(CALLS, &[("result", "fail")])?,
        false => 0.0..=0.0,
    };
    let most = (calls - at_goal.start()) * (1 + plan.ways()) as f64;
    let hits = calls - at_goal.end()..=most;
    let right = begun == calls && hits.contains(&ended);
    let shown = match (right, ended == calls) {
        (true, true) => format!("{calls} begun and ended"),
        (true, false) => format!("{calls} begun and ended, {ended} hits of done probes"),
        (false, _) => format!("{begun} begun, {calls} ended, {ended} hits of done probes"),
    };
    row.check("evicting calls", right && calls > 0.0, &shown);
    Ok(())
}

/// Checks that the result of each call is known, and that at least `failing` calls failed in the first reading.
fn results(readings: [&Reading; 2], failing: u32, row: &mut Row) {
    let known = ["ok", "running", "fail"];
    let by_result = readings.map(|reading| reading.page.by_label(CALLS, "result"));
    let mut all = by_result.iter().flat_map(BTreeMap::keys);
    let all_known = all.all(|result| known.contains(&result.as_str()));
    let failed = by_result[0].get("fail").copied().unwrap_or(0.0);
    let right = all_known && failed >= f64::from(failing);
    row.check("results", right, &shown_results(readings[0]));
}

fn shown_results(reading: &Reading) -> String {
    let results = reading.page.by_label(CALLS, "result").into_iter();
    let shown = results.map(|(result, calls)| format!("{calls} {result}"));
    shown.collect::<Vec<_>>().join(", ")
}

/// Checks that each command makes one call, which is one hit of each probe.
fn every_call(before: &Reading, after: &Reading, row: &mut Row) -> Result<()> {
    let grown = |metric: &str, labels: &[(&str, &str)]| {
        anyhow::Ok(after.page.sum(metric, labels)? - before.page.sum(metric, labels)?)
    };
    // An INFO does not count itself: the first is in the difference, the second is not.
    let commands = after.since(before, COMMANDS)?;
    let noop = grown(CALLS, &[("kind", "noop")])?;
    let evicting = grown(CALLS, &[("kind", "evicting")])?;
    let entered = grown(HITS, &[("probe", "eviction_enter")])?;
    let begun = grown(HITS, &[("probe", "eviction_goal")])?;
    let right = noop > 0.0 && noop + evicting == commands;
    let hits_are_right = entered == commands && begun == evicting;
    let mut shown = format!("{noop} no-op + {evicting} = {commands} commands");
    if !hits_are_right {
        shown += &format!(", but {entered} entered and {begun} begun");
    }
    row.check("every call", right && hits_are_right, &shown);
    Ok(())
}
