//! What Prometheus does in a window, by its own counters.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{
    prometheus::{JOB, Prometheus},
    schedstat,
};

use super::{PACE, pause, targets::Targets};
use crate::spread::Spread;

/// Where Prometheus says how much memory it takes.
pub const MEMORY: &str = "process_resident_memory_bytes";
/// From one look at the groups of rules to the next.
const LOOK: Duration = Duration::from_secs(5);
/// Prometheus's own `scrape_timeout`, in seconds. The one of [`super::config`] is longer.
const SCRAPE_TIMEOUT: f64 = 10.0;

/// What takes part.
pub struct Observed<'a> {
    /// What is measured.
    pub prometheus: &'a Prometheus,
    /// What it scrapes.
    pub targets: &'a Targets,
    /// The real agent's process.
    pub agent: u32,
}

/// The measurements of a window.
pub struct Measured {
    /// Series in Prometheus's head, those that the rules record included.
    pub series: f64,
    /// Samples that were stored, a second.
    pub samples: f64,
    /// CPU seconds a second: of Prometheus, of the process that simulates the targets, and of the real agent.
    pub cpu: [f64; 3],
    /// The resident memory of Prometheus at the end, in bytes.
    pub memory: f64,
    /// What of it is Go's heap in use.
    pub heap: f64,
    /// How long each target's last scrape took, in seconds.
    pub scrapes: Spread,
    /// Scrapes that were not made, as a share of those that were due.
    pub scrapes_missed: f64,
    /// Targets whose last scrape failed, or would have failed with Prometheus's own `scrape_timeout`.
    pub scrapes_failed: usize,
    /// Evaluations of groups that were left out.
    pub evaluations_missed: f64,
    /// Alerts that fire at the end.
    pub firing: usize,
    /// The groups of rules, by name.
    pub groups: BTreeMap<String, Evaluations>,
    /// How long the last evaluation of each rule took, in seconds, the longest first.
    pub rules: Vec<(String, f64)>,
}

/// The evaluations of a group.
pub struct Evaluations {
    /// From one to the next, in seconds.
    pub interval: f64,
    /// How long each took, in seconds.
    pub seconds: Spread,
}

impl Evaluations {
    /// Returns the part of the interval that the median takes.
    pub fn share(&self) -> f64 {
        self.seconds.median / self.interval
    }
}

/// Counters that are read at the beginning and at the end.
struct Counters {
    at: Instant,
    cpu: [f64; 3],
    samples: f64,
    scrapes: u32,
    missed: f64,
}

impl Counters {
    fn now(of: &Observed<'_>) -> Result<Self> {
        let metrics = of.prometheus.metrics()?;
        let busy = |pid| Ok::<_, anyhow::Error>(schedstat::running_of_process(pid)?.as_secs_f64());
        Ok(Self {
            at: Instant::now(),
            cpu: [
                metrics.sum("process_cpu_seconds_total", &[])?,
                busy(std::process::id())?,
                busy(of.agent)?,
            ],
            samples: metrics.sum("prometheus_tsdb_head_samples_appended_total", &[])?,
            scrapes: of.targets.scrapes(),
            missed: metrics.sum("prometheus_rule_group_iterations_missed_total", &[])?,
        })
    }
}

/// Measures for `length`, or a little longer: for whole intervals of scrapes, in which each target is due equally often.
///
/// # Errors
///
/// Fails where a group of rules was not evaluated in that time.
pub fn measure(
    of: &Observed<'_>,
    agents: usize,
    length: Duration,
    go_on: &impl Fn() -> Result<()>,
) -> Result<Measured> {
    let intervals = length.as_secs().div_ceil(PACE.as_secs());
    let length = PACE * u32::try_from(intervals).context("--seconds is too long")?;
    // What the groups did last is not of this window.
    let old: BTreeMap<String, String> = (of.prometheus.groups()?.into_iter())
        .map(|group| (group.name, group.evaluated))
        .collect();
    let before = Counters::now(of)?;
    let mut evaluations: BTreeMap<String, (f64, BTreeMap<String, f64>)> = BTreeMap::new();
    let mut rules = BTreeMap::new();
    loop {
        for group in of.prometheus.groups()? {
            let is_old = old.get(&group.name) == Some(&group.evaluated);
            let seen = evaluations.entry(group.name).or_default();
            seen.0 = group.interval;
            // The same one may be seen again.
            if !is_old {
                seen.1.insert(group.evaluated, group.seconds);
            }
            for rule in group.rules {
                rules.insert(rule.name, rule.seconds);
            }
        }
        let left = length.saturating_sub(before.at.elapsed());
        if left.is_zero() {
            break;
        }
        pause(left.min(LOOK), go_on)?;
    }
    for (name, (interval, seen)) in &evaluations {
        ensure!(
            !seen.is_empty(),
            "the rules of {name} were not evaluated in {} s: measure for longer than their interval of {interval} s, with \
             --seconds",
            length.as_secs()
        );
    }
    let after = Counters::now(of)?;
    let seconds = (after.at - before.at).as_secs_f64();
    let metrics = of.prometheus.metrics()?;
    let took = of
        .prometheus
        .now(&format!("scrape_duration_seconds{{job=\"{JOB}\"}}"))?;
    let last = |series: &evictscope_testkit::prometheus::Series| {
        series.points.last().map_or(f64::NAN, |(_, value)| *value)
    };
    let due = agents as f64 * seconds / PACE.as_secs_f64();
    let made = f64::from(after.scrapes - before.scrapes);
    let failed = of.prometheus.now(&format!(
        "up{{job=\"{JOB}\"}} == 0 or scrape_duration_seconds{{job=\"{JOB}\"}} > {SCRAPE_TIMEOUT}"
    ))?;
    let mut rules: Vec<(String, f64)> = rules.into_iter().collect();
    rules.sort_by(|one, other| other.1.total_cmp(&one.1));
    let alerts = of.prometheus.alerts()?;
    Ok(Measured {
        series: metrics.sum("prometheus_tsdb_head_series", &[])?,
        samples: (after.samples - before.samples) / seconds,
        cpu: std::array::from_fn(|of| (after.cpu[of] - before.cpu[of]) / seconds),
        memory: metrics.sum(MEMORY, &[])?,
        heap: metrics.sum("go_memstats_heap_inuse_bytes", &[])?,
        scrapes: Spread::of(took.iter().map(last)),
        scrapes_missed: (1.0 - made / due).max(0.0),
        scrapes_failed: failed.len(),
        evaluations_missed: after.missed - before.missed,
        firing: alerts
            .iter()
            .filter(|alert| alert.state == "firing")
            .count(),
        groups: evaluations
            .into_iter()
            .map(|(name, (interval, seen))| {
                let seconds = Spread::of(seen.into_values());
                (name, Evaluations { interval, seconds })
            })
            .collect(),
        rules,
    })
}
