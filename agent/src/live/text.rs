//! Numbers and tables as text.

use super::reading::Cumulative;

/// Shown for a value that is not known.
const UNKNOWN: &str = "-";

/// Returns the value as text, or a dash if it is not known.
pub fn or_unknown<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), text)
}

/// Returns the text in lines of `width` at most, broken between words. Only a word that is longer than a line is cut.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for part in letters.chunks(width) {
            let part: String = part.iter().collect();
            let line = lines.last_mut().filter(|line| {
                line.is_empty() || line.chars().count() + 1 + part.chars().count() <= width
            });
            match line {
                Some(line) if line.is_empty() => *line = part,
                Some(line) => line.extend([" ", &part]),
                None => lines.push(part),
            }
        }
    }
    lines
}

/// Returns the text, or its end where it is longer than `width`.
pub fn shortened(text: &str, width: usize) -> String {
    let length = text.chars().count();
    match length > width {
        true => std::iter::once('…')
            .chain(text.chars().skip(length + 1 - width))
            .collect(),
        false => text.to_owned(),
    }
}

/// Characters of a line of a histogram beside its bar.
pub const HISTOGRAM_TEXT: usize = 39;

/// Returns the rates of a histogram as bcc's funclatency prints counts: a line with a bar for each
/// bucket, from the first to the last one that has values.
pub fn histogram(rates: &Cumulative, bound: fn(f64) -> String, width: usize) -> Vec<String> {
    let rates = &coarse(rates);
    let filled = |(_, rate): &(f64, f64)| *rate > 0.0;
    let (Some(first), Some(last)) = (
        rates.iter().position(filled),
        rates.iter().rposition(filled),
    ) else {
        return vec!["none was observed in the last interval".to_owned()];
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

/// Returns the same rates in buckets of which each reaches at least twice as far as the one before. The agent's are finer
/// than a screen has lines.
fn coarse(rates: &Cumulative) -> Cumulative {
    let mut coarse = Cumulative::new();
    let (mut reached, mut waiting) = (0.0, 0.0);
    for (upper, rate) in rates {
        waiting += rate;
        // Bounds are decimal numbers, and so not exactly twice as much.
        if *upper >= 1.999 * reached {
            coarse.push((*upper, waiting));
            (reached, waiting) = (*upper, 0.0);
        }
    }
    coarse
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

/// Returns a share in percent.
pub fn share(value: f64) -> String {
    format!("{:.1} %", value * 100.0)
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
    use super::{
        HISTOGRAM_TEXT, bytes, coarse, count, duration, histogram, seconds, shortened, wrapped,
    };

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
        assert_eq!(
            [5e-6, 0.0015, 0.02, 30.0].map(seconds),
            ["5 µs", "1.5 ms", "20 ms", "30.0 s"]
        );
        assert_eq!([0.25, 12_345.6].map(duration), ["0.2 s", "12346 s"]);
    }

    #[test]
    fn a_text_is_broken_between_words() {
        let lines = wrapped("one two three, abcdefghijkl m", 9);
        assert_eq!(lines, ["one two", "three,", "abcdefghi", "jkl m"]);
        assert_eq!(wrapped("", 9), [""]);
        assert_eq!(shortened("/run/redis.sock", 10), "…edis.sock");
        assert_eq!(shortened("6379", 4), "6379");
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
        let fine = [
            (100.0, 1.0),
            (110.0, 2.0),
            (190.0, 3.0),
            (200.0, 4.0),
            (f64::INFINITY, 5.0),
        ];
        let expected = [(100.0, 1.0), (200.0, 9.0), (f64::INFINITY, 5.0)];
        assert_eq!(coarse(&fine.to_vec()), expected);
        let lines = histogram(&rates, seconds, 10);
        assert_eq!(lines[0].chars().count(), HISTOGRAM_TEXT + 10);
        let empty = histogram(&Vec::new(), seconds, 10);
        assert_eq!(empty, ["none was observed in the last interval"]);
    }
}
