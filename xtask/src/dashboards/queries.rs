//! Finds the queries in the JSON of a dashboard, and fills in their variables.
//!
//! Checks that the dashboard of all servers finds their pods from kube-state-metrics, and shows all servers if there is
//! none, and that the query in docs/KUBERNETES.md finds them too. promtool evaluates the queries on made-up series.

use std::process::Command;
use std::time::Duration;
use std::{fs, iter};

use anyhow::{Context as _, Result, bail, ensure};
use evictscope_testkit::{process, workspace};
use regex::Regex;
use serde_json::Value;

use super::{read, sources};

#[derive(Debug)]
pub struct Query {
    pub place: String,
    /// PromQL, without variables.
    pub text: String,
    pub kind: QueryKind,
}

#[derive(Debug, PartialEq, Eq)]
pub enum QueryKind {
    Now,
    Range,
    /// The values that a label has among the series of the query.
    Label(String),
}

/// The shortest step of the panels: an operator's time from one scrape to the next.
const STEP: &str = "15s";

/// The value of a variable that leaves nothing out.
pub const ALL: &str = ".*";

pub struct Opened<'a> {
    /// The variable `instance`: the only one where a dashboard is about one server, else a pattern. Jobs are at All.
    pub instance: &'a str,
    pub server: &'a str,
    /// Its variable `namespace`, a regular expression. At [`ALL`], servers that are in no pod are shown, too.
    pub namespace: &'a str,
    pub pod: &'a str,
    /// The time from one scrape to the next, and the shortest step of its panels.
    pub pace: Duration,
    pub range: Duration,
}

pub fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub fn of_dashboard(json: &str, opened: &Opened<'_>) -> Result<Vec<Query>> {
    let dashboard: Value = serde_json::from_str(json).context("cannot understand a dashboard")?;
    let title = text(&dashboard["title"]);
    // A collapsed row has panels of its own.
    let panels = each(&dashboard["panels"]).flat_map(|panel| iter::once(panel).chain(each(&panel["panels"]))).flat_map(
        |panel| {
            let targets = each(&panel["targets"]);
            targets.map(move |target| (text(&panel["title"]), panel["interval"].as_str(), target))
        },
    );
    let annotations = each(&dashboard["annotations"]["list"])
        .map(|annotation| (text(&annotation["name"]), None, &annotation["target"]));
    let mut queries = Vec::new();
    for (name, step, target) in panels.chain(annotations) {
        queries.push(Query {
            place: format!("{title} / {name} / {}", text(&target["refId"])),
            text: filled_in(text(&target["expr"]), opened, step)?,
            kind: if target["instant"] == true { QueryKind::Now } else { QueryKind::Range },
        });
    }
    for variable in each(&dashboard["templating"]["list"]).filter(|one| one["type"] == "query") {
        let query = text(&variable["query"]);
        let inner = |function| query.strip_prefix(function)?.strip_suffix(')');
        let (asked, kind) = if let Some(query) = inner("query_result(") {
            (query, QueryKind::Now)
        } else {
            let (series, label) = inner("label_values(")
                .and_then(|inner| inner.rsplit_once(','))
                .with_context(|| format!("not label_values(series, label): {query}"))?;
            (series, QueryKind::Label(label.trim().to_owned()))
        };
        queries.push(Query {
            place: format!("{title} / variable {}", text(&variable["name"])),
            text: filled_in(asked, opened, None)?,
            kind,
        });
    }
    ensure!(!queries.is_empty(), "{title} has no query");
    Ok(queries)
}

/// Fills in the variables of a query whose panel has this shortest step.
fn filled_in(query: &str, opened: &Opened<'_>, step: Option<&str>) -> Result<String> {
    let seconds = |time: Duration| format!("{}s", time.as_secs());
    // Four scrapes, or the panel's own step if it has one.
    let four = seconds(4 * opened.pace);
    let rate_interval = step.filter(|step| *step != STEP).unwrap_or(&four);
    let variables = [
        // The longer names first: they begin with the shorter ones.
        ("__rate_interval", rate_interval),
        ("__interval", &seconds(opened.pace)),
        ("__range", &seconds(opened.range)),
        ("instance", opened.instance),
        ("namespace", opened.namespace),
        ("pod", opened.pod),
        ("server", opened.server),
        ("job", ".+"),
    ];
    let mut text = query.to_owned();
    for (name, value) in variables {
        text = text.replace(&format!("${name}"), value);
    }
    if text.contains('$') {
        bail!("a variable is left in {text}");
    }
    Ok(text)
}

/// Returns the series that an expression of a rule selects.
pub fn selectors(expression: &str) -> Result<Vec<String>> {
    const SELECTOR: &str = r"(?:^|[^\w:])((?:server:)?evictscope_[\w:]*(?:\{[^}]*\})?|up\{[^}]*\})";
    Ok(Regex::new(SELECTOR)?.captures_iter(expression).map(|found| found[1].to_owned()).collect())
}

