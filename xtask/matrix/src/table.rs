//! The table: on the terminal, and in `docs/COMPATIBILITY.md`.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

/// A row: what was found on one kernel.
pub struct Row {
    columns: Vec<(&'static str, String)>,
    /// What was found and must not be.
    pub faults: Vec<String>,
    /// How long the agent took to end, in seconds of the machine.
    pub took: Option<f64>,
}

impl Row {
    /// Begins the row of a kernel.
    pub fn new(kernel: &str) -> Self {
        Self {
            columns: vec![("kernel", kernel.to_owned())],
            faults: Vec::new(),
            took: None,
        }
    }

    /// Adds what is told and not judged.
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

    /// Adds what is `right` where nothing was found that must not be.
    pub fn no_faults(&mut self, column: &'static str, found: &[String], right: &str) {
        let all = found.join("; ");
        let told = if all.is_empty() { right } else { &all };
        self.check(column, found.is_empty(), told);
    }
}

/// Formats rows with the same columns as a table of Markdown.
pub fn markdown(rows: &[Row]) -> String {
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let Some(first) = rows.first() else {
        return String::new();
    };
    let names: Vec<_> = first.columns.iter().map(|(name, _)| *name).collect();
    let rule = vec!["---"; names.len()];
    let mut text = line(names) + &line(rule);
    for row in rows {
        text += &line(
            row.columns
                .iter()
                .map(|(_, found)| found.as_str())
                .collect(),
        );
    }
    text
}

/// Puts the text below a heading of a page in the place of what is there. A page or heading that is
/// missing is made.
pub fn write_section(page: &Path, heading: &str, text: &str) -> Result<()> {
    let old = if page.exists() {
        fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?
    } else {
        "# Compatibility\n".to_owned()
    };
    fs::write(page, with_section(&old, heading, text))
        .with_context(|| format!("cannot write {}", page.display()))
}

fn with_section(page: &str, heading: &str, text: &str) -> String {
    let start = page.find(heading).unwrap_or(page.len());
    let (before, from) = page.split_at(start);
    let after = from.get(heading.len()..).unwrap_or_default();
    let after = after.find("\n## ").map_or("", |end| &after[end + 1..]);
    let section = format!(
        "{}\n\n{heading}\n\n{}\n",
        before.trim_end(),
        text.trim_end()
    );
    if after.is_empty() {
        section
    } else {
        format!("{section}\n{after}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_stands_out_and_is_a_fault() {
        let mut row = Row::new("6.1");
        row.check("check", true, "ok");
        row.check("exit", false, "1");
        assert_eq!(row.faults, ["exit: 1"]);
        assert_eq!(
            markdown(&[row]),
            "| kernel | check | exit |\n| --- | --- | --- |\n| 6.1 | ok | **1**: wrong |\n"
        );
    }

    #[test]
    fn only_the_text_of_the_section_changes() {
        let page = with_section("# Page\n", "## Kernels", "old");
        assert_eq!(page, "# Page\n\n## Kernels\n\nold\n");
        let page = format!("{page}\n## Servers\n\nkept\n");
        assert_eq!(
            with_section(&page, "## Kernels", "new\n"),
            "# Page\n\n## Kernels\n\nnew\n\n## Servers\n\nkept\n"
        );
    }
}
