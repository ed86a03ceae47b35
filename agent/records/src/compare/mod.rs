//! Compares two records, or two profiles: what changed, and what is only noise.
//!
//! Pure: records and folded stacks in, rows and a drawing out.

mod functions;
mod measures;
mod row;
mod seconds;

pub use functions::{differential, functions, is_profile};
pub use measures::quantile;
pub use row::ComparedRow;

use crate::Record;
use measures::MEASURES;

/// Compares two records: a row for each measure that at least one of them has.
pub fn records(before: &Record, after: &Record) -> Vec<ComparedRow> {
    let rows = MEASURES.iter().map(|(name, unit, of)| {
        let (before, after) = (of.measured(before), of.measured(after));
        ComparedRow::new(name, *unit, before.value, after.value, row::noise(of.resolution(), &before, &after))
    });
    rows.filter(|row| row.before.is_some() || row.after.is_some()).collect()
}

#[cfg(test)]
mod tests;
