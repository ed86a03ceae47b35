//! Compares the goal variables, evaluated by gdb where the plan says, with the server's own variables at that moment.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use evictscope_testkit::code::Code;
use evictscope_testkit::process;
use evictscope_testkit::redis::PrivateBuild;
use evictscope_testkit::redis::Redis;
use evictscope_testkit::wait::HANG;
use serde_json::{Map, Value, json};

use super::plan::Plan;
use super::{Build, LIMIT};
use crate::table::Row;

/// How many hits are compared.
const HITS: usize = 25;

/// Options that make the server write an append-only file. Its buffer is overhead, so this is not always 0.
const APPENDING: [&str; 6] = [
    "--appendonly",
    "yes",
    // Without a background thread that allocates.
    "--appendfsync",
    "no",
    "--auto-aof-rewrite-percentage",
    "0",
];

/// The values at one hit: those of the recipes, and the server's own, whose names begin with `own_`.
type Hit = BTreeMap<String, Option<u64>>;

/// Runs a build at its limit under gdb, and adds what was found.
pub fn compare(build: &Build, plan: &Plan, row: &mut Row) -> Result<()> {
    let Some(inner) = plan.eviction_call().map(|call| &call["inner"]) else {
        return Ok(());
    };
    let (Some(address), Some(offset)) = (inner["address"].as_u64(), inner["file_offset"].as_u64()) else {
        return Ok(());
    };
    let own = PrivateBuild::in_root(&build.program, build.root.as_deref())?;
    let redis = own.start(&[&["--maxmemory", LIMIT], &APPENDING[..]].concat())?;
    redis.write_keys(40_000)?;
    let site = Code::of(redis.pid())?.address_of(offset);
    let members = plan.json["members"].as_array().into_iter().flatten();
    let members = members.filter_map(|member| Some((member["name"].as_str()?, member)));
    let recipes = inner["quantities"].as_array().into_iter().flatten();
    let recipes = recipes.filter_map(|plan| Some((plan["name"].as_str()?, &plan["recipe"])));
    let asked = json!({
        "hits": HITS,
        "site": site,
        "bias": site.wrapping_sub(address),
        "members": object(members),
        "recipes": object(recipes),
    });
    let hits = ask(&redis, &own.path(), &asked)?;
    let wrong: Vec<_> = hits.iter().flat_map(wrong).collect();
    let with_overhead = hits.iter().filter(|hit| value(hit, "overhead") > Some(0));
    let mut shown = format!("{} hits, {} with overhead", hits.len(), with_overhead.count());
    if let Some(first) = wrong.first() {
        shown = format!("{} wrong, such as {first}", wrong.len());
    }
    row.check("goal variables", wrong.is_empty() && hits.len() == HITS, &shown);
    Ok(())
}

fn object<'a>(pairs: impl Iterator<Item = (&'a str, &'a Value)>) -> Map<String, Value> {
    pairs.map(|(name, value)| (name.to_owned(), value.clone())).collect()
}

/// Lets gdb evaluate what is asked while the server is under load.
fn ask(redis: &Redis, program: &Path, asked: &Value) -> Result<Vec<Hit>> {
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let (script, goal) = (directory.path().join("goal.py"), directory.path().join("goal.json"));
    fs::write(&script, include_str!("goal.py"))?;
    fs::write(&goal, asked.to_string())?;
    let _load = redis.load("-t set -d 500 -r 10000000 -P 4 -n 300000")?;
    let said = process::answer_of(
        // gdb waits forever if no hit comes.
        Command::new("timeout")
            .arg(HANG.as_secs().to_string())
            .args(["gdb", "--batch", "--nx", "-p", &redis.pid().to_string()])
            .args(["-iex", "set debuginfod enabled off", "-iex", "set auto-load off"])
            .arg("-x")
            .args([script.as_path(), program])
            .env("GOAL", &goal),
    )?;
    let answer = fs::read(&goal)?;
    serde_json::from_slice(&answer).with_context(|| format!("gdb evaluated nothing:\n{said}"))
}

fn value(hit: &Hit, name: &str) -> Option<u64> {
    hit.get(name).copied().flatten()
}

/// Returns what does not agree at a hit. What is not known counts as agreeing.
fn wrong(hit: &Hit) -> Vec<String> {
    let value = |name| value(hit, name);
    let less = |from, what| Some(value(from)?.wrapping_sub(value(what)?));
    let mut wrong = Vec::new();
    for (name, expected) in [
        ("mem_reported", value("own_used_memory")),
        ("maxmemory", value("own_maxmemory")),
        ("overhead", value("own_overhead")),
        ("mem_used", less("mem_reported", "overhead")),
        ("mem_tofree", less("mem_used", "maxmemory")),
    ] {
        if let (Some(found), Some(expected)) = (value(name), expected)
            && found != expected
        {
            wrong.push(format!("{name} {found} instead of {expected}"));
        }
    }
    if let (Some(used), Some(limit)) = (value("mem_used"), value("maxmemory"))
        && used <= limit
    {
        wrong.push(format!("a call that does not evict: {used} of {limit}"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(values: [(&str, u64); 6]) -> Hit {
        let pairs = values.map(|(name, value)| (name.to_owned(), Some(value)));
        Hit::from_iter(pairs.into_iter().chain([("own_overhead".to_owned(), None)]))
    }

    #[test]
    fn values_that_disagree_are_wrong() {
        let values = [
            ("mem_reported", 110),
            ("overhead", 4),
            ("mem_used", 106),
            ("maxmemory", 100),
            ("mem_tofree", 6),
            ("own_used_memory", 110),
        ];
        assert!(wrong(&hit(values)).is_empty());
        let mut other = values;
        other[5].1 = 111;
        assert_eq!(wrong(&hit(other)), ["mem_reported 110 instead of 111"]);
        other = values;
        other[3].1 = 106;
        let wrong = wrong(&hit(other));
        assert_eq!(wrong, ["mem_tofree 6 instead of 0", "a call that does not evict: 106 of 106"]);
    }
}
