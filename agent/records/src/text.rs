//! Numbers as people read them.

use std::time::Duration;

use jiff::Timestamp;

/// Shown for a value that is not known.
const UNKNOWN: &str = "-";

/// Returns the value as text, or a dash if it is not known.
pub fn or_unknown<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), text)
}

/// Returns a time from its microseconds since 1970; `None` if it is thousands of years away.
pub fn timestamp(unix_us: u64) -> Option<Timestamp> {
    Timestamp::from_microsecond(i64::try_from(unix_us).ok()?).ok()
}

/// Returns the text with a capital letter at its beginning.
pub fn capital(text: &str) -> String {
    let mut text = text.to_owned();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text
}

/// Returns a number with its unit prefix: at least two digits, rounded.
pub fn count(value: f64) -> String {
    scaled(value, 1_000.0, ["", "k", "M", "G", "T"])
}

/// Says how many keys, before "evicted" or the like.
pub fn keys_were(keys: u64) -> String {
    match keys {
        0 => "no key was".to_owned(),
        1 => "1 key was".to_owned(),
        _ => format!("{} keys were", count(keys as f64)),
    }
}

/// Returns a number of bytes with its unit.
pub fn bytes(value: f64) -> String {
    scaled(value, 1_024.0, [" B", " KiB", " MiB", " GiB", " TiB"])
}

/// Returns a whole number of bytes with its unit.
pub fn size(value: u64) -> String {
    bytes(value as f64)
}

/// Returns a number of seconds with its unit.
pub fn seconds(value: f64) -> String {
    match value {
        _ if value < 1e-3 => format!("{:.0} µs", value * 1e6),
        _ if value < 9.95e-3 => format!("{:.1} ms", value * 1e3),
        _ if value < 1.0 => format!("{:.0} ms", value * 1e3),
        _ => format!("{value:.1} s"),
    }
}

/// Returns a total of seconds, always in seconds so that totals can be compared.
pub fn duration(value: f64) -> String {
    match value {
        _ if value < 100.0 => format!("{value:.1} s"),
        _ => format!("{value:.0} s"),
    }
}

/// Returns a long duration in one unit, rounded down: in days from 48 h on.
pub fn round(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (length, unit) = match seconds {
        0..60 => (1, "s"),
        60..3_600 => (60, "min"),
        3_600..172_800 => (3_600, "h"),
        _ => (86_400, "days"),
    };
    format!("{} {unit}", seconds / length)
}

/// Returns a share in percent, all with one digit after the point. (0.0 is added because -0.0 has a sign.)
pub fn share(value: f64) -> String {
    format!("{:.1} %", value * 100.0 + 0.0)
}

/// Returns a share in percent: whole percents, except below ten.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0 + 0.0;
    match percent {
        _ if percent == 0.0 || percent >= 9.95 => format!("{percent:.0} %"),
        _ if percent >= 0.095 => format!("{percent:.1} %"),
        _ => format!("{percent:.3} %"),
    }
}

/// Returns a difference in percent with its sign, and this many digits after the point; none is `+0 %`.
pub fn change(difference: f64, digits: usize) -> String {
    let text = format!("{:+.digits$} %", difference * 100.0);
    if text.contains(|digit| ('1'..='9').contains(&digit)) { text } else { text.replace('-', "+") }
}

fn scaled(value: f64, step: f64, units: [&str; 5]) -> String {
    let mut value = value;
    let [mut unit, rest @ ..] = units;
    for next in rest {
        if value.abs() < step {
            break;
        }
        value /= step;
        unit = next;
    }
    if unit == units[0] || value.abs() >= 100.0 { format!("{value:.0}{unit}") } else { format!("{value:.1}{unit}") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{bytes, change, count, duration, percent, round, seconds, share};

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 999.0, 1_234.0, 250_000.0].map(count), ["0", "999", "1.2k", "250k"]);
        assert_eq!([512.0, 1536.0, 3e9].map(bytes), ["512 B", "1.5 KiB", "2.8 GiB"]);
        assert_eq!([5e-6, 0.0015, 0.02, 30.0].map(seconds), ["5 µs", "1.5 ms", "20 ms", "30.0 s"]);
        assert_eq!([0.25, 12_345.6].map(duration), ["0.2 s", "12346 s"]);
        assert_eq!(
            [59, 61, 7_300, 172_900].map(|seconds| round(Duration::from_secs(seconds))),
            ["59 s", "1 min", "2 h", "2 days"]
        );
    }

    #[test]
    fn nothing_has_no_sign() {
        let shares = [0.0, -0.0, 0.000_04, 0.004, 0.123, 1.0].map(percent);
        assert_eq!(shares, ["0 %", "0 %", "0.004 %", "0.4 %", "12 %", "100 %"]);
        assert_eq!([-0.0, 0.125].map(share), ["0.0 %", "12.5 %"]);
        assert_eq!([-0.0, -0.004, -0.006, 0.004].map(|by| change(by, 0)), ["+0 %", "+0 %", "-1 %", "+0 %"]);
        assert_eq!([-0.000_4, -0.000_6].map(|by| change(by, 1)), ["+0.0 %", "-0.1 %"]);
    }
}
