//! The seconds of a record, and how far they scatter.

use evictscope_telemetry::Moment;

/// The longest that a second may be: a calm server is read every tenth of one. Longer ones have a gap.
const LONGEST_US: u64 = 1_500_000;
const SECOND_US: u64 = 1_000_000;

/// Returns the pairs of moments, from `from_us` to `until_us`, that are a second apart.
pub(super) fn seconds(moments: &[Moment], from_us: u64, until_us: u64) -> Vec<(&Moment, &Moment)> {
    let within = moments.iter().filter(|moment| (from_us..=until_us).contains(&moment.unix_us()));
    let mut seconds = Vec::new();
    let mut begin: Option<&Moment> = None;
    for moment in within {
        let Some(first) = begin else {
            begin = Some(moment);
            continue;
        };
        let passed = moment.unix_us().saturating_sub(first.unix_us());
        if passed >= SECOND_US {
            if passed <= LONGEST_US {
                seconds.push((first, moment));
            }
            begin = Some(moment);
        }
    }
    seconds
}

/// Returns the median of these values; `None` without any.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some((lower + upper) / 2.0)
}

/// Returns the median distance of these values from their median, scaled so that it is the standard deviation if
/// they are normally distributed.
pub(super) fn scatter(values: &[f64]) -> Option<f64> {
    const NORMAL: f64 = 1.4826;
    let median = median(values)?;
    let distances: Vec<f64> = values.iter().map(|value| (value - median).abs()).collect();
    Some(NORMAL * self::median(&distances)?)
}

#[cfg(test)]
mod tests {
    use super::{median, scatter, seconds};
    use crate::fixture::burst_record;

    #[test]
    fn medians_and_scatter() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0]), Some(2.0));
        assert_eq!(median(&[3.0, 1.0, 100.0]), Some(3.0));
        // One second that differs does not count.
        assert_eq!(scatter(&[5.0, 5.0, 5.0, 5.0, 900.0]), Some(0.0));
        let scattered = scatter(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!(scattered.is_some_and(|scattered| (scattered - 1.4826).abs() < 1e-9));
    }

    #[test]
    fn a_second_lies_between_two_readings() {
        let record = burst_record();
        let before = seconds(&record.moments, 0, record.began_us);
        assert!((54..=60).contains(&before.len()), "{}", before.len());
        let mut moments = record.moments.clone();
        // Nothing was read for ten seconds.
        let from = record.began_us - 30_000_000;
        moments.retain(|moment| !(from..from + 10_000_000).contains(&moment.unix_us()));
        let with_gap = seconds(&moments, 0, record.began_us);
        assert!((before.len() - 12..=before.len() - 9).contains(&with_gap.len()));
    }
}
