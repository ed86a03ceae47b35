//! `evictscope keys`: what fills a server's cache.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use evictscope_records::text::{bytes, count, or_unknown, share};
use regex::bytes::Regex;

use crate::keys::{self, KeyUse, KeysRequest, KeysRow, KeysSummary};
use crate::terminal;
use crate::text::table;

/// Show what fills a server's cache: types and sizes of keys, how long they have not been used, and how long they have
/// to live
///
/// Looks at random entries of the server's hash tables in its memory. The server is neither stopped nor asked, and the
/// command yields to everything else on the host. What is inconsistent because it has just changed is left out.
///
/// Sizes are as MEMORY USAGE counts them. Redis since 8.6 keeps the size of each value; in other servers, only a few
/// elements of a large value are looked at, consumer groups are not counted, and compressed lists count as if they were
/// not compressed. What modules hold is not counted, nor are field names that hashes share. `±` is the sampling error,
/// in 95 of 100 samples. In a cluster it is larger for groups of keys with one hash tag: several of these are drawn at
/// once.
///
/// How long keys have not been used is not known of a replica, nor while the server saves, nor of keys that were not
/// used since it started. By LRM policies it is how long they have not been written.
///
/// Works for Redis 6.0 to 8.2, 8.6 and 8.10, and Valkey 7.2 to 9.1. Needs root, or CAP_SYS_PTRACE and
/// CAP_DAC_READ_SEARCH.
#[derive(clap::Args)]
pub struct Arguments {
    /// Process id of a running server
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pid: u32,
    /// How many keys to look at. A cache with fewer is looked through as a whole
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    samples: u32,
    /// For how long to look at most, in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Group by what the first group of REGEX matches in the name of a key, `^(\w+):` for example. Otherwise no name is
    /// read
    #[arg(long, value_name = "REGEX")]
    by: Option<Regex>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const ROWS: usize = 40;

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let summary = keys::answer(&KeysRequest {
        pid: arguments.pid,
        samples: arguments.samples,
        length: Duration::from_secs(arguments.seconds),
        by: arguments.by,
    })?;
    let text = if arguments.json {
        serde_json::to_string_pretty(&summary).context("cannot write JSON")? + "\n"
    } else {
        text(&summary)
    };
    terminal::print(&text)?;
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
    let units = [(86_400.0, "d"), (3_600.0, "h"), (60.0, "min")];
    let unit = units.into_iter().find(|(length, _)| seconds >= *length);
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
