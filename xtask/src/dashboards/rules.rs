//! Checks the Prometheus rules without a Prometheus: their syntax, their tests, their runbooks and their links.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use evictscope_testkit::{process, workspace};
use serde::{Deserialize, de::DeserializeOwned};

use super::folders;

/// The address of the runbooks, until an operator replaces it (docs/ALERTS.md).
const RUNBOOKS: &str = "https://evictscope.example/docs/runbooks/";

/// The address of Grafana, likewise.
const GRAFANA: &str = "https://grafana.example/d/";

#[derive(Deserialize)]
struct RuleFile {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    record: Option<String>,
    alert: Option<String>,
    expr: String,
    labels: Option<Labels>,
    annotations: Option<Annotations>,
}

#[derive(Deserialize)]
struct Labels {
    severity: String,
}

#[derive(Deserialize)]
struct Annotations {
    summary: String,
    description: String,
    runbook_url: String,
    dashboard_url: String,
}

#[derive(Deserialize)]
struct Dashboard {
    uid: String,
    templating: Templating,
}

#[derive(Deserialize)]
struct Templating {
    list: Vec<Variable>,
}

#[derive(Deserialize)]
struct Variable {
    name: String,
}

#[derive(Deserialize)]
struct TestFile {
    tests: Vec<Test>,
}

#[derive(Deserialize)]
struct Test {
    #[serde(default)]
    alert_rule_test: Vec<AlertTest>,
    #[serde(default)]
    promql_expr_test: Vec<ExpressionTest>,
}

#[derive(Deserialize)]
struct AlertTest {
    alertname: String,
    #[serde(default)]
    exp_alerts: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct ExpressionTest {
    expr: String,
}

/// Returns the rule files in a folder, by name.
pub fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    workspace::files_ending(directory, "yaml")
}

/// Checks the rules in this folder, with the dashboards that they link to.
pub fn check(directory: &Path) -> Result<()> {
    let files = files(directory)?;
    let tests = workspace::files_ending(&directory.join("tests"), "yaml")?;
    process::succeed(
        Command::new("promtool")
            .args(["check", "rules", "--lint-fatal"])
            .args(&files),
    )?;
    process::succeed(
        Command::new("promtool")
            .args(["test", "rules"])
            .args(&tests),
    )?;

    let rules: Vec<Rule> = parse_all::<RuleFile>(&files)?
        .into_iter()
        .flat_map(|file| file.groups)
        .flat_map(|group| group.rules)
        .collect();
    let tests: Vec<Test> = parse_all::<TestFile>(&tests)?
        .into_iter()
        .flat_map(|file| file.tests)
        .collect();
    // JSON is YAML too.
    let dashboards: Vec<Dashboard> = parse_all(&folders::dashboards(&folders::sources())?)?;
    for rule in &rules {
        match (&rule.alert, &rule.record) {
            (Some(alert), None) => check_alert(alert, rule, &tests, &dashboards)?,
            (None, Some(record)) => ensure!(
                tests
                    .iter()
                    .flat_map(|test| &test.promql_expr_test)
                    .any(|test| test.expr.contains(record.as_str())),
                "the recording rule {record} has no test in dashboards/rules/tests"
            ),
            _ => bail!("a rule in dashboards/rules is neither alert nor recording rule"),
        }
    }
    check_runbooks(&rules)?;
    let alerts = rules.iter().filter(|rule| rule.alert.is_some()).count();
    println!(
        "{alerts} alerts and {} recording rules are sound and tested",
        rules.len() - alerts
    );
    Ok(())
}

fn parse_all<T: DeserializeOwned>(files: &[PathBuf]) -> Result<Vec<T>> {
    files
        .iter()
        .map(|file| {
            serde_saphyr::from_str(&folders::read(file)?)
                .with_context(|| format!("cannot understand {}", file.display()))
        })
        .collect()
}

