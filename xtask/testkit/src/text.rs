//! Numbers, as the developer tasks print them.

use std::time::Duration;

use indicatif::{BinaryBytes, HumanCount};

/// Returns a number of bytes with a binary unit: `1.50 MiB`.
pub fn bytes(bytes: u64) -> String {
    BinaryBytes(bytes).to_string()
}

/// Returns a count, rounded, with its thousands separated: `1,234`.
pub fn count(value: f64) -> String {
    HumanCount(value.round().max(0.0) as u64).to_string()
}

/// Returns the text of a value, or a hyphen if it is not known.
pub fn known<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

/// Returns a share between 0 and 1 as `45 %`.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Returns a duration as `1.2 s` or `2 m 05 s`.
pub fn seconds(duration: Duration) -> String {
    if duration < Duration::from_secs(60) {
        format!("{:.1} s", duration.as_secs_f64())
    } else {
        let seconds = duration.as_secs();
        format!("{} m {:02} s", seconds / 60, seconds % 60)
    }
}
