//! Lays out text in terminal lines, and reads durations that people write.

use std::time::Duration;

use evictscope_host::printable;
use evictscope_records::text::count;
use jiff::SignedDuration;

/// Returns the text in lines of at most `width`, broken between words. Only a word longer than a line is cut.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for part in letters.chunks(width) {
            let part: String = part.iter().collect();
            let has_room = |line: &&mut String| line.chars().count() + 1 + part.chars().count() <= width;
            match lines.last_mut().filter(|line| line.is_empty() || has_room(line)) {
                Some(line) if line.is_empty() => *line = part,
                Some(line) => line.extend([" ", &part]),
                None => lines.push(part),
            }
        }
    }
    lines
}

/// Returns the text, or its end if it is longer than `width`.
pub fn shortened(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length > width {
        std::iter::once('…').chain(text.chars().skip(length + 1 - width)).collect()
    } else {
        text.to_owned()
    }
}

/// The characters of a histogram line beside its bar.
pub const HISTOGRAM_TEXT: usize = 39;

/// Returns the rates of a histogram as bcc's funclatency prints counts: a line with a bar for each
/// bucket, from the first to the last one that has values.
pub fn histogram(rates: &[(f64, f64)], bound: fn(f64) -> String, width: usize) -> Vec<String> {
    let rates = &coarse(rates);
    let filled = |(_, rate): &(f64, f64)| *rate > 0.0;
    let (Some(first), Some(last)) = (rates.iter().position(filled), rates.iter().rposition(filled)) else {
        return vec!["none was observed in the last interval".to_owned()];
    };
    let most = rates.iter().fold(0.0, |most, (_, rate)| rate.max(most));
    let lower = |index: usize| match index.checked_sub(1).and_then(|below| rates.get(below)) {
        Some((below, _)) => bound(*below),
        None => "0".to_owned(),
    };
    let line = |(index, (upper, rate)): (usize, &(f64, f64))| {
        let stars = "*".repeat((rate / most * width as f64).round() as usize);
        let upper = if upper.is_finite() { bound(*upper) } else { "…".to_owned() };
        format!("{:>10} -> {upper:<10} : {:>9} |{stars:<width$}|", lower(index), count(*rate))
    };
    rates.iter().enumerate().take(last + 1).skip(first).map(line).collect()
}

/// Returns the same rates in fewer buckets, each of which reaches at least twice as far as the one before: the agent
/// has more buckets than a screen has lines.
fn coarse(rates: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut coarse = Vec::new();
    let (mut reached, mut waiting) = (0.0, 0.0);
    for (upper, rate) in rates {
        waiting += rate;
        // Bounds are decimal numbers, and so not exactly double.
        if *upper >= 1.999 * reached {
            coarse.push((*upper, waiting));
            (reached, waiting) = (*upper, 0.0);
        }
    }
    coarse
}

/// Returns the rows as lines, each column as wide as its widest cell. All but the last are padded.
pub fn table(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let mut widths = Vec::new();
    for row in &rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let padded: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += padded.join("  ").trim_end();
        text.push('\n');
    }
    text
}

pub fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    let parsed = text.parse::<SignedDuration>().ok().and_then(|duration| Duration::try_from(duration).ok());
    parsed
        .filter(|duration| (Duration::from_micros(1)..=Duration::from_secs(60)).contains(duration))
        .ok_or("not a duration from 1us to 60s: write 100us or 1ms, for example")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evictscope_records::text::seconds;

    use super::{HISTOGRAM_TEXT, coarse, histogram, parse_duration, shortened, table, wrapped};

    #[test]
    fn a_text_is_broken_between_words() {
        assert_eq!(wrapped("one two three, abcdefghijkl m", 9), ["one two", "three,", "abcdefghi", "jkl m"]);
        assert_eq!(wrapped("", 9), [""]);
        assert_eq!(shortened("/run/redis.sock", 10), "…edis.sock");
        assert_eq!(shortened("6379", 4), "6379");
    }

    #[test]
    fn a_histogram_shows_the_buckets_between_its_ends() {
        let rates = vec![(1e-6, 0.0), (2e-6, 40.0), (5e-6, 0.0), (1e-5, 20.0), (f64::INFINITY, 0.0)];
        assert_eq!(
            histogram(&rates, seconds, 10),
            [
                "      1 µs -> 2 µs       :        40 |**********|",
                "      2 µs -> 5 µs       :         0 |          |",
                "      5 µs -> 10 µs      :        20 |*****     |",
            ]
        );
        let fine = [(100.0, 1.0), (110.0, 2.0), (190.0, 3.0), (200.0, 4.0), (f64::INFINITY, 5.0)];
        assert_eq!(coarse(&fine), [(100.0, 1.0), (200.0, 9.0), (f64::INFINITY, 5.0)]);
        let lines = histogram(&rates, seconds, 10);
        assert_eq!(lines[0].chars().count(), HISTOGRAM_TEXT + 10);
        assert_eq!(histogram(&[], seconds, 10), ["none was observed in the last interval"]);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["a".to_owned(), "long".to_owned()], vec!["µs µs".to_owned(), "b".to_owned()]];
        assert_eq!(table(&rows), "a      long\nµs µs  b\n");
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn durations_have_a_unit() {
        for (text, ns) in [("100us", 100_000), ("1.5 ms", 1_500_000), ("2s", 2_000_000_000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for text in ["1", "", "ms", "-1ms", "1ns", "2m", "100s", "nans"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
