//! The table that compares runs without and with a remedy.

use evictscope_testkit::text::{bytes, count, known, percent};

use crate::{cycles::Cycle, expired, expiry::Expiry, judge::Finished};

/// A line of the table: its label, and the text of a run, where the run has it.
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
    ("highest backlog", |run| {
        Some(count(run.outcome.backlog_peak as f64))
    }),
    ("p99 of the latency", |run| {
        Some(milliseconds(run.outcome.latency_p99))
    }),
    ("highest latency", |run| {
        Some(milliseconds(run.outcome.latency_max))
    }),
    ("requests lost", |run| Some(count(run.outcome.lost as f64))),
    ("stalled by evictions", |run| {
        let stalled = run.testimony.as_ref()?.stalled().ok()?;
        Some(format!("{stalled:.1} s"))
    }),
    ("slow while it evicted", |run| {
        of_bursts(run, |_| format!("{:.1} s", run.outcome.slow_seconds))
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
    ("  of the keys with a TTL", |run| {
        of(run, |expiry| percent(expiry.held_ratio()))
    }),
    ("stale ratio in the end", |run| {
        of(run, |expiry| percent(expiry.before.sample.stale_ratio))
    }),
    ("expire cycles at the time limit", |run| {
        of(run, |expiry| count(expiry.time_limit_hits() as f64))
    }),
    ("time in expire cycles", |run| {
        of(run, |expiry| percent(expiry.cycles_share()))
    }),
    ("p50 of slow expire cycles", |run| slow_cycles(run, 0.5)),
    ("p99 of slow expire cycles", |run| slow_cycles(run, 0.99)),
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

/// Returns a text about bursts, of which a run that is about expiry has none.
fn of_bursts(run: &Finished, text: impl Fn(&[Cycle]) -> String) -> Option<String> {
    let cycles = &run.outcome.cycles;
    run.outcome.expiry.is_none().then(|| text(cycles))
}

fn of(run: &Finished, text: impl Fn(&Expiry) -> String) -> Option<String> {
    run.outcome.expiry.as_ref().map(text)
}

/// Returns the text of a percentile of the slow cycles' durations, where the agent counted them.
fn slow_cycles(run: &Finished, quantile: f64) -> Option<String> {
    let reading = run.testimony.as_ref()?.expiry.as_ref()?;
    let seconds = expired::slow_cycles(reading)?.quantile(quantile)?;
    Some(format!("{:.1} ms", seconds * 1000.0))
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.0} ms", seconds * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        expiry::Moment,
        record::{Measured, Outcome},
    };

    fn run(expiry: Option<Expiry>) -> Finished {
        Finished {
            measured: Measured::default(),
            outcome: Outcome {
                seconds: 10.0,
                answered: 5000,
                expiry,
                ..Outcome::default()
            },
            testimony: None,
            onlooker: Ok(()),
        }
    }

    fn table(expiry: [Option<Expiry>; 2]) -> String {
        let [without, with] = expiry.map(run);
        comparison(&[
            ("without".to_owned(), without),
            ("effort-5".to_owned(), with),
        ])
    }

    #[test]
    fn only_lines_that_all_runs_have_are_there() {
        let expiry = Expiry {
            begin: Moment::default(),
            before: Moment::default(),
            after: Moment::default(),
            scan_seconds: 1.0,
        };
        let of_bursts = table([None, None]);
        assert!(of_bursts.starts_with(&format!("{:>46}{:>14}\n", "without", "effort-5")));
        assert!(
            of_bursts.contains("requests answered a second                 500           500\n")
        );
        assert!(of_bursts.contains("\ntime saturated "));
        assert!(!of_bursts.contains("expire"));
        let of_expiry = table([Some(expiry), Some(expiry)]);
        assert!(of_expiry.contains("\nheld by expired keys "));
        assert!(!of_expiry.contains("burst"));
        assert!(!of_expiry.contains("p99 of slow"));
    }
}
