//! `evictscope keys`: what fills a server's cache.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use evictscope_records::text::{bytes, count, or_unknown, share};

use crate::keys::{self, KeyUse, KeysArguments, KeysRow, KeysSummary};
use crate::terminal;
use crate::text::table;

const ROWS: usize = 40;

pub fn run(arguments: &KeysArguments) -> anyhow::Result<ExitCode> {
    let summary = keys::answer(arguments)?;
    let json = || serde_json::to_string_pretty(&summary).context("cannot write JSON").map(|json| json + "\n");
    terminal::print(&if arguments.json { json()? } else { text(&summary) })?;
    Ok(ExitCode::SUCCESS)
}

fn text(summary: &KeysSummary) -> String {
    let [before, after] = summary.keys;
    if summary.sampled == 0 {
        return format!("{after} keys, none looked at\n");
    }
    let three =
        |values: Option<[f64; 3]>, text: fn(f64) -> String| or_unknown(values, |values| values.map(text).join(" / "));
    let used = match summary.noted {
        KeyUse::Counter => "COUNTER p10/p50/p90",
        KeyUse::Written(_) => "NOT WRITTEN FOR p10/p50/p90",
        KeyUse::Used(_) | KeyUse::Unknown(_) => "NOT USED FOR p10/p50/p90",
    };
    let head = ["", "KEYS", "BYTES", "SHARE", used, "TO LIVE p10/p50/p90", "NO TTL"];
    let row = |row: &KeysRow| {
        let used = match row.counter {
            Some(_) => three(row.counter, |counter| format!("{counter}")),
            None => or_unknown(row.idle, |idle| idle.map(|idle| or_unknown(idle, age)).join(" / ")),
        };
        vec![
            row.name.clone(),
            count(row.keys),
            bytes(row.bytes),
            format!("{} ± {:.1}", share(row.share), row.share_error * 100.0),
            used,
            three(row.ttl, age),
            share(row.without_ttl),
        ]
    };
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(summary.rows.iter().take(ROWS).map(row));
    let mut text = table(&rows);
    let more = summary.rows.len().saturating_sub(ROWS);
    if more > 0 {
        // It cannot fail.
        let _ = writeln!(text, "and {more} smaller ones");
    }
    let mut limits: Vec<String> = (summary.idle_limits.iter())
        .filter(|(_, part)| *part > 0.0)
        .map(|(limit, part)| format!("for {}: {} of bytes", age(*limit as f64), share(*part)))
        .collect();
    let unknown = summary.idle_unknown.filter(|part| *part > 0.0);
    limits.extend(unknown.map(|part| format!("for an unknown time: {} of bytes", share(part))));
    match summary.noted {
        KeyUse::Unknown(why) => drop(writeln!(text, "\nnot used for: not known, as {why}")),
        _ if limits.is_empty() => {}
        KeyUse::Written(_) => drop(writeln!(text, "\nnot written {}", limits.join("; "))),
        _ => drop(writeln!(text, "\nnot used {}", limits.join("; "))),
    }
    let changed = if before == after { String::new() } else { format!(" ({before} before)") };
    let _ = writeln!(
        text,
        "\n{after} keys{changed}, {} ± {}; {} looked at in {:.1} s, {:.2} % left out as not consistent",
        bytes(summary.bytes),
        bytes(summary.bytes_error),
        if summary.is_whole { "all".to_owned() } else { summary.sampled.to_string() },
        summary.seconds,
        summary.rejected_share * 100.0,
    );
    text
}

/// Returns a time in its largest unit.
fn age(seconds: f64) -> String {
    let unit = [(86_400.0, "d"), (3_600.0, "h"), (60.0, "min")].into_iter().find(|(length, _)| seconds >= *length);
    let (length, name) = unit.unwrap_or((1.0, "s"));
    let value = seconds / length;
    if value < 10.0 && value.fract() > 0.05 && length > 1.0 {
        format!("{value:.1} {name}")
    } else {
        format!("{value:.0} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn ages_are_in_their_largest_unit() {
        let ages = [0.4, 59.0, 90.0, 28_800.0, 280_000.0, 1e7].map(age);
        assert_eq!(ages, ["0 s", "59 s", "1.5 min", "8 h", "3.2 d", "116 d"]);
    }
}
