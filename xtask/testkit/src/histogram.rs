//! Histograms as Prometheus keeps them, and quantiles of them as it computes them.

/// Cumulative counts by upper bound, the last one being infinity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    buckets: Vec<(f64, f64)>,
}

impl Histogram {
    /// Returns a histogram of pairs of an upper bound and the count of values up to it, in any order.
    pub fn new(buckets: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let mut buckets: Vec<_> = buckets.into_iter().collect();
        buckets.sort_by(|left, right| left.0.total_cmp(&right.0));
        Self { buckets }
    }

    /// Returns how many values it has.
    pub fn count(&self) -> f64 {
        self.buckets.last().map_or(0.0, |bucket| bucket.1)
    }

    /// Returns a quantile as Prometheus's `histogram_quantile` estimates it: linear within a bucket, and the
    /// lower bound of the last one. Without values there is no quantile.
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        if self.count() <= 0.0 {
            return None;
        }
        let rank = quantile * self.count();
        let index = self.buckets.iter().position(|bucket| bucket.1 >= rank)?;
        let (upper, count) = self.buckets[index];
        let below = index.checked_sub(1).map(|below| self.buckets[below]);
        if upper.is_infinite() {
            return below.map(|bucket| bucket.0);
        }
        let (lower, before) = match below {
            Some(bucket) => bucket,
            None if upper <= 0.0 => return Some(upper),
            None => (0.0, 0.0),
        };
        Some(lower + (upper - lower) * (rank - before) / (count - before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Histogram {
        Histogram::new([
            (f64::INFINITY, 100.0),
            (1.0, 10.0),
            (2.0, 60.0),
            (4.0, 98.0),
        ])
    }

    #[test]
    fn quantiles_are_interpolated_within_the_bucket() {
        assert_eq!(sample().quantile(0.05), Some(0.5));
        assert_eq!(sample().quantile(0.35), Some(1.5));
        assert_eq!(sample().quantile(0.60), Some(2.0));
    }

    #[test]
    fn beyond_the_last_bound_the_answer_is_that_bound() {
        assert_eq!(sample().quantile(0.99), Some(4.0));
    }

    #[test]
    fn without_values_there_is_no_quantile() {
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn a_bucket_for_zero_answers_zero() {
        let zeros = Histogram::new([(0.0, 5.0), (1024.0, 5.0), (f64::INFINITY, 5.0)]);
        assert_eq!(zeros.quantile(0.99), Some(0.0));
    }
}
