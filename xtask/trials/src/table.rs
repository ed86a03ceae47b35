//! The table that all trials make: whole on the terminal, and in `docs/COMPATIBILITY.md` only what operators ask.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// What was found on one kernel, of one build, or of one tool.
#[derive(Clone)]
pub struct Row {
    columns: Vec<(&'static str, String)>,
    /// What was found and must not be.
    faults: Vec<String>,
}

impl Row {
    /// Begins a row with its first column.
    pub fn new(column: &'static str, name: &str) -> Self {
        Self { columns: vec![(column, name.to_owned())], faults: Vec::new() }
    }

    /// Adds what is reported but not judged.
    pub fn fact(&mut self, column: &'static str, found: impl Into<String>) {
        self.columns.push((column, found.into()));
    }

    /// Adds what was found, and whether that is right.
    pub fn check(&mut self, column: &'static str, right: bool, found: &str) {
        if right {
            self.fact(column, found);
        } else {
            self.fact(column, format!("**{found}**: wrong"));
            self.faults.push(format!("{column}: {found}"));
        }
    }

    /// Adds `right` if there is no fault, or else the faults.
    pub fn no_faults(&mut self, column: &'static str, faults: &[String], right: &str) {
        let all = faults.join("; ");
        self.check(column, faults.is_empty(), if faults.is_empty() { right } else { &all });
    }

    /// Adds pairs of numbers, each of which must be equal and not zero: the agent's, and the server's own.
    pub fn equal(&mut self, column: &'static str, pairs: &[(f64, f64)]) {
        let right = pairs.iter().all(|(told, own)| told == own && *own > 0.0);
        let shown: Vec<_> = pairs.iter().map(|(told, own)| format!("{told} = {own}")).collect();
        self.check(column, right, &shown.join(", "));
    }

    /// Adds an error as a fault that has no column.
    pub fn must_succeed(&mut self, what: &str, result: Result<()>) {
        if let Err(error) = result {
            self.faults.push(format!("{what}: {error:#}"));
        }
    }

    /// Returns the faults, each after the name in the first column.
    pub fn named_faults(&self) -> impl Iterator<Item = String> {
        self.faults.iter().map(|fault| format!("{}: {fault}", self.columns[0].1))
    }

    fn get(&self, column: &str) -> &str {
        self.columns.iter().find(|(name, _)| *name == column).map_or("-", |(_, found)| found)
    }
}

/// Formats rows as a table of Markdown. It has the columns of the row with the most; what another row lacks is a
/// hyphen.
pub fn markdown(rows: &[Row]) -> String {
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let Some(longest) = rows.iter().max_by_key(|row| row.columns.len()) else {
        return String::new();
    };
    let names: Vec<&str> = longest.columns.iter().map(|(name, _)| *name).collect();
    let lines = rows.iter().map(|row| line(names.iter().map(|name| row.get(name)).collect()));
    line(names.clone()) + &line(vec!["---"; names.len()]) + &lines.collect::<String>()
}

/// Formats rows with only these columns, and says about all others together that they are right, or what is not.
pub fn brief(rows: &[Row], columns: &[&str]) -> String {
    let brief = |row: &Row| {
        let mut brief = Row { faults: Vec::new(), ..row.clone() };
        brief.columns.retain(|(column, _)| columns.contains(column));
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
    let (before, from) = page.split_once(heading).unwrap_or((page, ""));
    let after = from.find("\n## ").map_or("", |end| &from[end..]);
    format!("{}\n\n{heading}\n\n{}\n{after}", before.trim_end(), text.trim_end())
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
