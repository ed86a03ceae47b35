//! Times as text, for programs.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Formats a time since 1970 as RFC 3339, UTC, with milliseconds; `None` beyond the year 9999.
pub fn rfc3339(unix_time: Duration) -> Option<String> {
    let since = SignedDuration::try_from(unix_time).ok()?;
    let time = Timestamp::from_duration(since).ok()?;
    Some(format!("{time:.3}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::rfc3339;

    #[test]
    fn times_have_milliseconds_and_are_utc() {
        let text = rfc3339(Duration::from_millis(1_700_000_000_250));
        assert_eq!(text.as_deref(), Some("2023-11-14T22:13:20.250Z"));
        assert_eq!(rfc3339(Duration::MAX), None);
    }
}
