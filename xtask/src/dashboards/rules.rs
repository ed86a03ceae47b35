//! Checks the Prometheus rules without a Prometheus: their syntax, their tests and their runbooks.

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

/// Checks the rules in this folder.
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
    for rule in &rules {
        match (&rule.alert, &rule.record) {
            (Some(alert), None) => check_alert(alert, rule, &tests)?,
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
fn check_alert(alert: &str, rule: &Rule, tests: &[Test]) -> Result<()> {
    let severity = rule.labels.as_ref().map(|labels| labels.severity.as_str());
    ensure!(
        matches!(severity, Some("critical" | "warning" | "info")),
        "{alert} has the severity {severity:?}"
    );
    let annotations = rule
        .annotations
        .as_ref()
        .with_context(|| format!("{alert} has no annotations"))?;
    ensure!(
        !annotations.summary.is_empty() && !annotations.description.is_empty(),
        "{alert} has no summary or no description"
    );
    ensure!(
        annotations.runbook_url == format!("{RUNBOOKS}{alert}.md"),
        "the runbook of {alert} is {}",
        annotations.runbook_url
    );
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
