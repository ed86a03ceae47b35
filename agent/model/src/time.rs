//! Times as programs read them.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize, Serializer};

/// A time up to the year 9999. As text and in JSON it is as in RFC 3339, UTC, with milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct UnixTime(Timestamp);

impl UnixTime {
    /// Makes one from a time since 1970; `None` beyond the year 9999.
    pub fn new(since_1970: Duration) -> Option<Self> {
        Timestamp::from_duration(SignedDuration::try_from(since_1970).ok()?).ok().map(Self)
    }

    /// Returns the seconds since 1970, to the millisecond.
    pub fn seconds(self) -> f64 {
        self.0.as_millisecond() as f64 / 1e3
    }
}

impl fmt::Display for UnixTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0)
    }
}

impl Serialize for UnixTime {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::UnixTime;

    #[test]
    fn times_have_milliseconds_and_are_utc() -> serde_json::Result<()> {
        let time = UnixTime::new(Duration::from_micros(1_700_000_000_250_999));
        let text = serde_json::to_string(&time)?;
        assert_eq!(text, "\"2023-11-14T22:13:20.250Z\"");
        let read: UnixTime = serde_json::from_str(&text)?;
        assert_eq!(read.seconds(), 1_700_000_000.25);
        assert_eq!(UnixTime::new(Duration::MAX), None);
        Ok(())
    }
}