/// Checks that an alert has its annotations, and tests in which it fires and does not fire.
fn check_alert(alert: &str, rule: &Rule, tests: &[Test], dashboards: &[Dashboard]) -> Result<()> {
    let severity = rule.labels.as_ref().map(|labels| labels.severity.as_str());
    ensure!(
        matches!(severity, Some("critical" | "warning")),
        "{alert} has the severity {severity:?}"
    );
    let annotations = rule
        .annotations
        .as_ref()
        .with_context(|| format!("{alert} has no annotations"))?;
    // Annotations ask queries, too.
    let texts = [&rule.expr, &annotations.summary, &annotations.description];
    ensure!(
        !texts.into_iter().any(|text| reads_histogram(text)),
        "{alert} reads a histogram: a level that evaluates the alerts alone has none \
         (docs/METRICS.md). Let recording.yaml read it"
    );
    ensure!(
        !annotations.summary.is_empty() && !annotations.description.is_empty(),
        "{alert} has no summary or no description"
    );
    ensure!(
        annotations.runbook_url == format!("{RUNBOOKS}{alert}.md"),
        "the runbook of {alert} is {}",
        annotations.runbook_url
    );
    check_link(alert, &annotations.dashboard_url, dashboards)?;
    let cases = || {
        tests
            .iter()
            .flat_map(|test| &test.alert_rule_test)
            .filter(|test| test.alertname == alert)
    };
    ensure!(
        cases().any(|test| !test.exp_alerts.is_empty()),
        "no test in dashboards/rules/tests has {alert} fire"
    );
    ensure!(
        cases().any(|test| test.exp_alerts.is_empty()),
        "no test in dashboards/rules/tests has {alert} not fire"
    );
    Ok(())
}

/// Returns whether an expression reads one of our histograms, as classic buckets or as a native one.
fn reads_histogram(expression: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut names = expression.split(|c| !is_name(c));
    names.any(|name| {
        let suffixes = ["_bucket", "_sum", "_count"];
        let is_classic =
            name.starts_with("evictscope_") && suffixes.iter().any(|end| name.ends_with(end));
        is_classic || name.starts_with("histogram_")
    })
}

/// Checks that an alert leads to a dashboard that there is, and sets variables that this has.
fn check_link(alert: &str, address: &str, dashboards: &[Dashboard]) -> Result<()> {
    let (path, variables) = address.split_once('?').unwrap_or((address, ""));
    let dashboard = dashboards
        .iter()
        .find(|dashboard| path.strip_prefix(GRAFANA) == Some(dashboard.uid.as_str()));
    let dashboard = dashboard.with_context(|| format!("{alert} leads to no dashboard: {path}"))?;
    let names: Vec<&str> = dashboard
        .templating
        .list
        .iter()
        .map(|it| &*it.name)
        .collect();
    ensure!(
        !variables.is_empty(),
        "{alert} leads to a dashboard with no variable filled in"
    );
    for pair in variables.split('&') {
        let name = pair.split('=').next().unwrap_or(pair);
        ensure!(
            name.strip_prefix("var-")
                .is_some_and(|name| names.contains(&name)),
            "{alert} fills in {name}, but {} has the variables {names:?}",
            dashboard.uid
        );
    }
    Ok(())
}

/// Checks that each alert has its page, and each page its alert.
fn check_runbooks(rules: &[Rule]) -> Result<()> {
    let directory = workspace::root().join("docs/runbooks");
    let pages: BTreeSet<_> = workspace::files_ending(&directory, "md")?
        .into_iter()
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect();
    let alerts: BTreeSet<_> = rules.iter().filter_map(|rule| rule.alert.clone()).collect();
    ensure!(
        pages == alerts,
        "alerts without a page in docs/runbooks, or pages without an alert: {:?}",
        pages.symmetric_difference(&alerts).collect::<Vec<_>>()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_histogram_are_known() {
        assert!(reads_histogram(
            "rate(evictscope_burst_duration_seconds_sum[1h]) > 1"
        ));
        assert!(reads_histogram(
            "histogram_avg(rate(evictscope_burst_duration_seconds[1h])) > 1"
        ));
        assert!(!reads_histogram(
            "server:evictscope_burst_duration_seconds:mean1h > 1 and evictscope_bursts_total > 1"
        ));
    }
}
