//! What is shown of a server's expire cycles, in one line.

use evictscope_records::text::{count, or_unknown, share};

use super::rates::Rates;
use super::reading::ServerReading;

/// A lower stale ratio is shown as 0: a moving average takes long to get there.
const LEAST_SHOWN: f64 = 0.000_5;

/// Returns how often expire cycles run, what they take and what they leave. Nothing where no key has a time to live, or
/// nothing is known of expiry.
pub fn line(reading: &ServerReading, rates: &Rates) -> Option<String> {
    let is_sampling = rates.sampled_keys.is_some_and(|keys| keys > 0.0);
    let is_stale = reading
        .stale_ratio
        .is_some_and(|ratio| ratio >= LEAST_SHOWN);
    (is_sampling || is_stale).then(|| {
        format!(
            " expire cycles {}/s, {} of the thread; stale {}; time limits hit {}/s",
            or_unknown(rates.expire_cycles, count),
            or_unknown(rates.expiring_share, share),
            or_unknown(reading.stale_ratio, share),
            or_unknown(rates.time_limit_hits, count),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::line;
    use crate::live::rates::Rates;
    use crate::live::reading::ServerReading;

    #[test]
    fn the_line_fits_and_is_there_only_where_keys_expire() {
        let mut reading = ServerReading::default();
        let mut rates = Rates::default();
        assert_eq!(line(&reading, &rates), None, "nothing is known");
        (rates.sampled_keys, rates.expire_cycles) = (Some(0.0), Some(10.0));
        reading.stale_ratio = Some(1e-9);
        assert_eq!(line(&reading, &rates), None, "no key has a time to live");
        rates.sampled_keys = Some(200.0);
        assert_eq!(
            line(&reading, &rates).as_deref(),
            Some(" expire cycles 10/s, - of the thread; stale 0.0 %; time limits hit -/s")
        );
        reading.stale_ratio = Some(0.416);
        rates.expire_cycles = Some(510.0);
        (rates.expiring_share, rates.time_limit_hits) = (Some(0.2525), Some(500.0));
        let longest = line(&reading, &rates).unwrap_or_default();
        let expected =
            " expire cycles 510/s, 25.2 % of the thread; stale 41.6 %; time limits hit 500/s";
        assert_eq!(longest, expected);
        assert!(longest.chars().count() <= 80);
    }
}
