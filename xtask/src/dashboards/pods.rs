//! Checks that the dashboard of all servers finds their pods by what kube-state-metrics says, and shows all servers where
//! there is none, and that the query in docs/KUBERNETES.md finds them too. promtool computes the queries over made-up series.

use std::{fs, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{process, workspace};
use serde_json::{Value, json};

use super::{
    folders,
    queries::{self, Opened, Pods},
};

/// The page with a query for the pods of servers, and what is written before it.
const PAGE: &str = "docs/KUBERNETES.md";
const BEFORE: &str = "to any series of evictscope:\n\n";

/// The dashboard that has variables for namespace and pod.
const DASHBOARD: &str = "fleet.json";

/// Its queries that are computed, by their place.
const COUNT: &str = "evictscope / Fleet / All servers / A";
const ROWS: &str = "evictscope / Fleet / Servers / A";
const POD_OF_ROW: &str = "evictscope / Fleet / Servers / L";
const NAMESPACES: &str = "evictscope / Fleet / variable namespace";
const NAMES: &str = "evictscope / Fleet / variable pod";

/// Values of a series that lasts as long as a test.
const ALWAYS: &str = "1x10";
/// Of one that ends while a test lasts, and of one that begins then.
const UNTIL: &str = "1x2 stale";
const SINCE: &str = "_x3 1x7";

/// Two servers in pods of the same name, and one on the host. A target may have the labels of the agent's own pod. On two
/// more nodes, a server has the name that one in a pod had before.
const SERVERS: [(&str, &str); 7] = [
    (
        r#"evictscope_server_info{job="evictscope",instance="node-1",server="6379",pod_uid="u-1",namespace="evictscope",pod="evictscope-x"}"#,
        ALWAYS,
    ),
    (
        r#"evictscope_server_info{job="evictscope",instance="node-1",server="6379@3601745b3bd5",pod_uid="u-2"}"#,
        ALWAYS,
    ),
    (
        r#"evictscope_server_info{job="evictscope",instance="node-2",server="6379"}"#,
        ALWAYS,
    ),
    (
        r#"evictscope_server_info{job="evictscope",instance="node-3",server="6379",pod_uid="u-3"}"#,
        UNTIL,
    ),
    (
        r#"evictscope_server_info{job="evictscope",instance="node-3",server="6379",pod_uid="u-2"}"#,
        SINCE,
    ),
    (
        r#"evictscope_server_info{job="evictscope",instance="node-4",server="6379",pod_uid="u-3"}"#,
        UNTIL,
    ),
    (
        r#"evictscope_server_info{job="evictscope",instance="node-4",server="6379"}"#,
        SINCE,
    ),
];

/// What kube-state-metrics says, of which two instances may run.
const PODS: [&str; 4] = [
    r#"kube_pod_info{job="kube-state-metrics",instance="a",namespace="shop",pod="cart-0",uid="u-1"}"#,
    r#"kube_pod_info{job="kube-state-metrics",instance="b",namespace="shop",pod="cart-0",uid="u-1"}"#,
    r#"kube_pod_info{job="kube-state-metrics",instance="a",namespace="bank",pod="cart-0",uid="u-2"}"#,
    r#"kube_pod_info{job="kube-state-metrics",instance="a",namespace="shop",pod="other-0",uid="u-3"}"#,
];

const SHOP: &str = r#"{job="evictscope",instance="node-1",server="6379"}"#;
const BANK: &str = r#"{job="evictscope",instance="node-1",server="6379@3601745b3bd5"}"#;
const HOST: &str = r#"{job="evictscope",instance="node-2",server="6379"}"#;
const BANK_LATER: &str = r#"{job="evictscope",instance="node-3",server="6379"}"#;
const HOST_LATER: &str = r#"{job="evictscope",instance="node-4",server="6379"}"#;
const POD_OF_SHOP: &str =
    r#"{job="evictscope",instance="node-1",server="6379",namespace="shop",pod="cart-0"}"#;
const POD_OF_BANK: &str = r#"{job="evictscope",instance="node-1",server="6379@3601745b3bd5",namespace="bank",pod="cart-0"}"#;
const POD_OF_BANK_LATER: &str =
    r#"{job="evictscope",instance="node-3",server="6379",namespace="bank",pod="cart-0"}"#;

/// How the dashboard is opened, and what its queries must answer.
struct Case {
    /// Whether there is a kube-state-metrics.
    kube: bool,
    pods: Pods<'static>,
    rows: &'static [&'static str],
    pod_of_row: &'static [&'static str],
}

