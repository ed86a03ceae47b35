//! The table: whole on the terminal, and in `docs/COMPATIBILITY.md` only what operators ask.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::scrape::Scrape;

use crate::machine::Answers;

/// A row: what was found on one kernel, or for one build.
pub struct Row {
    columns: Vec<(&'static str, String)>,
    /// What was found and must not be.
    faults: Vec<String>,
}

impl Row {
    /// Returns the faults, each after the name in the first column.
    pub fn named_faults(&self) -> impl Iterator<Item = String> {
        let name = self.columns.first().map_or("", |(_, name)| name);
        self.faults.iter().map(move |fault| format!("{name}: {fault}"))
    }

    /// Begins a row with its first column.
    pub fn new(column: &'static str, name: &str) -> Self {
        Self { columns: vec![(column, name.to_owned())], faults: Vec::new() }
    }

    /// Adds what is reported but not judged.
    pub fn fact(&mut self, column: &'static str, found: &str) {
        self.columns.push((column, found.to_owned()));
    }

    /// Adds what was found, and whether that is right.
    pub fn check(&mut self, column: &'static str, right: bool, found: &str) {
        if right {
            self.fact(column, found);
        } else {
            self.fact(column, &format!("**{found}**: wrong"));
            self.faults.push(format!("{column}: {found}"));
        }
    }

    /// Adds a fault that has no column.
    pub fn fault(&mut self, fault: &str) {
        self.faults.push(fault.to_owned());
    }

    /// Adds the error of what failed as a fault.
    pub fn succeeded(&mut self, what: &str, result: Result<()>) {
        if let Err(error) = result {
            self.fault(&format!("{what}: {error:#}"));
        }
    }

    /// Adds `right` if `found` is empty, or else what was found, as a fault.
    pub fn no_faults(&mut self, column: &'static str, found: &[String], right: &str) {
        let all = found.join("; ");
        let told = if all.is_empty() { right } else { &all };
        self.check(column, found.is_empty(), told);
    }
}

/// Formats rows as a table of Markdown. It has the columns of the row with the most; what another row lacks is a
/// hyphen.
pub fn markdown(rows: &[Row]) -> String {
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let Some(longest) = rows.iter().max_by_key(|row| row.columns.len()) else {
        return String::new();
    };
    let names: Vec<_> = longest.columns.iter().map(|(name, _)| *name).collect();
    let rule = vec!["---"; names.len()];
    let mut text = line(names.clone()) + &line(rule);
    for row in rows {
        let cell = |name: &&str| {
            let mut columns = row.columns.iter();
            columns.find_map(|(column, found)| (column == name).then_some(found.as_str()))
        };
        text += &line(names.iter().map(|name| cell(name).unwrap_or("-")).collect());
    }
    text
}

/// Formats rows with only these columns, and says about all others together that they are right, or what is not.
pub fn brief(rows: &[Row], columns: &[&str]) -> String {
    let brief = |row: &Row| {
        let told = row.columns.iter();
        let told = told.filter(|(column, _)| columns.contains(column));
        let mut brief = Row { columns: told.cloned().collect(), faults: Vec::new() };
        brief.no_faults("all else", &row.faults, "right");
        brief
    };
    markdown(&rows.iter().map(brief).collect::<Vec<_>>())
}

/// Replaces the text below a heading of a page.
pub fn write_section(page: &Path, heading: &str, text: &str) -> Result<()> {
    let old = fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    fs::write(page, with_section(&old, heading, text)).with_context(|| format!("cannot write {}", page.display()))
}

fn with_section(page: &str, heading: &str, text: &str) -> String {
    let start = page.find(heading).unwrap_or(page.len());
    let (before, from) = page.split_at(start);
    let after = from.get(heading.len()..).unwrap_or_default();
    let after = after.find("\n## ").map_or("", |end| &after[end + 1..]);
    let section = format!("{}\n\n{heading}\n\n{}\n", before.trim_end(), text.trim_end());
    if after.is_empty() { section } else { format!("{section}\n{after}") }
}

/// What the kernel logs when a thread dies while it removes a probe.
const LEAK: &str = "failed to unregister, leaking uprobe";

/// Compares the agent's numbers with those of the servers at these ports: they must be equal, and each server
/// must have evicted. The row shows the sums.
pub fn compare(answers: &Answers, ports: &[u16], row: &mut Row) -> Result<()> {
    let metrics = answers.text("metrics")?;
    let pages = ports.iter().map(|port| {
        let pid = answers.word::<u32>(&format!("server {port}"))?;
        Ok((*port, Scrape::parse(metrics)?.of_server(pid)?))
    });
    let pages: Vec<_> = pages.collect::<Result<_>>()?;
    for (what, metric, field) in [
        ("evicted keys", "evictscope_evicted_keys_total", "evicted_keys"),
        ("commands", "evictscope_commands_processed_total", "total_commands_processed"),
    ] {
        let pairs = pages.iter().map(|(port, page)| {
            let own = answers.value(&format!("info {port}"), field)?;
            Ok((page.sum(metric, &[])?, own.parse::<f64>().context(field)?))
        });
        equal(what, pairs.collect::<Result<_>>()?, row);
    }
    let calls = "evictscope_eviction_calls_total";
    let hits = "evictscope_probe_hits_total";
    let pairs = pages.iter().map(|(_, page)| {
        let calls = page.sum(calls, &[("kind", "evicting")])?;
        Ok((calls, page.sum(hits, &[("probe", "eviction_goal")])?))
    });
    equal("evicting calls", pairs.collect::<Result<_>>()?, row);
    Ok(())
}

/// Adds the sums of both numbers over all servers; each server's two must be equal and not zero.
fn equal(what: &'static str, pairs: Vec<(f64, f64)>, row: &mut Row) {
    let right = pairs.iter().all(|(told, own)| told == own && *own > 0.0);
    let (told, own) = pairs.iter().fold((0.0, 0.0), |sums, pair| (sums.0 + pair.0, sums.1 + pair.1));
    row.check(what, right, &format!("{told} = {own}"));
}

pub fn leaks(answers: &Answers) -> Result<usize> {
    let log = answers.text("kernel_log")?;
    ensure!(log.contains("Linux version"), "the kernel's log has no beginning");
    Ok(log.lines().filter(|line| line.contains(LEAK)).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_of_the_section_changes() {
        let page = with_section("# Page\n", "## Kernels", "old");
        assert_eq!(page, "# Page\n\n## Kernels\n\nold\n");
        let page = format!("{page}\n## Servers\n\nkept\n");
        assert_eq!(with_section(&page, "## Kernels", "new\n"), "# Page\n\n## Kernels\n\nnew\n\n## Servers\n\nkept\n");
    }
}