/// The page with a query for the pods of servers, and what is written before it.
const PAGE: &str = "docs/KUBERNETES.md";
const BEFORE: &str = "any series:\n\n";

const DASHBOARD: &str = "fleet.json";

const TESTS: &str = include_str!("pods.yaml");

/// Evaluates the queries of the dashboard and the page in each case.
pub fn check() -> Result<()> {
    let dashboard = read(&sources().join(DASHBOARD))?;
    let mut file: Value = serde_saphyr::from_str(TESTS).context("cannot understand pods.yaml")?;
    let tests = file["tests"].as_array_mut().context("there is no test")?;
    for test in tests.iter_mut().filter_map(Value::as_object_mut) {
        let variables = test.remove("variables").unwrap_or_default();
        let opened = Opened {
            instance: ".+",
            server: ".+",
            namespace: text(&variables["namespace"]),
            pod: text(&variables["pod"]),
            pace: Duration::from_secs(15),
            range: Duration::from_mins(5),
        };
        let queries = of_dashboard(&dashboard, &opened)?;
        let query = |place: &str| {
            let query = queries.iter().find(|query| query.place == place).map(|query| query.text.clone());
            query.with_context(|| format!("{DASHBOARD} has no {place}"))
        };
        // YAML lists cannot be joined.
        let kube = test.remove("kube").unwrap_or_default();
        if let (Value::Array(all), Value::Array(kube)) = (&mut test["input_series"], kube) {
            all.extend(kube);
        }
        for asked in test["promql_expr_test"].as_array_mut().into_iter().flatten() {
            let place = text(&asked["expr"]);
            asked["expr"] = if place == PAGE { of_page() } else { query(place) }?.into();
        }
    }
    let scratch = tempfile::tempdir().context("cannot make a directory")?;
    let path = scratch.path().join("pods.yaml");
    // JSON is YAML too.
    fs::write(&path, file.to_string()).context("cannot write the tests for promtool")?;
    process::succeed(Command::new("promtool").args(["test", "rules"]).arg(&path))?;
    println!("the servers of a namespace and of a pod are found by kube_pod_info");
    Ok(())
}

fn of_page() -> Result<String> {
    let page = read(&workspace::root().join(PAGE))?;
    let (_, behind) = page.split_once(BEFORE).with_context(|| format!("{PAGE} has no query behind {BEFORE:?}"))?;
    Ok(behind.split("\n\n").next().unwrap_or(behind).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_of_panels_annotations_and_variables_are_found() -> Result<()> {
        let json = r#"{"title": "D",
            "panels": [{"title": "P", "targets": [
                {"expr": "rate(a{job=~\"$job\"}[$__rate_interval])", "refId": "A", "range": true},
                {"expr": "b", "refId": "B", "instant": true}]},
                {"title": "R", "panels": [{"title": "Folded", "targets": [{"expr": "e", "refId": "A"}]}]}],
            "templating": {"list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                {"name": "job", "type": "query", "query": "label_values(c{x=\"1\",y=\"2\"}, job)"},
                {"name": "pod", "type": "query", "query": "query_result(f{pod=~\"$pod\"} and (g))"}]},
            "annotations": {"list": [{"name": "N", "target": {"expr": "d", "refId": "Anno"}}]}}"#;
        let opened = Opened {
            instance: ".+",
            server: "6379",
            namespace: ALL,
            pod: ALL,
            pace: Duration::from_secs(1),
            range: Duration::from_secs(120),
        };
        let queries = of_dashboard(json, &opened)?;
        let seen: Vec<_> =
            queries.iter().map(|query| (query.place.as_str(), query.text.as_str(), &query.kind)).collect();
        let label = QueryKind::Label("job".to_owned());
        assert_eq!(
            seen,
            [
                ("D / P / A", "rate(a{job=~\".+\"}[4s])", &QueryKind::Range),
                ("D / P / B", "b", &QueryKind::Now),
                ("D / Folded / A", "e", &QueryKind::Range),
                ("D / N / Anno", "d", &QueryKind::Range),
                ("D / variable job", "c{x=\"1\",y=\"2\"}", &label),
                ("D / variable pod", "f{pod=~\".*\"} and (g)", &QueryKind::Now),
            ]
        );
        assert!(of_dashboard(&json.replace("$job", "$unknown"), &opened).is_err());
        Ok(())
    }

    #[test]
    fn the_selectors_of_an_expression_are_found() -> Result<()> {
        let text = "server:evictscope_a:p99 > 3 * evictscope_b{kind=\"x\"} and on (server) \
                    (rate(evictscope_c[5m]) == 0) unless up{job=~\"e.*\"} == 0";
        assert_eq!(
            selectors(text)?,
            ["server:evictscope_a:p99", "evictscope_b{kind=\"x\"}", "evictscope_c", "up{job=~\"e.*\"}"]
        );
        Ok(())
    }
}
