//! What `evictscope compare` says of a run without a remedy and one with it.

use std::path::Path;

use anyhow::Result;
use evictscope_testkit::{agent::Program, process};

use crate::{
    judge::Finished,
    kept::{Kept, of_burst},
};

/// Returns the comparison of the first records of two runs. Where a run has none, it says so with what was counted.
pub fn compared(
    agent: &Program,
    without: &Finished,
    name: &str,
    with: &Finished,
) -> Result<String> {
    match (first(without), first(with)) {
        (Some(before), Some(after)) => {
            let drawing = after.with_extension("").with_extension("svg");
            let table = of_records(agent, before, after, &drawing)?;
            let files = format!("{} {}", before.display(), after.display());
            Ok(format!("evictscope compare {files}\n{table}"))
        }
        (Some(_), None) => Ok(format!(
            "evictscope has nothing to compare: {name} left no record, because it had no burst that was recorded \
             ({} bursts, {} keys evicted)\n",
            with.outcome.cycles.len(),
            with.outcome.evicted_keys
        )),
        (None, _) => Ok(
            "evictscope has nothing to compare: the run without the remedy left no record\n"
                .to_owned(),
        ),
    }
}

/// Returns the table of two records, and where the drawing is, or why there is none: not every record has a profile.
fn of_records(agent: &Program, before: &Path, after: &Path, drawing: &Path) -> Result<String> {
    let compare = || {
        let mut command = agent.command("compare");
        command.arg(before).arg(after);
        command
    };
    let table = process::answer_of(&mut compare())?;
    let drawn = process::answer_of(compare().arg("--output").arg(drawing));
    Ok(match drawn {
        Ok(_) => format!("{table}drawn in {}\n", drawing.display()),
        Err(error) => format!("{table}not drawn: {error:#}\n"),
    })
}

/// Returns the file of the record of a run's first burst under load, else of its first stall.
fn first(run: &Finished) -> Option<&Path> {
    let begin = run.outcome.at - run.outcome.seconds;
    let testimony = run.testimony.as_ref()?;
    let records = testimony.records.as_ref()?;
    let bursts = testimony.bursts.iter().filter(|burst| burst.start > begin);
    let mut of_bursts = bursts.flat_map(|burst| of_burst(burst, records));
    let record = of_bursts
        .next()
        .or_else(|| records.iter().find(|record: &&Kept| record.began > begin))?;
    Some(&record.path)
}
