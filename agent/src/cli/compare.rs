//! `evictscope compare`: two records or two profiles, side by side.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use evictscope_records::compare::{self, ComparedRow};
use evictscope_records::profile::format;
use evictscope_records::{Record, StoreError, Unreadable};
use serde::Serialize;

use super::state_dir::StateDir;
use crate::terminal;
use crate::text::table;

/// The largest profile that is read, in bytes.
const LONGEST_PROFILE: u64 = 64 << 20;

/// Compare two records, or two profiles, and draw what changed between them
///
/// A value counts as changed if it differs by more than the seconds of the two records scatter (twice their median
/// distance from the median, in units of a standard deviation), and by more than 1 % (latencies: 10 %, as far as the
/// buckets of the histogram are apart). A value that a record has only once, such as a peak, is not judged. The share
/// of a function counts as changed if it differs by more than three standard errors for its number of samples.
#[derive(clap::Args)]
pub struct Arguments {
    /// The first one: the name of a record, a file that holds one, or folded stacks (`evictscope profile --format
    /// folded`)
    #[arg(value_name = "BEFORE")]
    before: String,
    /// The second one, of the same sort
    #[arg(value_name = "AFTER")]
    after: String,
    /// Draw the second profile as a flame graph into FILE: red functions take a larger share than before, blue ones a
    /// smaller one
    #[arg(short, long, value_name = "FILE.svg")]
    output: Option<PathBuf>,
    /// The table as JSON: bytes, seconds, shares and numbers
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
}

enum Compared {
    Record(Box<Record>),
    /// Folded stacks.
    Profile(String),
}

#[derive(Serialize)]
struct Comparison {
    /// One for each measure; empty for two profiles.
    measures: Vec<ComparedRow>,
    /// The functions whose share changed most.
    functions: Vec<ComparedRow>,
}

/// Prints the table, and writes the drawing if that is asked for.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let before = read(&arguments.before, &arguments.state_dir)?;
    let after = read(&arguments.after, &arguments.state_dir)?;
    let (measures, before, after) = match (before, after) {
        (Compared::Record(before), Compared::Record(after)) => {
            (compare::records(&before, &after), folded(&before), folded(&after))
        }
        (Compared::Profile(before), Compared::Profile(after)) => (Vec::new(), Ok(before), Ok(after)),
        _ => {
            bail!("{} and {} are a record and a profile: give two of the same sort", arguments.before, arguments.after)
        }
    };
    let profiles = before.and_then(|before| Ok((before, after?)));
    let functions = profiles.as_ref().map(|(before, after)| compare::functions(before, after));
    let comparison = Comparison { measures, functions: functions.unwrap_or_default() };
    let json = || serde_json::to_string_pretty(&comparison).map(|json| json + "\n");
    terminal::print(&if arguments.json { json()? } else { comparison.text() })?;
    if let Some(file) = &arguments.output {
        let (before, after) = profiles.context("there is nothing to draw")?;
        let svg = compare::differential(&before, &after)?;
        std::fs::write(file, svg).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Comparison {
    fn text(&self) -> String {
        let tables = [("", &self.measures), ("FUNCTION", &self.functions)];
        let text = |(heading, rows): &(&str, &Vec<ComparedRow>)| {
            let mut cells = vec![[*heading, "BEFORE", "AFTER", "CHANGE", ""].map(str::to_owned).to_vec()];
            cells.extend(rows.iter().map(|row| row.cells().to_vec()));
            table(&cells)
        };
        tables.iter().filter(|(_, rows)| !rows.is_empty()).map(text).collect::<Vec<_>>().join("\n")
    }
}

fn folded(record: &Record) -> anyhow::Result<String> {
    match &record.profile {
        Ok(taken) if taken.samples() > 0 => Ok(format::folded(taken)),
        Ok(_) => bail!("the profile of {} has no samples", record.id),
        Err(why) => bail!("the record {} has no profile: {}", record.id, why.0),
    }
}

fn read(named: &str, state_dir: &StateDir) -> anyhow::Result<Compared> {
    match state_dir.record(named) {
        Ok(record) => Ok(Compared::Record(Box::new(record))),
        Err(StoreError::Read { file, error: Unreadable::Foreign }) => Ok(Compared::Profile(profile_in(&file)?)),
        Err(error) => Err(error.into()),
    }
}

fn profile_in(file: &Path) -> anyhow::Result<String> {
    let shown = file.display();
    let mut text = String::new();
    let opened = File::open(file).with_context(|| format!("cannot read {shown}"))?;
    let wrong = || format!("{shown} is neither a record nor a profile of `evictscope profile --format folded`");
    opened.take(LONGEST_PROFILE + 1).read_to_string(&mut text).with_context(wrong)?;
    ensure!(text.len() as u64 <= LONGEST_PROFILE, "{shown} is too large for a profile");
    ensure!(compare::is_profile(&text), wrong());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use evictscope_records::fixture::burst_record;
    use evictscope_records::{Store, StoreLimits};

    use super::*;

    #[test]
    fn records_and_profiles_are_told_apart() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let limits = StoreLimits { records: 10, bytes: 1 << 20 };
        let path = Store::open(directory.path(), limits)?.write(&burst_record())?;
        let folded = directory.path().join("a.folded");
        std::fs::write(&folded, "main;performEvictions 3\nmain 4\n")?;
        let other = directory.path().join("notes");
        std::fs::write(&other, "notes")?;
        let state_dir = StateDir::of(directory.path());
        let named = |path: &Path| read(&path.display().to_string(), &state_dir);
        assert!(matches!(named(&path)?, Compared::Record(_)));
        assert!(matches!(read(burst_record().id.as_str(), &state_dir)?, Compared::Record(_)));
        assert!(matches!(named(&folded)?, Compared::Profile(_)));
        let said = |path: &Path| named(path).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(said(&other).contains("neither a record nor a profile"));
        assert!(said(Path::new("/nowhere/a")).contains("there is no record /nowhere/a"));
        assert!(read("nowhere", &state_dir).is_err());
        Ok(())
    }

    #[test]
    fn the_table_has_a_line_for_each_measure_and_function() -> anyhow::Result<()> {
        let record = burst_record();
        let stacks = folded(&record)?;
        let comparison = Comparison {
            measures: compare::records(&record, &record),
            functions: compare::functions(&stacks, &stacks),
        };
        let text = comparison.text();
        for part in ["commands/s in it", "8.0k", "+0 %", "within the noise", "FUNCTION", "performEvictions"] {
            ensure!(text.contains(part), "{part}: {text}");
        }
        Ok(())
    }
}
