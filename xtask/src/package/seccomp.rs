//! The filter of system calls for containers, from the unit's.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use evictscope_testkit::{process, workspace};
use serde_json::json;

/// The directive of the unit. Each of its lines adds to the list, or with `~` takes from it (`systemd.exec(5)`).
const DIRECTIVE: &str = "SystemCallFilter=";
/// What a container runtime calls under the filter until it executes the agent, and what systemd calls before it sets
/// its own.
const OF_RUNTIMES: &str = "@setuid";

pub fn write(to: &Path) -> Result<()> {
    let unit =
        fs::read_to_string(workspace::root().join("packaging/evictscope.service")).context("cannot read the unit")?;
    // Without a list of processors it is for the one that it is used on. Runtimes ignore names that this one lacks.
    let profile = json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 1,
        "syscalls": [{ "names": allowed(&unit)?, "action": "SCMP_ACT_ALLOW" }],
    });
    let text = serde_json::to_string_pretty(&profile)?;
    fs::write(to, text + "\n").with_context(|| format!("cannot write {}", to.display()))
}

/// Returns the system calls that the unit allows, and those of runtimes.
fn allowed(unit: &str) -> Result<BTreeSet<String>> {
    let mut allowed = BTreeSet::new();
    for list in unit.lines().filter_map(|line| line.strip_prefix(DIRECTIVE)) {
        for name in list.trim_start_matches('~').split_whitespace() {
            let calls = calls(name)?;
            if list.starts_with('~') {
                allowed.retain(|call| !calls.contains(call));
            } else {
                allowed.extend(calls);
            }
        }
    }
    allowed.extend(calls(OF_RUNTIMES)?);
    Ok(allowed)
}

fn calls(name: &str) -> Result<BTreeSet<String>> {
    if !name.starts_with('@') {
        return Ok(BTreeSet::from([name.to_owned()]));
    }
    let listed = process::answer_of(Command::new("systemd-analyze").args(["syscall-filter", name]))?;
    // The first line is the name of the group.
    let names = listed.lines().skip(1).map(str::trim).filter(|name| !name.is_empty() && !name.starts_with('#'));
    Ok(names.map(calls).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use evictscope_testkit::skip::skip;

    use super::{allowed, calls};

    #[test]
    fn lines_add_and_take() -> anyhow::Result<()> {
        if which::which("systemd-analyze").is_err() {
            return skip("systemd-analyze is not installed (package systemd)");
        }
        let unit = "SystemCallFilter=@io-event\nSystemCallFilter=~poll\nSystemCallFilter=bpf\n";
        let allowed = allowed(unit)?;
        for (name, is_allowed) in [("epoll_wait", true), ("poll", false), ("bpf", true), ("setuid", true)] {
            assert_eq!(allowed.contains(name), is_allowed, "{name}");
        }
        assert!(!calls("@system-service")?.contains("bpf"));
        Ok(())
    }
}
