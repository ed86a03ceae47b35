//! A cache with keys of all types, and what its server says about each.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::process;
use crate::redis::Redis;

/// Makes keys of all types, small and large. Every third one expires, as does a field of half the hashes if fields can,
/// and every second one is named `b:`.
const FILL: &str = include_str!("fill.lua");
/// Says for each type and encoding how many keys there are, what they take, and how many never expire.
const TRUTH: &str = include_str!("kinds.lua");

/// The fewest types and encodings that are made on any version.
const KINDS: usize = 9;

/// What a server says about the keys of one type and encoding.
#[derive(Debug)]
pub struct KeyKind {
    pub keys: f64,
    /// What they take, according to `MEMORY USAGE`.
    pub bytes: f64,
    /// How many never expire.
    pub lasting: f64,
}

pub fn fill(redis: &Redis, keys: u64) -> Result<()> {
    let answer = redis.cli(&["eval", FILL, "0", &keys.to_string()])?;
    ensure!(answer.trim().is_empty(), "{answer}");
    Ok(())
}

/// Returns the types and encodings of all keys, such as `hash listpack`.
pub fn kinds(redis: &Redis) -> Result<BTreeMap<String, KeyKind>> {
    let answer = redis.cli(&["eval", TRUTH, "0"])?;
    let kinds = answer.lines().map(kind).collect::<Option<BTreeMap<_, _>>>();
    let kinds = kinds.with_context(|| format!("not names and numbers: {answer}"))?;
    ensure!(kinds.len() >= KINDS, "{kinds:?}");
    Ok(kinds)
}

/// Returns what `evictscope keys` says about a process.
pub fn told(mut evictscope: Command, pid: u32, options: &[&str]) -> Result<Value> {
    let answer = process::answer_of(evictscope.args(["keys", &pid.to_string(), "--json"]).args(options))?;
    Ok(serde_json::from_str(&answer)?)
}

/// Reads a name of two words, and three numbers.
fn kind(line: &str) -> Option<(String, KeyKind)> {
    let [lasting, bytes, keys, name] = line.rsplitn(4, ' ').collect::<Vec<_>>().try_into().ok()?;
    let kind = KeyKind { keys: keys.parse().ok()?, bytes: bytes.parse().ok()?, lasting: lasting.parse().ok()? };
    Some((name.to_owned(), kind))
}
