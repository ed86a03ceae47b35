//! How pages write times, numbers, addresses of other pages, and the heads of tables.

use std::time::Duration;

use evictscope_records::RecordId;
pub use evictscope_records::text::{percent, round, size};
use evictscope_records::text::{seconds, timestamp};
use form_urlencoded::byte_serialize;
use maud::{Markup, html};

/// Shown for what is not known.
pub const UNKNOWN: &str = "not known";

/// Returns a time since 1970, in UTC, as this format says.
fn formatted(unix_us: u64, format: &str) -> String {
    or_unknown(timestamp(unix_us), |time| time.strftime(format).to_string())
}

pub fn date_and_time(unix_us: u64) -> String {
    formatted(unix_us, "%Y-%m-%d %H:%M:%S")
}

pub fn time_of_day(unix_us: u64) -> String {
    formatted(unix_us, "%H:%M:%S")
}

pub fn minute_of_day(unix_us: u64) -> String {
    formatted(unix_us, "%H:%M")
}

/// Returns the time of day, to the millisecond.
pub fn precise_time_of_day(unix_us: u64) -> String {
    formatted(unix_us, "%H:%M:%S%.3f")
}

pub fn duration(duration: Duration) -> String {
    seconds(duration.as_secs_f64())
}

/// Returns a memory limit as text; 0 is no limit.
pub fn limit(limit: u64) -> String {
    if limit == 0 { "no limit".to_owned() } else { size(limit) }
}

pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a rate, rounded, in groups of three digits.
pub fn rate(rate: f64) -> String {
    // The cast saturates.
    format!("{}/s", grouped(rate.round() as u64))
}

/// Returns the value as text, or that it is not known.
pub fn or_unknown<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), text)
}

/// Returns the address of a server's page. Its label may be a path, with any characters.
pub fn server_link(label: &str) -> String {
    format!("/server/{}", escaped(label))
}

pub fn record_link(id: &RecordId) -> String {
    format!("/bursts/{id}")
}

pub fn record_json_link(id: &RecordId) -> String {
    format!("/api/v1/records/{id}")
}

pub fn query_link(path: &str, label: &str) -> String {
    format!("{path}?server={}", escaped(label))
}

/// Escapes a text for one segment of a path, or for a parameter: all but letters, digits, `-`, `.`, `_` and `*`. A
/// space is a plus only in forms.
fn escaped(text: &str) -> String {
    let escaped: String = byte_serialize(text.as_bytes()).collect();
    escaped.replace('+', "%20")
}

/// Returns a table that scrolls sideways where there is little room: with the names of its columns and whether each has
/// numbers, and the cells of each row.
pub fn table(
    class: Option<&str>,
    caption: Option<&str>,
    columns: &[(&str, bool)],
    rows: impl IntoIterator<Item = Markup>,
) -> Markup {
    html! {
        div.scroll {
            table class=[class] {
                @if let Some(caption) = caption { caption { (caption) } }
                thead {
                    tr {
                        @for (name, has_numbers) in columns {
                            @if *has_numbers { th.number scope="col" { (name) } } @else { th scope="col" { (name) } }
                        }
                    }
                }
                tbody { @for row in rows { tr { (row) } } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        UNKNOWN, date_and_time, grouped, minute_of_day, or_unknown, percent, precise_time_of_day, query_link, rate,
        server_link, time_of_day,
    };

    #[test]
    fn times_are_utc() {
        let us = 1_700_000_000_250_000;
        assert_eq!(date_and_time(us), "2023-11-14 22:13:20");
        assert_eq!(time_of_day(us), "22:13:20");
        assert_eq!(minute_of_day(us), "22:13");
        assert_eq!(precise_time_of_day(us), "22:13:20.250");
        assert_eq!(date_and_time(u64::MAX), UNKNOWN);
    }

    #[test]
    fn numbers_are_grouped_and_rounded() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(rate(8_000.6), "8,001/s");
        assert_eq!(or_unknown(Some(0.5), percent), "50 %");
        assert_eq!(or_unknown(None, percent), "not known");
    }

    #[test]
    fn a_label_stays_one_segment() {
        let label = "/tmp/a b+c/\"<script>'&?#%2F.sock";
        let escaped = "%2Ftmp%2Fa%20b%2Bc%2F%22%3Cscript%3E%27%26%3F%23%252F.sock";
        assert_eq!(server_link(label), format!("/server/{escaped}"));
        assert_eq!(query_link("/x", label), format!("/x?server={escaped}"));
        assert_eq!(server_link("6379"), "/server/6379");
    }
}
