//! A span of time.

use evictscope_telemetry::Moment;

/// The time that a drawing shows, since 1970, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from_us: u64,
    pub to_us: u64,
}

impl Span {
    /// Returns the time from one moment to another; a second of it at least.
    pub fn new(from_us: u64, to_us: u64) -> Self {
        let to_us = to_us.max(from_us.saturating_add(1_000_000));
        Self { from_us, to_us }
    }

    /// Returns the time that these moments cover.
    pub fn of(moments: &[Moment]) -> Option<Self> {
        let (first, last) = (moments.first()?, moments.last()?);
        Some(Self::new(first.unix_us(), last.unix_us()))
    }

    /// Returns its length, microseconds.
    pub fn length_us(self) -> u64 {
        self.to_us - self.from_us
    }

    /// Returns where a moment is in it: 0 at its beginning, 1 at its end.
    pub fn share_at(self, unix_us: u64) -> f64 {
        (unix_us as f64 - self.from_us as f64) / self.length_us() as f64
    }
}
