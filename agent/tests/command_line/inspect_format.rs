//! Compares the description of `inspect --json` in its source with a real report: both must have the same
//! fields, of the same types.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use evictscope_testkit::{agent::evictscope_without_privileges, servers};
use serde_json::Value;

/// The name and types of every field; `[]` is each element of a list.
type Fields = BTreeMap<String, Vec<String>>;

/// Returns the fields of the documentation's table: name and type are the first two cells.
fn documented() -> Fields {
    let text = include_str!("../../src/cli/inspect/json.rs");
    text.lines()
        .filter_map(|line| line.strip_prefix("//! | `"))
        .filter_map(|row| {
            let (name, rest) = row.split_once("` | ")?;
            let types = rest.split(" | ").next()?.split(" or ");
            Some((name.to_owned(), types.map(str::to_owned).collect()))
        })
        .collect()
}

/// Adds the fields of `value`, which is called `name`, with their types.
fn collect(name: &str, value: &Value, fields: &mut Fields) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    };
    if !name.is_empty() {
        let kinds = fields.entry(name.to_owned()).or_default();
        if !kinds.iter().any(|known| known == kind) {
            kinds.push(kind.to_owned());
        }
    }
    match value {
        Value::Array(elements) => {
            for element in elements {
                collect(&format!("{name}[]"), element, fields);
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                let dot = if name.is_empty() { "" } else { "." };
                collect(&format!("{name}{dot}{key}"), member, fields);
            }
        }
        _ => {}
    }
}

/// Fields that only Valkey 9 has.
const OF_VALKEY_9: [&str; 2] = ["functions[].inner.job", "functions[].fields_inner"];

/// Checks that every field of `value` is documented with its type, and that every documented field that
/// it can have is there.
fn agree(documented: &Fields, value: &Value, what: &str) -> anyhow::Result<()> {
    let mut found = Fields::new();
    collect("", value, &mut found);
    for (name, kinds) in found.iter().filter(|(name, _)| !name.ends_with("[]")) {
        let allowed = documented.get(name).with_context(|| format!("{what}: {name} is not documented"))?;
        for kind in kinds {
            ensure!(allowed.contains(kind), "{what}: {name} is {kind}, documented as {allowed:?}");
        }
    }
    for name in documented.keys().filter(|name| !OF_VALKEY_9.contains(&name.as_str())) {
        // Null has no fields, and an empty list has no elements.
        let parent = name.rsplit_once('.').map_or("", |(parent, _)| parent);
        let has_parent =
            parent.is_empty() || found.get(parent).is_some_and(|kinds| kinds.iter().any(|kind| kind == "object"));
        ensure!(!has_parent || found.contains_key(name), "{what}: {name} is not there");
    }
    Ok(())
}

fn report(target: &Path) -> anyhow::Result<(Value, Option<i32>)> {
    let output = evictscope_without_privileges().args(["inspect", "--json", "--rate", "50000"]).arg(target).output()?;
    let value =
        serde_json::from_slice(&output.stdout).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    Ok((value, output.status.code()))
}

#[test]
fn the_documented_fields_are_those_of_a_report() -> anyhow::Result<()> {
    let documented = documented();
    let Some(server) = servers::find_or_skip(servers::DEBIAN)? else {
        return Ok(());
    };
    let (report, code) = report(&server)?;
    ensure!(code == Some(0), "exit code {code:?}");
    agree(&documented, &report, "the report")?;
    // Without privileges nothing is measured.
    let source = &report["cost"]["source"];
    ensure!(source == "documented", "{source}");
    let quantities = &report["functions"][0]["inner"]["quantities"];
    let quantities = quantities.as_array().into_iter().flatten();
    let names: Vec<_> = quantities.map(|each| each["name"].as_str()).collect();
    let expected = ["mem_reported", "overhead", "mem_used", "mem_tofree", "maxmemory"];
    ensure!(names == expected.map(Some), "{names:?}");
    Ok(())
}

#[test]
fn a_report_names_items_that_were_not_found() -> anyhow::Result<()> {
    let documented = documented();
    let (report, code) = report(Path::new("/bin/sh"))?;
    ensure!(code == Some(1), "exit code {code:?}");
    agree(&documented, &report, "the report")?;
    let (missing, functions) = (&report["not_found"], &report["functions"]);
    ensure!(missing[0]["item"] == "eviction_call", "{missing}");
    ensure!(functions.as_array().is_some_and(Vec::is_empty), "{functions}");
    Ok(())
}
