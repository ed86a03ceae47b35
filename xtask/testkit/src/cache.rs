//! A cache with keys of all types, and what its server says about each.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::process;
use crate::redis::Redis;

/// Makes keys of all types, small and large. Every third one expires, as does a field of half the hashes if fields can,
/// and every second one is named `b:`.
const FILL: &str = "
for i = 1, tonumber(ARGV[1]) do
  local key = (i % 2 == 0 and 'a:' or 'b:') .. i
  local kind = i % 20
  local many = kind % 2 == 0 and 10 or 15
  local function add(command)
    for j = 1, many do
      local member = 'member' .. j
      if command == 'hset' or command == 'zadd' then redis.call(command, key, command == 'zadd' and j or 'f' .. j, member .. string.rep('m', kind % 2 * 70))
      elseif command == 'xadd' then redis.call(command, key, '*', 'field', member)
      else redis.call(command, key, member) end
    end
  end
  if kind < 5 then redis.call('set', key, string.rep('v', i % 40))
  elseif kind < 7 then redis.call('set', key, i)
  elseif kind < 12 then redis.call('set', key, string.rep('w', 100 + i % 1900))
  elseif kind < 14 and i % 40 == kind then
    add('hset')
    if i % 80 == kind then redis.pcall('hexpire', key, 1000000, 'FIELDS', 1, 'f1') end
  elseif kind < 16 then redis.call('sadd', key, 1, 2, i)
  elseif kind < 18 and i % 40 == kind then add('zadd')
  elseif i % 40 == 18 then add('rpush')
  elseif i % 40 == 19 then add('sadd')
  elseif i % 200 == 39 then add('xadd')
  else redis.call('rpush', key, i) end
  if i % 3 == 0 then redis.call('expire', key, 1000000) end
end";
/// Says for each type and encoding how many keys there are, what they take, and how many never expire.
const TRUTH: &str = "
local all = {}
for _, key in ipairs(redis.call('keys', '*')) do
  local name = redis.call('type', key)['ok'] .. ' ' .. redis.call('object', 'encoding', key)
  local sum = all[name] or {0, 0, 0}
  all[name] = sum
  sum[1] = sum[1] + 1
  sum[2] = sum[2] + redis.call('memory', 'usage', key, 'samples', 0)
  if redis.call('ttl', key) < 0 then sum[3] = sum[3] + 1 end
end
local lines = {}
for name, sum in pairs(all) do
  lines[#lines + 1] = name .. ' ' .. sum[1] .. ' ' .. sum[2] .. ' ' .. sum[3]
end
return lines";

/// The fewest types and encodings that are made on any version.
const KINDS: usize = 9;

/// What a server says about the keys of one type and encoding.
#[derive(Debug)]
pub struct Kind {
    pub keys: f64,
    /// What they take, according to `MEMORY USAGE`.
    pub bytes: f64,
    /// How many never expire.
    pub lasting: f64,
}

/// Makes this many keys.
pub fn fill(redis: &Redis, keys: u64) -> Result<()> {
    let answer = redis.cli(&["eval", FILL, "0", &keys.to_string()])?;
    ensure!(answer.trim().is_empty(), "{answer}");
    Ok(())
}

/// Returns the types and encodings of all keys, such as `hash listpack`.
pub fn kinds(redis: &Redis) -> Result<BTreeMap<String, Kind>> {
    let answer = redis.cli(&["eval", TRUTH, "0"])?;
    let kinds: Option<BTreeMap<_, _>> = answer.lines().map(kind).collect();
    let kinds = kinds.with_context(|| format!("not names and numbers: {answer}"))?;
    ensure!(kinds.len() >= KINDS, "{kinds:?}");
    Ok(kinds)
}

/// Returns what `evictscope keys` says about a process.
pub fn told(mut evictscope: Command, pid: u32, options: &[&str]) -> Result<Value> {
    let keys = evictscope.args(["keys", &pid.to_string(), "--json"]);
    let answer = process::answer_of(keys.args(options))?;
    Ok(serde_json::from_str(&answer)?)
}

/// Reads a name of two words, and three numbers.
fn kind(line: &str) -> Option<(String, Kind)> {
    let (name, lasting) = line.rsplit_once(' ')?;
    let (name, bytes) = name.rsplit_once(' ')?;
    let (name, keys) = name.rsplit_once(' ')?;
    let kind = Kind { keys: keys.parse().ok()?, bytes: bytes.parse().ok()?, lasting: lasting.parse().ok()? };
    Some((name.to_owned(), kind))
}
