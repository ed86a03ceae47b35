//! An axis of values with labels that are round in their unit: 64 MiB, not 66.7.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// A range of values, and where its labels are.
pub struct Axis {
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl Axis {
    /// Makes an axis for values in one of Grafana's units.
    pub fn new(unit: &str, range: Range<f64>) -> Self {
        let ticks = ticks(unit, &range);
        Self { range, ticks }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        low + (share * f64::from(high - low)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// Returns about five round values of the unit, for the labels.
fn ticks(unit: &str, range: &Range<f64>) -> Vec<f64> {
    let rough = (range.end - range.start) / 5.0;
    let step = match unit {
        "bytes" => rough.log2().ceil().exp2(),
        "s" if rough >= 3600.0 => 3600.0 * round(rough / 3600.0),
        "s" if rough >= 60.0 => 60.0 * round(rough / 60.0),
        _ => round(rough),
    };
    let first = (range.start / step).ceil() as i64;
    let last = (range.end / step).floor() as i64;
    (first..=last).map(|number| number as f64 * step).collect()
}

/// Rounds up to 1, 2 or 5 times a power of ten.
fn round(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let digits = [1.0, 2.0, 5.0];
    let fits = digits.into_iter().find(|digit| digit * power >= value);
    fits.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::ticks;

    #[test]
    fn labels_are_round_in_their_unit() {
        let mebi = 1024.0 * 1024.0;
        let bytes = ticks("bytes", &(0.0..130.0 * mebi));
        assert_eq!(
            bytes,
            [0.0, 32.0, 64.0, 96.0, 128.0].map(|tick| tick * mebi)
        );
        assert_eq!(ticks("s", &(0.0..400.0)), [0.0, 120.0, 240.0, 360.0]);
        assert_eq!(ticks("none", &(0.0..2.2)), [0.0, 0.5, 1.0, 1.5, 2.0]);
        assert_eq!(ticks("none", &(-1.0..1.0)), [-1.0, -0.5, 0.0, 0.5, 1.0]);
    }
}
