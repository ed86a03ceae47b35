//! A straight line through values that scatter.

/// A rise counts if it is this many times the scatter around the line: ten or more values in random order rise by as
/// much in less than one of ten thousand cases.
const CLEAR: f64 = 4.0;
/// Fewer values have no trend.
const LEAST_VALUES: usize = 10;

/// Returns by how much values clearly rise per second; 0 if they do not, `None` if they are too few. Each value follows
/// its time in seconds.
pub fn rise(values: &[(f64, f64)]) -> Option<f64> {
    let length = values.last()?.0 - values.first()?.0;
    if values.len() < LEAST_VALUES || length <= 0.0 {
        return None;
    }
    let count = values.len() as f64;
    let (mut time, mut value) = (0.0, 0.0);
    for (at, one) in values {
        time += at / count;
        value += one / count;
    }
    let (mut spread, mut common) = (0.0, 0.0);
    for (at, one) in values {
        spread += (at - time).powi(2);
        common += (at - time) * (one - value);
    }
    let slope = common / spread;
    let off = |(at, one): &(f64, f64)| (one - value - slope * (at - time)).powi(2);
    let scatter = (values.iter().map(off).sum::<f64>() / (count - 2.0)).sqrt();
    let is_clear = slope > 0.0 && slope * length >= CLEAR * scatter;
    Some(if is_clear { slope } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::rise;

    fn of(value: fn(u32) -> f64) -> Option<f64> {
        let values = (0..100).map(|at| (f64::from(at), value(at)));
        rise(&Vec::from_iter(values))
    }

    #[test]
    fn only_a_clear_rise_is_found() {
        let clear = of(|at| 7.0 + 3.0 * f64::from(at));
        assert!((clear.unwrap_or_default() - 3.0).abs() < 1e-9);
        assert_eq!(of(|at| -7.0 - 3.0 * f64::from(at)), Some(0.0));
        assert_eq!(of(|_| 7.0), Some(0.0));
        // It scatters.
        let scattered = of(|at| f64::from(at.wrapping_mul(2_654_435_761) >> 20));
        assert_eq!(scattered, Some(0.0));
    }

    #[test]
    fn few_values_have_no_trend() {
        assert_eq!(rise(&[(0.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(rise(&[(1.0, 1.0); 50]), None);
        assert_eq!(rise(&[]), None);
    }
}
