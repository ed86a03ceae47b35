//! Asking a Prometheus what the dashboards and the rules ask, and demanding data.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};

use super::{
    expected::{EMPTY_QUERIES, EMPTY_SELECTORS, FIRING, NOT_FIRING},
    monitor::{JOB, Prometheus, Series},
    queries::{self, Kind, Query},
    recording::Answers,
};

/// Runs every query of every dashboard in a directory for this server: how many there are, and their
/// answers. All are from `start` (seconds since 1970) on.
pub fn of_dashboards(
    prometheus: &Prometheus,
    dashboards: &Path,
    server: &str,
    start: f64,
) -> Result<(usize, Answers)> {
    let (mut count, mut answers) = (0, Answers::new());
    let mut without = Vec::new();
    for file in super::files(dashboards)? {
        let json =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        for query in queries::of_dashboard(&json, server)? {
            count += 1;
            let (answered, series) = answer(prometheus, &query, start)
                .with_context(|| format!("the query of {} fails: {}", query.place, query.text))?;
            let is_empty = EMPTY_QUERIES.iter().any(|(place, _)| *place == query.place);
            if answered == is_empty {
                without.push(format!("{}: {}", query.place, query.text));
            }
            answers.insert(query.place, series);
        }
    }
    ensure!(
        without.is_empty(),
        "{} of {count} queries have no data, or some where there should be none:\n{}",
        without.len(),
        without.join("\n")
    );
    Ok((count, answers))
}

/// Whether a query has data, and the series of its answer, if it asks for series.
fn answer(prometheus: &Prometheus, query: &Query, start: f64) -> Result<(bool, Vec<Series>)> {
    let series = match &query.kind {
        Kind::Now => prometheus.now(&query.text)?,
        Kind::Range => prometheus.since(start, &query.text)?,
        Kind::Label(label) => {
            let values = prometheus.label_values(&query.text, label)?;
            return Ok((!values.is_empty(), Vec::new()));
        }
    };
    // With the variables at All, series that every target has come from others, too.
    let strange = series
        .iter()
        .filter_map(|series| series.labels.get("job"))
        .find(|job| *job != JOB);
    ensure!(
        strange.is_none(),
        "the answer is about other jobs than {JOB}: {strange:?}"
    );
    Ok((has_data(&series), series))
}

fn has_data(series: &[Series]) -> bool {
    series
        .iter()
        .flat_map(|series| &series.points)
        .any(|(_, value)| !value.is_nan())
}

/// Checks every rule: what it records is there, what it is about is there, and those alerts fire
/// about this server that must. How many rules there are.
pub fn of_rules(prometheus: &Prometheus, server: &str, start: f64) -> Result<usize> {
    let rules = prometheus.rules()?;
    let alerts = prometheus.alerts()?;
    let mut wrong = Vec::new();
    for rule in &rules {
        let name = &rule.name;
        if rule.health != "ok" {
            wrong.push(format!("{name} cannot be evaluated: {}", rule.health));
            continue;
        }
        if rule.kind == "recording" {
            if !has_data(&prometheus.since(start, name)?) {
                wrong.push(format!("{name} records nothing: {}", rule.query));
            }
            continue;
        }
        for selector in queries::selectors(&rule.query) {
            let is_empty = EMPTY_SELECTORS.iter().any(|(empty, _)| *empty == selector);
            match has_data(&prometheus.since(start, &selector)?) {
                true if is_empty => {
                    wrong.push(format!("what should not be there is: {selector}"));
                }
                false if !is_empty => {
                    wrong.push(format!("{name} is about what is not there: {selector}"));
                }
                _ => {}
            }
        }
        let fires = alerts.iter().find(|alert| {
            alert.labels.get("alertname") == Some(name)
                && alert
                    .labels
                    .get("server")
                    .is_none_or(|about| about == server)
                && alert.state == "firing"
        });
        if NOT_FIRING.iter().any(|(quiet, _)| quiet == name) {
            if fires.is_some() {
                wrong.push(format!("{name} fires"));
            }
            continue;
        }
        if !FIRING.contains(&name.as_str()) {
            wrong.push(format!("nobody has said whether {name} must fire"));
        }
        match fires {
            None => wrong.push(format!("{name} does not fire")),
            Some(alert) => {
                let description = alert.annotations.get("description");
                println!("{name}: {}", description.map_or("", |text| text.as_str()));
                // Prometheus writes errors of a template into its text.
                if description.is_none_or(|text| text.contains("error")) {
                    wrong.push(format!("the description of {name} is wrong"));
                }
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(rules.len())
}

/// The most evicting calls a second (means of a minute) that a server made at any time.
pub fn most_evictions(prometheus: &Prometheus, server: &str, start: f64) -> Result<f64> {
    let query = format!("server:evictscope_evicting_calls:rate1m{{server=\"{server}\"}}");
    let series = prometheus.since(start, &query)?;
    let values = series.iter().flat_map(|series| &series.points);
    Ok(values.fold(0.0, |most, (_, value)| value.max(most)))
}

/// Refuses an alert on bursts, or any that pages, that was pending or firing about a server at any
/// time.
pub fn must_have_been_calm(prometheus: &Prometheus, server: &str, start: f64) -> Result<()> {
    let query = format!("ALERTS{{server=\"{server}\"}}");
    for alert in prometheus.since(start, &query)? {
        let label = |name: &str| alert.labels.get(name).map_or("", String::as_str);
        ensure!(
            !FIRING.contains(&label("alertname")) && label("severity") != "critical",
            "{} was {} about a server that evicts calmly",
            label("alertname"),
            label("alertstate")
        );
    }
    Ok(())
}
