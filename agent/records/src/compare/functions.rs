//! Compares two profiles, as folded stacks: a line for each stack, its functions from the outermost on with `;` between
//! them, a space and the number of samples.

use std::collections::{BTreeMap, HashSet};
use std::io;

use inferno::differential;
use inferno::flamegraph::{self, Options};

use super::ComparedRow;
use super::measures::MeasureUnit;
use crate::profile::are_drawable;

const MOST: usize = 15;
/// A share has changed if it did by more than this many standard errors: by chance, 1 in 300 does.
const ERRORS: f64 = 3.0;

/// Returns the functions whose share of the samples changed most, with both shares. A function's samples were taken in
/// it or in what it called.
pub fn functions(before: &str, after: &str) -> Vec<ComparedRow> {
    let (before, after) = (Shares::of(before), Shares::of(after));
    if before.samples == 0 || after.samples == 0 {
        return Vec::new();
    }
    let names: HashSet<&&str> = before.inside.keys().chain(after.inside.keys()).collect();
    let rows = names.into_iter().map(|name| {
        let (one, other) = (before.share(name), after.share(name));
        let noise = ERRORS * (before.variance(one) + after.variance(other)).sqrt();
        ComparedRow::new(name, MeasureUnit::Share, Some(one), Some(other), Some(noise))
    });
    let mut rows: Vec<ComparedRow> = rows.collect();
    let change = |row: &ComparedRow| (row.after.unwrap_or(0.0) - row.before.unwrap_or(0.0)).abs();
    rows.sort_by(|one, other| change(other).total_cmp(&change(one)).then_with(|| one.name.cmp(&other.name)));
    rows.truncate(MOST);
    rows
}

/// Draws the second profile as a flame graph, in which red functions take a larger share than in the first one, and
/// blue ones a smaller share. Their numbers of samples do not matter. Fails if a profile has no samples.
pub fn differential(before: &str, after: &str) -> io::Result<Vec<u8>> {
    let both = differential::Options { normalize: true, ..differential::Options::default() };
    let mut lines = Vec::new();
    differential::from_readers(both, before.as_bytes(), after.as_bytes(), &mut lines)?;
    let lines = String::from_utf8_lossy(&lines);
    // inferno keeps them in a hash table.
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.sort_unstable();
    let mut options = Options::default();
    options.title = "Main thread, after against before: red takes a larger share, blue a smaller one".to_owned();
    options.count_name = "samples".to_owned();
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines, &mut svg)?;
    Ok(svg)
}

/// How many samples a profile has, in all and by function.
struct Shares<'a> {
    samples: u64,
    inside: BTreeMap<&'a str, u64>,
}

impl<'a> Shares<'a> {
    fn of(folded: &'a str) -> Self {
        let mut shares = Self { samples: 0, inside: BTreeMap::new() };
        for (stack, samples) in folded.lines().filter_map(parsed) {
            shares.samples = shares.samples.saturating_add(samples);
            // A function that calls itself is there several times.
            for name in stack.split(';').collect::<HashSet<_>>() {
                let inside = shares.inside.entry(name).or_default();
                *inside = inside.saturating_add(samples);
            }
        }
        shares
    }

    fn share(&self, name: &str) -> f64 {
        self.inside.get(name).copied().unwrap_or(0) as f64 / self.samples as f64
    }

    /// Returns the variance of a share of these samples. A share of 0 or 1 is taken to be half a sample off.
    fn variance(&self, share: f64) -> f64 {
        let samples = self.samples as f64;
        let share = share.clamp(0.5 / samples, 1.0 - 0.5 / samples);
        share * (1.0 - share) / samples
    }
}

/// Returns whether a text is a profile of folded stacks that can be compared and drawn in a bounded time.
pub fn is_profile(text: &str) -> bool {
    let parsed: Option<Vec<_>> = text.lines().map(parsed).collect();
    parsed.is_some_and(|stacks| {
        let frames = |stack: &str| (1 + stack.matches(';').count(), stack.len());
        !stacks.is_empty() && are_drawable(stacks.into_iter().map(|(stack, _)| frames(stack)))
    })
}

/// Returns a stack and its samples; `None` if the line is not a folded stack.
fn parsed(line: &str) -> Option<(&str, u64)> {
    let (stack, samples) = line.rsplit_once(' ')?;
    (!stack.is_empty()).then_some(())?;
    Some((stack, samples.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{differential, functions};
    use crate::compare::Change;

    const BEFORE: &str = "main;performEvictions;dbGenericDelete 270\nmain;mgetCommand 180\n";
    const AFTER: &str = "main;performEvictions;dbGenericDelete 10\nmain;mgetCommand 890\n";

    #[test]
    fn the_functions_that_changed_most_come_first() {
        let rows = functions(BEFORE, AFTER);
        let told = |name| Some(rows.iter().find(|row| row.name == name)?.change);
        assert_eq!(rows[0].name, "dbGenericDelete");
        assert_eq!(told("mgetCommand"), Some(Change::Changed));
        assert_eq!(told("main"), Some(Change::WithinNoise));
        // The same shares of fewer samples.
        let rows = functions(BEFORE, "main;performEvictions;dbGenericDelete 29\nmain;mgetCommand 17\n");
        assert!(rows.iter().all(|row| row.change == Change::WithinNoise), "{rows:?}");
        assert!(functions("", AFTER).is_empty());
    }

    #[test]
    fn the_drawing_has_the_functions_of_both() -> anyhow::Result<()> {
        let svg = String::from_utf8(differential(BEFORE, AFTER)?)?;
        for part in ["<svg", "mgetCommand", "dbGenericDelete", "a smaller one"] {
            anyhow::ensure!(svg.contains(part), "{part}");
        }
        Ok(())
    }
}
