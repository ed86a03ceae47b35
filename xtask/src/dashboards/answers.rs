//! Runs the queries of the dashboards and the rules in a Prometheus, and demands data.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::clock::unix_time;
use evictscope_testkit::prometheus::{JOB, Prometheus, Series};

use super::queries::{ALL, Kind, Opened, Query};
use super::{generated, queries};

/// Runs every query of every dashboard in a folder for this server, from `start` (seconds since 1970) on, and returns how
/// many there are.
///
/// # Errors
///
/// Fails if a query has no data, unless it is one of [`UNCERTAIN_QUERIES`] or of [`EMPTY_QUERIES`]. The latter must have none.
pub fn of_dashboards(
    prometheus: &Prometheus,
    dashboards: &Path,
    server: &str,
    start: f64,
) -> Result<usize> {
    let mut count = 0;
    let mut strange = Vec::new();
    let opened = Opened {
        server,
        namespace: ALL,
        pod: ALL,
        pace: prometheus.pace(),
        range: Duration::from_secs_f64((unix_time()? - start).max(0.0)),
    };
    for file in generated::dashboards(dashboards)? {
        for query in queries::of_dashboard(&generated::read(&file)?, &opened)? {
            count += 1;
            let answered = answer(prometheus, &query, start)
                .with_context(|| format!("the query of {} fails: {}", query.place, query.text))?;
            let is_empty = EMPTY_QUERIES.contains(&query.place.as_str());
            let is_certain = !UNCERTAIN_QUERIES.contains(&query.place.as_str());
            if answered == is_empty && is_certain {
                strange.push(format!("{}: {}", query.place, query.text));
            }
        }
    }
    ensure!(
        strange.is_empty(),
        "{} of {count} queries have no data, or have data where none is expected:\n{}",
        strange.len(),
        strange.join("\n")
    );
    Ok(count)
}

/// Returns whether a query has data.
fn answer(prometheus: &Prometheus, query: &Query, start: f64) -> Result<bool> {
    let series = match &query.kind {
        Kind::Now => prometheus.now(&query.text)?,
        Kind::Range => prometheus.since(start, &query.text)?,
        Kind::Label(label) => {
            let values = prometheus.label_values(&query.text, label)?;
            return Ok(!values.is_empty());
        }
    };
    // With the variables at All, series such as `up` also come from other jobs.
    let strange = series
        .iter()
        .filter_map(|series| series.labels.get("job"))
        .find(|job| *job != JOB);
    ensure!(
        strange.is_none(),
        "the answer is about other jobs than {JOB}: {strange:?}"
    );
    Ok(has_data(&series))
}

fn has_data(series: &[Series]) -> bool {
    series
        .iter()
        .flat_map(|series| &series.points)
        .any(|(_, value)| !value.is_nan())
}

/// Checks every rule: that it can be evaluated, that the series that it records or asks for exist, and that the alerts that
/// fire about this server have sound texts. Returns how many rules there are.
pub fn of_rules(prometheus: &Prometheus, server: &str, start: f64) -> Result<usize> {
    let rules = prometheus.rules()?;
    let mut wrong = Vec::new();
    for rule in &rules {
        let name = &rule.name;
        if rule.health != "ok" {
            wrong.push(format!("{name} cannot be evaluated: {}", rule.health));
        } else if rule.kind == "recording" {
            if !has_data(&prometheus.since(start, name)?) {
                wrong.push(format!("{name} records nothing: {}", rule.query));
            }
        } else {
            for selector in queries::selectors(&rule.query)? {
                let expected = !EMPTY_SELECTORS.contains(&selector.as_str());
                let found = has_data(&prometheus.since(start, &selector)?);
                let is_certain = !UNCERTAIN_SELECTORS.contains(&selector.as_str());
                if found != expected && is_certain {
                    wrong.push(format!("{name}: {selector} has data: {found}"));
                }
            }
        }
    }
    let mut descriptions = firing(prometheus, server)?;
    for name in FIRING {
        let description = descriptions.remove(name).unwrap_or_default();
        println!("{name}: {description}");
        // Prometheus writes the errors of a template into its text.
        if description.is_empty() || description.contains("error") {
            wrong.push(format!("{name} does not fire, or has a wrong description"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(rules.len())
}

/// Returns the alerts that fire about this server, each with its description.
pub fn firing(prometheus: &Prometheus, server: &str) -> Result<BTreeMap<String, String>> {
    let alerts = prometheus.alerts()?.into_iter();
    let named = alerts.filter_map(|mut alert| {
        let is_about = alert
            .labels
            .get("server")
            .is_some_and(|about| about == server);
        let description = alert.annotations.remove("description");
        let fires = alert.state == "firing" && is_about;
        fires.then_some((
            alert.labels.remove("alertname")?,
            description.unwrap_or_default(),
        ))
    });
    Ok(named.collect())
}

/// Queries of dashboards that have no data, by their place: everything is found in Debian's redis-server, no check fails,
/// every server can be watched, and there is no kube-state-metrics.
pub const EMPTY_QUERIES: [&str; 9] = [
    "evictscope / Eviction cycle / Not found / A",
    "evictscope / Fleet / Servers / K",
    "evictscope / Fleet / Servers / L",
    "evictscope / Fleet / variable namespace",
    "evictscope / Fleet / variable pod",
    "evictscope / Eviction cycle / Server / C",
    "evictscope / Agent / Not watched / A",
    "evictscope / Agent / Not found, or switched off / A",
    "evictscope / Agent / Not found, or switched off / B",
];

/// Queries that may or may not have data: they show what changed between two scrapes, or what is known once memory has grown
/// for a minute without evictions.
pub const UNCERTAIN_QUERIES: [&str; 3] = [
    "evictscope / Eviction cycle / Client buffers / B",
    "evictscope / Eviction cycle / At the limit / B",
    "evictscope / Eviction cycle / At the limit / C",
];

/// Series in the rules of alerts that have no data, for the same reasons.
pub const EMPTY_SELECTORS: [&str; 3] = [
    "evictscope_not_found{item=~\"plan|eviction_call|eviction_goal|eviction_done|eviction_result|expire_cycle|\
     expire_start|expire_end|used_memory|stat_numcommands|stat_evictedkeys|stat_clients_type_memory|stat_expired_stale_perc|\
     stat_expired_time_cap_reached_count\"}",
    "evictscope_not_found{item=\"maxmemory\"}",
    "evictscope_plan_withdrawn",
];

/// Series in the rules of alerts that may or may not have data, for the same reason.
pub const UNCERTAIN_SELECTORS: [&str; 2] = [
    "evictscope_evictions_would_add_ratio",
    "evictscope_maxmemory_reached_seconds{estimate=\"likely\"}",
];

/// The alerts that must fire. promtool's tests say when the others do.
pub const FIRING: [&str; 1] = ["EvictscopeStalled"];