const CASES: [Case; 5] = [
    Case {
        kube: false,
        pods: Pods::ALL,
        rows: &[SHOP, BANK, HOST, BANK_LATER, HOST_LATER],
        pod_of_row: &[],
    },
    Case {
        kube: true,
        pods: Pods::ALL,
        rows: &[SHOP, BANK, HOST, BANK_LATER, HOST_LATER],
        pod_of_row: &[POD_OF_SHOP, POD_OF_BANK, POD_OF_BANK_LATER],
    },
    Case {
        kube: true,
        pods: Pods {
            namespace: "shop",
            ..Pods::ALL
        },
        rows: &[SHOP],
        pod_of_row: &[POD_OF_SHOP],
    },
    Case {
        kube: true,
        pods: Pods {
            name: "(cart-0|other-0)",
            ..Pods::ALL
        },
        rows: &[SHOP, BANK, BANK_LATER],
        pod_of_row: &[POD_OF_SHOP, POD_OF_BANK, POD_OF_BANK_LATER],
    },
    Case {
        kube: true,
        pods: Pods {
            name: "other-0",
            ..Pods::ALL
        },
        rows: &[],
        pod_of_row: &[],
    },
];

/// Computes what the dashboard asks in each case.
pub fn check() -> Result<()> {
    let dashboard = folders::read(&folders::sources().join(DASHBOARD))?;
    let tests = CASES.iter().map(|case| test(&dashboard, case));
    let mut tests = tests.collect::<Result<Vec<_>>>()?;
    tests.push(test_of_page()?);
    let file = json!({ "tests": tests });
    let scratch = tempfile::tempdir().context("cannot make a directory")?;
    let path = scratch.path().join("pods.yaml");
    // JSON is YAML too.
    fs::write(&path, file.to_string()).context("cannot write the tests for promtool")?;
    process::succeed(Command::new("promtool").args(["test", "rules"]).arg(&path))?;
    println!("the servers of a namespace and of a pod are found by kube_pod_info");
    Ok(())
}

/// Returns a case in the form of `promtool test rules`.
fn test(dashboard: &str, case: &Case) -> Result<Value> {
    let opened = Opened {
        server: ".+",
        pods: case.pods,
        pace: Duration::from_secs(15),
        range: Duration::from_mins(5),
    };
    let queries = queries::of_dashboard(dashboard, &opened)?;
    let must_answer = |place: &str, samples: Vec<Value>| {
        let mut found = queries.iter().filter(|query| query.place == place);
        let query = found.next();
        ensure!(found.next().is_none(), "{place} is there twice");
        let query = query.with_context(|| format!("{DASHBOARD} has no {place}"))?;
        Ok(json!({ "expr": query.text, "eval_time": "5m", "exp_samples": samples }))
    };
    let ones = |labels: &[&str]| {
        let samples = labels
            .iter()
            .map(|labels| json!({ "labels": labels, "value": 1 }));
        samples.collect()
    };
    let of_kube = |answer: &'static [&str]| if case.kube { answer } else { &[] };
    let namespaces = of_kube(&[r#"{namespace="shop"}"#, r#"{namespace="bank"}"#]);
    let names = of_kube(&[r#"{pod="cart-0"}"#]);
    let count = match case.rows.len() {
        0 => vec![],
        count => vec![json!({ "labels": "{}", "value": count })],
    };
    let pods: &[&str] = if case.kube { &PODS } else { &[] };
    let pods = pods.iter().map(|series| (*series, ALWAYS));
    let series = SERVERS
        .into_iter()
        .chain(pods)
        .map(|(series, values)| json!({ "series": series, "values": values }));
    Ok(json!({
        "interval": "1m",
        "input_series": series.collect::<Vec<_>>(),
        "promql_expr_test": [
            must_answer(COUNT, count)?,
            must_answer(ROWS, ones(case.rows))?,
            must_answer(POD_OF_ROW, ones(case.pod_of_row))?,
            must_answer(NAMESPACES, ones(namespaces))?,
            must_answer(NAMES, ones(names))?,
        ],
    }))
}

/// Returns a test of the query in the page, beside a server that was restarted: where its two series come by federation, they
/// overlap.
fn test_of_page() -> Result<Value> {
    const SERVER: &str = r#"job="evictscope",instance="node-1",server="6379""#;
    const AGENT: &str = r#"namespace="evictscope",pod="evictscope-x""#;
    let page = folders::read(&workspace::root().join(PAGE))?;
    let (_, query) = page
        .split_once(BEFORE)
        .with_context(|| format!("{PAGE} has no query behind {BEFORE:?}"))?;
    let (query, _) = query.split_once("\n\n").unwrap_or((query, ""));
    let info = |pid: u32| {
        format!(
            r#"evictscope_server_info{{{SERVER},{AGENT},pid="{pid}",pod_uid="u-1",container_name="redis"}}"#
        )
    };
    let stalls = format!("evictscope_stall_seconds_total{{{SERVER},{AGENT}}}");
    let mut series = vec![json!({ "series": stalls, "values": "0+60x10" })];
    let ones = [info(1), info(2)].into_iter();
    let ones = ones.chain(PODS.map(str::to_owned));
    series.extend(ones.map(|series| json!({ "series": series, "values": ALWAYS })));
    let answer = format!(
        r#"{{{SERVER},pod_uid="u-1",container_name="redis",namespace="shop",pod="cart-0"}}"#
    );
    Ok(json!({
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [{
            "expr": query,
            "eval_time": "5m",
            "exp_samples": [{ "labels": answer, "value": 1 }],
        }],
    }))
}
