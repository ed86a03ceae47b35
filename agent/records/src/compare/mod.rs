//! Compares two records, or two profiles: what changed, and what is only noise.
//!
//! Pure: records and folded stacks in, rows and a drawing out.

mod functions;
mod measures;
mod seconds;

pub use functions::{differential, functions, is_profile};
pub use measures::quantile;
use serde::Serialize;

use self::measures::{MEASURES, MeasureUnit, Measured};
use self::seconds::scatter;
use crate::{Record, text};

/// Fewer seconds do not say how far they scatter.
const FEWEST_SECONDS: usize = 5;
/// A difference has to be larger than this many standard deviations of a second. Medians of seven seconds of the same
/// state differ by more in 3 of 100 pairs at most, those of sixty seconds in none of 200 (`tests.rs` measures it).
const DEVIATIONS: f64 = 2.0;

/// How a value changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It changed by more than its noise.
    Changed,
    /// It did not.
    WithinNoise,
    /// There is only one value per record, or too few seconds: how far such values scatter is not known.
    NotJudged,
}

/// A value before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names of some say what they are")]
pub struct ComparedRow {
    pub name: String,
    /// Before: bytes, seconds, a share or a number; `None` if it is not known.
    pub before: Option<f64>,
    pub after: Option<f64>,
    /// How much two such values of the same state may differ; `None` if that is not known.
    pub noise: Option<f64>,
    pub change: Change,
    #[serde(skip)]
    unit: MeasureUnit,
}

impl ComparedRow {
    /// Compares two values whose noise may be known.
    fn new(name: &str, unit: MeasureUnit, before: Option<f64>, after: Option<f64>, noise: Option<f64>) -> Self {
        let change = match before.zip(after).zip(noise) {
            Some(((before, after), noise)) if (after - before).abs() > noise => Change::Changed,
            Some(_) => Change::WithinNoise,
            None => Change::NotJudged,
        };
        Self { name: name.to_owned(), before, after, noise, change, unit }
    }

    /// Returns the cells of its line: name, before, after, change, judgement.
    pub fn cells(&self) -> [String; 5] {
        let text = |value: Option<f64>| text::or_unknown(value, |value| self.unit.text(value));
        let difference = self.before.zip(self.after).map(|(before, after)| after - before);
        let change = match (self.unit, self.before, difference) {
            (MeasureUnit::Share, _, Some(difference)) => text::change(difference, 1),
            (_, Some(before), Some(difference)) if before > 0.0 => text::change(difference / before, 0),
            _ => String::new(),
        };
        let noise = text::or_unknown(self.noise, |noise| self.unit.text(noise));
        let judgement = match self.change {
            Change::Changed => format!("changed (noise ±{noise})"),
            Change::WithinNoise => format!("within the noise (±{noise})"),
            Change::NotJudged => "not judged".to_owned(),
        };
        [self.name.clone(), text(self.before), text(self.after), change, judgement]
    }
}

impl MeasureUnit {
    fn text(self, value: f64) -> String {
        match self {
            Self::Count => text::count(value),
            Self::Bytes => text::bytes(value),
            Self::Seconds => text::seconds(value),
            Self::Share => text::share(value),
        }
    }
}

/// Compares two records: a row for each measure that at least one of them has.
pub fn records(before: &Record, after: &Record) -> Vec<ComparedRow> {
    let rows = MEASURES.iter().map(|(name, unit, of)| {
        let (before, after) = (of.measured(before), of.measured(after));
        ComparedRow::new(name, *unit, before.0, after.0, noise(of.resolution(), &before, &after))
    });
    rows.filter(|row| row.before.is_some() || row.after.is_some()).collect()
}

/// Returns by how much two values of the same state may differ, by how far the seconds of their records scatter.
fn noise(resolution: f64, before: &Measured, after: &Measured) -> Option<f64> {
    let ((before, seconds_before), (after, seconds_after)) = (before, after);
    if seconds_before.len().min(seconds_after.len()) < FEWEST_SECONDS {
        return None;
    }
    let scattered = scatter(seconds_before)?.max(scatter(seconds_after)?);
    let least = resolution * (*before)?.abs().max((*after)?.abs());
    Some((DEVIATIONS * scattered).max(least))
}

#[cfg(test)]
mod tests;
