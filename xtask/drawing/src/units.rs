//! Numbers as Grafana writes them.

use jiff::Timestamp;

/// Writes a value in one of Grafana's units, or (`time`) a time in seconds since 1970.
pub fn text(unit: &str, value: f64) -> String {
    match unit {
        "bytes" => scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"]),
        "s" if value.abs() >= 3600.0 => format!("{} hours", digits(value / 3600.0)),
        "s" if value.abs() >= 60.0 => format!("{} mins", digits(value / 60.0)),
        "s" if value.abs() >= 1.0 || value == 0.0 => format!("{} s", digits(value)),
        "s" => scaled(value * 1e9, 1000.0, &["ns", "µs", "ms"]),
        "percentunit" => format!("{} %", digits(value * 100.0)),
        "cps" => format!("{} c/s", text("none", value)),
        "ops" => format!("{} ops/s", text("none", value)),
        "dateTimeAsIso" => time("%F %T", value / 1000.0),
        "time" => time("%F %T", value),
        _ => scaled(value, 1000.0, &["", "K", "M", "G"])
            .trim_end()
            .to_owned(),
    }
}

/// Writes the time of day, UTC, of seconds since 1970.
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

/// Writes three significant digits, without trailing zeros.
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

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn numbers_are_written_as_grafana_writes_them() {
        for (unit, value, written) in [
            ("bytes", 1536.0, "1.5 KiB"),
            ("bytes", 0.0, "0 B"),
            ("bytes", 1024.0 * 1024.0, "1 MiB"),
            ("s", 0.000_55, "550 µs"),
            ("s", 2.55, "2.55 s"),
            ("s", 90.0, "1.5 mins"),
            ("percentunit", 0.3206, "32.1 %"),
            ("cps", 1650.0, "1.65 K c/s"),
            ("none", 2.0, "2"),
            ("time", 0.0, "1970-01-01 00:00:00"),
        ] {
            assert_eq!(text(unit, value), written, "{value} {unit}");
        }
    }
}
