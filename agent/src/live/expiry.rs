//! Describes a server's expire cycles in one line.

use evictscope_records::text::{count, or_unknown, share};

use super::rates::Rates;
use super::reading::*;

/// A lower stale ratio is shown as 0: a moving average takes long to get there.
const LEAST_SHOWN: f64 = 0.000_5;

/// Returns how often expire cycles run, what they take and what they leave. Returns `None` if no key has a time to live, or
/// nothing is known about expiry.
pub fn line(reading: &ServerReading, rates: Option<Rates<'_>>) -> Option<String> {
    let a_second = |metric| rates?.a_second(metric);
    let stale = reading.get(STALE_RATIO);
    let is_stale = stale.is_some_and(|ratio| ratio >= LEAST_SHOWN);
    (is_stale || a_second(SAMPLED_KEYS) > Some(0.0)).then(|| {
        format!(
            " expire cycles {}/s, {} of the thread; stale {}; time limits hit {}/s",
            or_unknown(a_second(CYCLES), count),
            or_unknown(a_second(CYCLE_SECONDS), share),
            or_unknown(stale, share),
            or_unknown(a_second(TIME_LIMIT_HITS), count),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::line;
    use crate::live::rates::Rates;
    use crate::live::reading::{tests::server, *};

    /// Returns the line of a server with this stale ratio, whose counters have risen by `risen` in a second.
    fn after(stale: f64, risen: &[(Metric, f64)]) -> Option<String> {
        let before: Vec<_> = risen.iter().map(|(metric, _)| (*metric, 0.0)).collect();
        let before = &server(&before);
        let now = &server(&[risen, &[(STALE_RATIO, stale)]].concat());
        line(now, Some(Rates::new(before, now, 1.0)))
    }

    #[test]
    fn the_line_fits_and_is_there_only_where_keys_expire() {
        assert_eq!(
            line(&ServerReading::default(), None),
            None,
            "nothing is known"
        );
        let calm = [(SAMPLED_KEYS, 0.0), (CYCLES, 10.0)];
        assert_eq!(after(1e-9, &calm), None, "no key has a time to live");
        assert_eq!(
            after(1e-9, &[(SAMPLED_KEYS, 200.0), (CYCLES, 10.0)]).as_deref(),
            Some(" expire cycles 10/s, - of the thread; stale 0.0 %; time limits hit -/s")
        );
        let busy = [
            (CYCLES, 510.0),
            (CYCLE_SECONDS, 0.2525),
            (TIME_LIMIT_HITS, 500.0),
        ];
        let longest = after(0.416, &busy).unwrap_or_default();
        let expected =
            " expire cycles 510/s, 25.2 % of the thread; stale 41.6 %; time limits hit 500/s";
        assert_eq!(longest, expected);
        assert!(longest.chars().count() <= 80);
    }
}
