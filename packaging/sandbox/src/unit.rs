//! What the systemd unit asks for.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

/// A unit of a service.
pub struct Unit {
    /// Names and values in `[Service]`, in order.
    directives: Vec<(String, String)>,
}

impl Unit {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read or has no `[Service]`.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let service = text.split("[Service]\n").nth(1).context("no [Service]")?;
        let service = service.split("\n[").next().unwrap_or(service);
        let lines = service.lines().filter(|line| !line.starts_with('#'));
        let directives = lines.filter_map(|line| line.split_once('='));
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.trim().to_owned());
        Ok(Self {
            directives: directives.map(owned).collect(),
        })
    }

    /// All values of one directive.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.directives.iter().filter(move |(key, _)| key == name);
        named.map(|(_, value)| value.as_str())
    }

    /// The value of a directive that is there once.
    ///
    /// # Errors
    ///
    /// Where it is not there once.
    pub fn one(&self, name: &str) -> anyhow::Result<&str> {
        let values: Vec<&str> = self.all(name).collect();
        match values.as_slice() {
            [one] => Ok(one),
            _ => anyhow::bail!("{name}: {values:?}"),
        }
    }

    /// The program that it starts, and its arguments.
    ///
    /// # Errors
    ///
    /// Where there is not one `ExecStart`.
    pub fn start(&self) -> anyhow::Result<(&str, Vec<&str>)> {
        let mut words = self.one("ExecStart")?.split_whitespace();
        let program = words.next().context("ExecStart is empty")?;
        Ok((program, words.collect()))
    }

    /// Whether a directive is `yes`.
    ///
    /// # Errors
    ///
    /// Where it is not there once.
    pub fn is_on(&self, name: &str) -> anyhow::Result<bool> {
        Ok(self.one(name)? == "yes")
    }

    /// The system calls that it allows: groups are taken from systemd.
    ///
    /// # Errors
    ///
    /// Where systemd does not know a group, or is not there.
    pub fn system_calls(&self) -> anyhow::Result<BTreeSet<String>> {
        let mut allowed = BTreeSet::new();
        for (index, value) in self.all("SystemCallFilter").enumerate() {
            let (forbids, names) = match value.strip_prefix('~') {
                Some(names) => (true, names),
                None => (false, value),
            };
            ensure!(
                index > 0 || !forbids,
                "the first one decides which kind of list it is"
            );
            for name in names.split_whitespace() {
                for call in expand(name)? {
                    match forbids {
                        true => allowed.remove(&call),
                        false => allowed.insert(call),
                    };
                }
            }
        }
        ensure!(allowed.len() > 50, "{allowed:?}");
        Ok(allowed)
    }
}

/// The system calls of a group, or the call itself.
fn expand(name: &str) -> anyhow::Result<Vec<String>> {
    if !name.starts_with('@') {
        return Ok(vec![name.to_owned()]);
    }
    let output = Command::new("systemd-analyze")
        .args(["syscall-filter", "--no-pager", name])
        .output()
        .context("cannot run systemd-analyze; `apt-get install systemd`")?;
    ensure!(output.status.success(), "systemd knows no {name}");
    let mut calls = Vec::new();
    for line in String::from_utf8(output.stdout)?.lines().skip(1) {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            calls.extend(expand(line)?);
        }
    }
    Ok(calls)
}
