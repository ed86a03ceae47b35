//! Numbers as Grafana writes them.

use jiff::Timestamp;

/// A value in one of Grafana's units, or, as times are, in seconds since 1970 (`time`).
pub fn text(unit: &str, value: f64) -> String {
    match unit {
        "bytes" => scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"]),
        "s" if value.abs() >= 3600.0 => format!("{} hours", digits(value / 3600.0)),
        "s" if value.abs() >= 60.0 => format!("{} mins", digits(value / 60.0)),
        "s" if value.abs() >= 1.0 || value == 0.0 => format!("{} s", digits(value)),
        "s" => scaled(value * 1e9, 1000.0, &["ns", "µs", "ms"]),
        "percentunit" => format!("{} %", digits(value * 100.0)),
        "cps" => format!("{} c/s", scaled(value, 1000.0, &["", "K", "M"]).trim_end()),
        "ops" => format!(
            "{} ops/s",
            scaled(value, 1000.0, &["", "K", "M"]).trim_end()
        ),
        "dateTimeAsIso" => time("%F %T", value / 1000.0),
        "time" => time("%F %T", value),
        _ => scaled(value, 1000.0, &["", "K", "M", "G"])
            .trim_end()
            .to_owned(),
    }
}

/// The time of day, UTC, of seconds since 1970.
pub fn time_of_day(seconds: f64) -> String {
    time("%T", seconds)
}

fn time(format: &str, seconds: f64) -> String {
    let at = Timestamp::from_second(seconds.round() as i64);
    at.map_or(String::new(), |at| at.strftime(format).to_string())
}

fn scaled(value: f64, base: f64, units: &[&str]) -> String {
    let power = match value.abs() {
        size if size < base => 0.0,
        size => (size.ln() / base.ln() + 1e-9)
            .floor()
            .min(units.len() as f64 - 1.0),
    };
    format!(
        "{} {}",
        digits(value / base.powf(power)),
        units[power as usize]
    )
}

/// Three digits that count, without zeros behind them.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
