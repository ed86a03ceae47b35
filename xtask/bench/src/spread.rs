//! The spread of the values of several rounds.

/// Numbers that describe the spread of values. Without values they are NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Half of the values are below this.
    pub median: f64,
    /// A quarter of the values are below the first, and a quarter above the second.
    quartiles: [f64; 2],
    /// The least and the greatest value.
    ends: [f64; 2],
}

impl Spread {
    /// Returns the spread of these values, in any order.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self {
            median: quantile(&values, 0.5),
            quartiles: [0.25, 0.75].map(|part| quantile(&values, part)),
            ends: [0.0, 1.0].map(|part| quantile(&values, part)),
        }
    }

    /// Returns the median, the quartiles in brackets, and the least and the greatest value in parentheses.
    pub fn text(&self, digits: usize) -> String {
        let (median, [lower, upper], [least, greatest]) = (self.median, self.quartiles, self.ends);
        format!(
            "{median:.digits$} [{lower:.digits$} {upper:.digits$}] ({least:.digits$} … {greatest:.digits$})"
        )
    }
}

/// Interpolates between the two neighbours of the rank.
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
        assert_eq!(spread.text(2), "2.50 [1.75 3.25] (1.00 … 4.00)");
        assert!(Spread::of([]).median.is_nan());
    }
}
