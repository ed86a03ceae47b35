//! The spread of the values of several rounds.

/// Five numbers that describe the spread of values. Without values they are NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The least value.
    pub least: f64,
    /// A quarter of the values is below this.
    pub lower: f64,
    /// Half of the values is below this.
    pub median: f64,
    /// A quarter of the values is above this.
    pub upper: f64,
    /// The greatest value.
    pub greatest: f64,
}

impl Spread {
    /// Returns the spread of these values, in any order.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self {
            least: quantile(&values, 0.0),
            lower: quantile(&values, 0.25),
            median: quantile(&values, 0.5),
            upper: quantile(&values, 0.75),
            greatest: quantile(&values, 1.0),
        }
    }

    /// Returns the median, the quartiles in brackets, and the least and the greatest value in parentheses.
    pub fn text(&self, digits: usize) -> String {
        let Self {
            least,
            lower,
            median,
            upper,
            greatest,
        } = self;
        format!(
            "{median:.digits$} [{lower:.digits$} {upper:.digits$}] ({least:.digits$} … {greatest:.digits$})"
        )
    }
}

/// Interpolates between the two neighbours of its rank.
fn quantile(sorted: &[f64], quantile: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let rank = quantile * last as f64;
    let below = rank.floor();
    let at = |rank: f64| sorted.get(rank as usize).copied().unwrap_or(f64::NAN);
    at(below) + (at(rank.ceil()) - at(below)) * (rank - below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_the_values() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!(spread.least, 1.0);
        assert_eq!(spread.lower, 1.75);
        assert_eq!(spread.median, 2.5);
        assert_eq!(spread.upper, 3.25);
        assert_eq!(spread.text(1), "2.5 [1.8 3.2] (1.0 … 4.0)");
        assert!(Spread::of([]).median.is_nan());
    }
}
