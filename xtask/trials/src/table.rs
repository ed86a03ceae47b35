//! The table that all trials make: whole, and for `docs/COMPATIBILITY.md` only what operators ask.

use anyhow::Result;

/// What was found on one kernel, of one build, or of one tool.
#[derive(Clone)]
pub struct Row {
    columns: Vec<(&'static str, String)>,
    /// What was found and must not be.
    faults: Vec<String>,
}

impl Row {
    pub fn new(column: &'static str, name: &str) -> Self {
        Self { columns: vec![(column, name.to_owned())], faults: Vec::new() }
    }

    pub fn fact(&mut self, column: &'static str, found: impl Into<String>) {
        self.columns.push((column, found.into()));
    }

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
    line(names.clone()) + "|" + &"---|".repeat(names.len()) + "\n" + &lines.collect::<String>()
}

/// Formats rows with only these columns. If something in another one is wrong, one more says what.
pub fn brief(rows: &[Row], columns: &[&str]) -> String {
    let brief = |row: &Row| {
        let mut brief = Row { faults: Vec::new(), ..row.clone() };
        brief.columns.retain(|(column, _)| columns.contains(column));
        if rows.iter().any(|row| !row.faults.is_empty()) {
            brief.no_faults("all else", &row.faults, "right");
        }
        brief
    };
    markdown(&rows.iter().map(brief).collect::<Vec<_>>())
}
