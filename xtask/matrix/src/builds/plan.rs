//! What the agent plans for an executable.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::process;
use serde_json::Value;

/// A plan, as `inspect --json` prints it.
pub struct Plan {
    pub json: Value,
}

impl Plan {
    pub fn of(program: &Path, agent: &Path) -> Result<Self> {
        let mut command = Command::new(agent);
        let output = command.args(["inspect", "--json"]).arg(program).output();
        let output = output.context("cannot start the agent")?;
        // It is 1 if something was not found.
        ensure!(
            matches!(output.status.code(), Some(0 | 1)),
            "`{}` failed ({}): {}",
            process::display(&command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let json = serde_json::from_slice(&output.stdout);
        let json = json.with_context(|| format!("`{}` printed no JSON", process::display(&command)))?;
        Ok(Self { json })
    }

    /// Returns how long planning took, in milliseconds.
    pub fn milliseconds(&self) -> f64 {
        self.json["planning_seconds"].as_f64().unwrap_or(f64::NAN) * 1e3
    }

    /// Returns what was not found, each item with the reason.
    pub fn not_found(&self) -> Vec<(&str, &str)> {
        let items = self.json["not_found"].as_array().into_iter().flatten();
        items
            .map(|item| {
                let word = |key: &str| item[key].as_str().unwrap_or("?");
                (word("item"), word("why"))
            })
            .collect()
    }

    /// Returns `complete`, or the items that were not found.
    pub fn verdict(&self) -> String {
        let items: Vec<_> = self.not_found().iter().map(|(item, _)| *item).collect();
        match items.is_empty() {
            true => "complete".to_owned(),
            false => format!("without {}", items.join(", ")),
        }
    }

    /// Returns the methods by which the goal variables and the members were found.
    pub fn methods(&self) -> BTreeSet<&str> {
        let call = self.eviction_call();
        let quantities = call.and_then(|call| call["inner"]["quantities"].as_array());
        let members = self.json["members"].as_array();
        let all = quantities.into_iter().chain(members).flatten();
        all.filter_map(|item| item["method"].as_str()).collect()
    }

    /// Returns product and version of the server, if both are known.
    pub fn server(&self) -> Option<String> {
        let text = |key: &str| self.json[key].as_str();
        Some(format!("{} {}", text("product")?, text("version")?))
    }

    pub fn is_empty(&self) -> bool {
        let is_empty = |key: &str| self.json[key].as_array().is_none_or(Vec::is_empty);
        is_empty("functions") && is_empty("members")
    }

    pub fn eviction_call(&self) -> Option<&Value> {
        let mut functions = self.json["functions"].as_array()?.iter();
        functions.find(|function| function["kind"] == "eviction_call")
    }

    /// Returns how many done sites of the eviction call end only the calls that leave a jump one way.
    pub fn ways(&self) -> usize {
        let elsewhere = self.exits().filter(|(_, is_at_goal)| !is_at_goal);
        elsewhere.filter(|(exit, _)| !exit["way"].is_null()).count()
    }

    /// Returns whether the goal probe ends some calls.
    pub fn ends_at_goal(&self) -> bool {
        self.exits().any(|(_, is_at_goal)| is_at_goal)
    }

    /// Returns the exits of the eviction call, and whether each is at the goal site.
    fn exits(&self) -> impl Iterator<Item = (&Value, bool)> {
        let call = self.eviction_call();
        let exits = call.and_then(|call| Some((&call["inner"], call["exits"].as_array()?)));
        exits.into_iter().flat_map(|(goal, exits)| {
            let exits = exits.iter();
            exits.map(|exit| (exit, exit["address"] == goal["address"]))
        })
    }
}
