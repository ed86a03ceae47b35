//! Checks that the dashboard of all servers finds their pods from kube-state-metrics, and shows all servers if there is none,
//! and that the query in docs/KUBERNETES.md finds them too. promtool evaluates the queries on made-up series.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use evictscope_testkit::{process, workspace};
use serde_json::Value;

use super::queries::{Opened, text};
use super::{generated, queries};

/// The page with a query for the pods of servers, and what is written before it.
const PAGE: &str = "docs/KUBERNETES.md";
const BEFORE: &str = "to any series:\n\n";

/// The dashboard that has variables for namespace and pod.
const DASHBOARD: &str = "fleet.json";

/// The tests, with names in place of queries.
const TESTS: &str = include_str!("pods.yaml");

/// Evaluates the queries of the dashboard and the page in each case.
pub fn check() -> Result<()> {
    let dashboard = generated::read(&generated::sources().join(DASHBOARD))?;
    let mut file: Value = serde_saphyr::from_str(TESTS).context("cannot understand pods.yaml")?;
    let tests = file["tests"].as_array_mut().context("there is no test")?;
    for test in tests.iter_mut().filter_map(Value::as_object_mut) {
        let variables = test.remove("variables").unwrap_or_default();
        let opened = Opened {
            server: ".+",
            namespace: text(&variables["namespace"]),
            pod: text(&variables["pod"]),
            pace: Duration::from_secs(15),
            range: Duration::from_mins(5),
        };
        let queries = queries::of_dashboard(&dashboard, &opened)?;
        let query = |place: &str| {
            let mut queries = queries.iter();
            let query = queries.find(|query| query.place == place);
            let query = query.with_context(|| format!("{DASHBOARD} has no {place}"));
            query.map(|query| query.text.clone())
        };
        // YAML lists cannot be joined.
        let kube = test.remove("kube").unwrap_or_default();
        if let (Value::Array(all), Value::Array(kube)) = (&mut test["input_series"], kube) {
            all.extend(kube);
        }
        for asked in test["promql_expr_test"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            let place = text(&asked["expr"]);
            asked["expr"] = if place == PAGE {
                of_page()
            } else {
                query(place)
            }?
            .into();
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

/// Returns the query in the page.
fn of_page() -> Result<String> {
    let page = generated::read(&workspace::root().join(PAGE))?;
    let query = page.split_once(BEFORE);
    let (_, query) = query.with_context(|| format!("{PAGE} has no query behind {BEFORE:?}"))?;
    let (query, _) = query.split_once("\n\n").unwrap_or((query, ""));
    Ok(query.to_owned())
}
