//! A run that has ended, and whether it is what was wanted.

use anyhow::{Result, ensure};

use crate::{judge, outcome::Outcome, record::Run, witness::Testimony};

/// A run that has ended.
pub struct Finished {
    /// The run as the record has it.
    pub run: Run,
    /// What the record shows.
    pub outcome: Outcome,
    /// What the agent said, where there was one.
    pub testimony: Option<Testimony>,
    /// What the onlooker found, where there was one.
    pub onlooker: Result<()>,
}

impl Finished {
    /// Fails where the run ended before it had this many complete cycles.
    pub fn must_have_cycles(&self, wanted: usize) -> Result<()> {
        let cycles = self.outcome.cycles.iter();
        let complete = cycles.filter(|cycle| cycle.stands_alone()).count();
        ensure!(
            complete >= wanted,
            "{complete} complete cycles instead of {wanted} in {:.0} s",
            self.outcome.seconds
        );
        Ok(())
    }

    /// Prints what the agent said beside what the record shows, where there was an agent. All bursts are to
    /// be of `kind`, where that is known.
    ///
    /// # Errors
    ///
    /// Fails where the two differ by more than they may.
    pub fn must_agree(&self, kind: Option<&str>) -> Result<()> {
        let Some(testimony) = &self.testimony else {
            return Ok(());
        };
        let outcome = &self.outcome;
        let begin = outcome.at - outcome.seconds;
        let comparison = judge::compare(begin, &outcome.cycles, &testimony.bursts, kind);
        println!("{}", comparison.text);
        ensure!(
            comparison.differences.is_empty(),
            "evictscope and the record differ:\n  {}",
            comparison.differences.join("\n  ")
        );
        println!(
            "evictscope and the record agree: {} bursts",
            testimony.bursts.len()
        );
        Ok(())
    }
}
