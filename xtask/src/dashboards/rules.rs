//! Checks the Prometheus rules without a Prometheus: their syntax, their tests, their runbooks and their links.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use evictscope_testkit::{process, workspace};
use regex::Regex;
use serde_json::Value;

use super::queries::{each, text};
use super::{dashboards, read, sources};

/// The address of the runbooks, until an operator replaces it (docs/ALERTS.md).
const RUNBOOKS: &str = "https://evictscope.example/docs/runbooks/";

const GRAFANA: &str = "https://grafana.example/d/";

pub fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    workspace::files_ending(directory, "yaml")
}

/// Checks the rules in this folder, with the dashboards that they link to.
pub fn check(directory: &Path) -> Result<()> {
    let files = files(directory)?;
    let tests = workspace::files_ending(&directory.join("tests"), "yaml")?;
    process::succeed(Command::new("promtool").args(["check", "rules", "--lint-fatal"]).args(&files))?;
    process::succeed(Command::new("promtool").args(["test", "rules"]).args(&tests))?;

    let groups = parse_all(&files)?;
    let rules: Vec<&Value> =
        (groups.iter()).flat_map(|file| each(&file["groups"])).flat_map(|group| each(&group["rules"])).collect();
    let tests = parse_all(&tests)?;
    let tests: Vec<&Value> = tests.iter().flat_map(|file| each(&file["tests"])).collect();
    let dashboards = parse_all(&dashboards(&sources())?)?;
    let alerts: BTreeSet<&str> = rules.iter().filter_map(|rule| rule["alert"].as_str()).collect();
    for rule in &rules {
        match (rule["alert"].as_str(), rule["record"].as_str()) {
            (Some(alert), None) => check_alert(alert, rule, &tests, &dashboards)?,
            (None, Some(record)) => ensure!(
                tests
                    .iter()
                    .flat_map(|test| each(&test["promql_expr_test"]))
                    .any(|test| text(&test["expr"]).contains(record)),
                "the recording rule {record} has no test in dashboards/rules/tests"
            ),
            _ => bail!("a rule in dashboards/rules is neither alert nor recording rule"),
        }
    }
    check_runbooks(&alerts)?;
    println!("{} alerts and {} recording rules are sound and tested", alerts.len(), rules.len() - alerts.len());
    Ok(())
}

/// Reads YAML files. JSON is YAML too.
fn parse_all(files: &[PathBuf]) -> Result<Vec<Value>> {
    let parse = |file: &PathBuf| {
        serde_saphyr::from_str(&read(file)?).with_context(|| format!("cannot understand {}", file.display()))
    };
    files.iter().map(parse).collect()
}

/// Checks that an alert has its annotations, and tests in which it fires and does not fire.
fn check_alert(alert: &str, rule: &Value, tests: &[&Value], dashboards: &[Value]) -> Result<()> {
    let severity = text(&rule["labels"]["severity"]);
    ensure!(matches!(severity, "critical" | "warning"), "{alert} has the severity {severity:?}");
    let annotation = |name: &str| text(&rule["annotations"][name]);
    let (summary, description) = (annotation("summary"), annotation("description"));
    // Annotations contain queries, too.
    let texts = [text(&rule["expr"]), summary, description].join(" ");
    ensure!(
        !reads_histogram(&texts)?,
        "{alert} reads a histogram: a level that evaluates the alerts alone has none \
         (docs/METRICS.md). Let recording.yaml read it"
    );
    ensure!(!summary.is_empty() && !description.is_empty(), "{alert} has no summary or no description");
    let runbook = annotation("runbook_url");
    ensure!(runbook == format!("{RUNBOOKS}{alert}.md"), "the runbook of {alert} is {runbook}");
    check_link(alert, annotation("dashboard_url"), dashboards)?;
    let cases = || {
        tests
            .iter()
            .flat_map(|test| each(&test["alert_rule_test"]))
            .filter(|test| test["alertname"] == alert)
            .map(|test| each(&test["exp_alerts"]).count())
    };
    ensure!(cases().any(|fired| fired > 0), "no test in dashboards/rules/tests has {alert} fire");
    ensure!(cases().any(|fired| fired == 0), "no test in dashboards/rules/tests has {alert} not fire");
    Ok(())
}

/// Returns whether an expression reads one of our histograms, as classic buckets or as a native one.
fn reads_histogram(expression: &str) -> Result<bool> {
    const READ: &str = r"(?:^|[^\w:])(?:histogram_|evictscope_\w+_(?:bucket|sum|count)(?:$|[^\w:]))";
    Ok(Regex::new(READ)?.is_match(expression))
}

/// Checks that an alert leads to a dashboard that exists, and sets variables that it has.
fn check_link(alert: &str, address: &str, dashboards: &[Value]) -> Result<()> {
    let (path, variables) = address.split_once('?').unwrap_or((address, ""));
    let uid = path.strip_prefix(GRAFANA).unwrap_or_default();
    let dashboard = dashboards.iter().find(|dashboard| dashboard["uid"] == uid);
    let dashboard = dashboard.with_context(|| format!("{alert} leads to no dashboard: {path}"))?;
    let names: Vec<&str> = each(&dashboard["templating"]["list"]).map(|variable| text(&variable["name"])).collect();
    ensure!(!variables.is_empty(), "{alert} leads to a dashboard with no variable filled in");
    for pair in variables.split('&') {
        let name = pair.split('=').next().unwrap_or(pair);
        ensure!(
            name.strip_prefix("var-").is_some_and(|name| names.contains(&name)),
            "{alert} fills in {name}, but {path} has the variables {names:?}"
        );
    }
    Ok(())
}

/// Checks that each alert has its page, and each page its alert.
fn check_runbooks(alerts: &BTreeSet<&str>) -> Result<()> {
    let files = workspace::files_ending(&workspace::root().join("docs/runbooks"), "md")?;
    let pages: BTreeSet<&str> = files.iter().filter_map(|path| path.file_stem()?.to_str()).collect();
    ensure!(
        pages == *alerts,
        "alerts without a page in docs/runbooks, or pages without an alert: {:?}",
        pages.symmetric_difference(alerts).collect::<Vec<_>>()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_histogram_are_known() -> Result<()> {
        for (expression, reads) in [
            ("rate(evictscope_burst_duration_seconds_sum[1h]) > 1", true),
            ("histogram_avg(rate(evictscope_burst_duration_seconds[1h]))", true),
            ("server:evictscope_burst_duration_seconds:mean1h > 1", false),
            ("evictscope_bursts_total > 1", false),
        ] {
            assert_eq!(reads_histogram(expression)?, reads, "{expression}");
        }
        Ok(())
    }
}
