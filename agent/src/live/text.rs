//! Numbers and tables as text.

use super::rates::Rates;
use super::reading::{Cumulative, ServerReading};

/// The columns of the table of servers.
pub const HEADINGS: [&str; 8] = [
    "SERVER",
    "PHASE",
    "COMMANDS/S",
    "EVICTING/S",
    "IN EVICTIONS",
    "USED",
    "LIMIT",
    "CLIENT BUFFERS",
];

/// Shown for a value that is not known.
const UNKNOWN: &str = "-";

/// Returns the cells of one server.
pub fn cells(server: &str, reading: &ServerReading, rates: Option<&Rates>) -> [String; 8] {
    let rate = |of: fn(&Rates) -> Option<f64>| rates.and_then(of);
    let limit = match reading.maxmemory {
        Some(0.0) => "none".to_owned(),
        limit => or_unknown(limit, bytes),
    };
    [
        server.to_owned(),
        reading.phase.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
        or_unknown(rate(|rates| rates.commands), count),
        or_unknown(rate(|rates| rates.evicting_calls), count),
        or_unknown(rate(|rates| rates.evicting_share), |share| {
            format!("{:.1} %", share * 100.0)
        }),
        or_unknown(reading.used_memory, bytes),
        limit,
        or_unknown(reading.client_buffers, bytes),
    ]
}

/// Returns the value as text, or a dash if it is not known.
pub fn or_unknown(value: Option<f64>, text: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), text)
}

/// Returns a table in plain text, with the first two columns to the left and numbers to the right.
pub fn table(rows: &[[String; 8]]) -> String {
    let headings = HEADINGS.map(str::to_owned);
    let all = || std::iter::once(&headings).chain(rows);
    let widths: [usize; 8] = std::array::from_fn(|column| {
        let lengths = all().map(|row| row[column].chars().count());
        lengths.max().unwrap_or(0)
    });
    let line = |row: &[String; 8]| {
        let cells = row.iter().zip(widths).enumerate();
        let cells: Vec<String> = cells
            .map(|(column, (cell, width))| match column {
                0 | 1 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    all().map(line).collect()
}

/// Returns the rates of a histogram as bcc's funclatency prints counts: a line with a bar for each
/// bucket, from the first to the last one that has values.
pub fn histogram(rates: &Cumulative, bound: fn(f64) -> String, width: usize) -> Vec<String> {
    let filled = |(_, rate): &(f64, f64)| *rate > 0.0;
    let (Some(first), Some(last)) = (
        rates.iter().position(filled),
        rates.iter().rposition(filled),
    ) else {
        return vec!["none in the last interval".to_owned()];
    };
    let most = rates.iter().fold(0.0, |most, (_, rate)| rate.max(most));
    let lower = |index: usize| match index.checked_sub(1).and_then(|below| rates.get(below)) {
        Some((below, _)) => bound(*below),
        None => "0".to_owned(),
    };
    let line = |index: usize, (upper, rate): &(f64, f64)| {
        let stars = "*".repeat((rate / most * width as f64).round() as usize);
        let upper = match upper.is_finite() {
            true => bound(*upper),
            false => "…".to_owned(),
        };
        let (lower, count) = (lower(index), count(*rate));
        format!("{lower:>10} -> {upper:<10} : {count:>9} |{stars:<width$}|")
    };
    let shown = rates.iter().enumerate().take(last + 1).skip(first);
    shown.map(|(index, bucket)| line(index, bucket)).collect()
}

/// Returns a number with its unit prefix: at least two digits, rounded.
pub fn count(value: f64) -> String {
    scaled(value, 1_000.0, ["", "k", "M", "G", "T"])
}

/// Returns a number of bytes with its unit.
pub fn bytes(value: f64) -> String {
    scaled(value, 1_024.0, [" B", " KiB", " MiB", " GiB", " TiB"])
}

/// Returns a number of seconds with its unit.
pub fn seconds(value: f64) -> String {
    match value {
        _ if value < 1e-3 => format!("{:.0} µs", value * 1e6),
        _ if value < 1.0 => format!("{:.0} ms", value * 1e3),
        _ => format!("{value:.1} s"),
    }
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
    match unit == units[0] || value.abs() >= 100.0 {
        true => format!("{value:.0}{unit}"),
        false => format!("{value:.1}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, cells, count, histogram, seconds, table};
    use crate::live::rates::Rates;
    use crate::live::reading::ServerReading;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 999.0, 1_234.0, 250_000.0].map(count),
            ["0", "999", "1.2k", "250k"]
        );
        assert_eq!(
            [512.0, 1536.0, 3e9].map(bytes),
            ["512 B", "1.5 KiB", "2.8 GiB"]
        );
        assert_eq!([5e-6, 0.02, 30.0].map(seconds), ["5 µs", "20 ms", "30.0 s"]);
    }

    #[test]
    fn an_unknown_value_is_a_dash() {
        let rates = Rates {
            commands: Some(1_500.0),
            evicting_share: Some(0.123),
            ..Rates::default()
        };
        let reading = ServerReading {
            maxmemory: Some(0.0),
            ..ServerReading::default()
        };
        assert_eq!(
            table(&[cells("6379", &reading, Some(&rates))]),
            "SERVER  PHASE  COMMANDS/S  EVICTING/S  IN EVICTIONS  USED  LIMIT  CLIENT BUFFERS\n\
             6379    -            1.5k           -        12.3 %     -   none               -\n"
        );
    }

    #[test]
    fn a_histogram_shows_the_buckets_between_its_ends() {
        let rates = vec![
            (1e-6, 0.0),
            (2e-6, 40.0),
            (5e-6, 0.0),
            (1e-5, 20.0),
            (f64::INFINITY, 0.0),
        ];
        assert_eq!(
            histogram(&rates, seconds, 10),
            [
                "      1 µs -> 2 µs       :        40 |**********|",
                "      2 µs -> 5 µs       :         0 |          |",
                "      5 µs -> 10 µs      :        20 |*****     |",
            ]
        );
        let empty = histogram(&Vec::new(), seconds, 10);
        assert_eq!(empty, ["none in the last interval"]);
    }
}
