//! The table that compares runs without and with a remedy.

use evictscope_testkit::text::{bytes, count, known, percent};

use crate::{cycles::Cycle, expiry::Expiry, run::Finished};

/// A line of the table: its label, and the text of a run, if the run has one.
type Line = (&'static str, fn(&Finished) -> Option<String>);

const LINES: &[Line] = &[
    ("seconds of load", |run| {
        Some(format!("{:.0}", run.outcome.seconds))
    }),
    ("requests answered a second", |run| {
        Some(count(run.outcome.answered as f64 / run.outcome.seconds))
    }),
    ("bursts", |run| {
        of_bursts(run, |cycles| cycles.len().to_string())
    }),
    ("time saturated", |run| {
        of_bursts(run, |cycles| {
            // An empty sum is -0.
            let saturated = (cycles.iter()).fold(0.0, |sum, cycle| sum + cycle.saturated_seconds);
            format!("{:.1} %", 100.0 * saturated / run.outcome.seconds)
        })
    }),
    ("throughput in the worst burst", |run| {
        of_bursts(run, |cycles| {
            let ratios = cycles.iter().filter_map(Cycle::throughput_ratio);
            known(ratios.reduce(f64::min), percent)
        })
    }),
    ("keys evicted", |run| {
        of_bursts(run, |_| count(run.outcome.evicted_keys as f64))
    }),
    ("p99 of the latency", |run| {
        Some(milliseconds(run.outcome.load.latency_p99))
    }),
    ("highest latency", |run| {
        Some(milliseconds(run.outcome.load.latency_max))
    }),
    ("stalled by evictions", |run| {
        let stalled = run.testimony.as_ref()?.stalled()?;
        Some(format!("{stalled:.1} s"))
    }),
    ("longest evicting call", |run| {
        of_bursts(run, |_| known(run.outcome.longest_call, milliseconds))
    }),
    ("keys expired", |run| {
        of(run, |expiry| count(expiry.expired_keys() as f64))
    }),
    ("held by expired keys", |run| {
        of(run, |expiry| bytes(expiry.held()))
    }),
];

/// Compares runs, each with its name.
pub fn comparison(runs: &[(String, Finished)]) -> String {
    let line = |label: &str, texts: Vec<String>| {
        let columns: String = texts.iter().map(|text| format!("{text:>14}")).collect();
        format!("{label:<32}{columns}\n")
    };
    let names = runs.iter().map(|(name, _)| name.clone()).collect();
    let mut table = line("", names);
    for (label, text) in LINES {
        let texts: Option<Vec<String>> = runs.iter().map(|(_, finished)| text(finished)).collect();
        if let Some(texts) = texts {
            table += &line(label, texts);
        }
    }
    table
}

/// Returns a text about bursts, or `None` for a run about expiry.
fn of_bursts(run: &Finished, text: impl Fn(&[Cycle]) -> String) -> Option<String> {
    let cycles = &run.outcome.cycles;
    run.outcome.expiry.is_none().then(|| text(cycles))
}

fn of(run: &Finished, text: impl Fn(&Expiry) -> String) -> Option<String> {
    run.outcome.expiry.as_ref().map(text)
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.0} ms", seconds * 1000.0)
}
