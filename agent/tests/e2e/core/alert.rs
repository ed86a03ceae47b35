//! The alert on a stall, in a real Prometheus.

use std::process::Command;
use std::time::Duration;

use evictscope_testkit::prometheus::Prometheus;
use evictscope_testkit::redis::EVICTING_WITHOUT_PAUSE;
use evictscope_testkit::skip::skip;
use evictscope_testkit::{process, workspace};

use crate::prelude::*;

/// The interval of scrapes, and of evaluations of the rules.
const PACE: Duration = Duration::from_secs(1);
const ALERT: &str = "EvictscopeStalled";

fn alerts(prometheus: &Prometheus, state: &str, server: &Redis) -> anyhow::Result<Vec<String>> {
    let alerts = prometheus.alerts()?.into_iter();
    let about = alerts.filter(|alert| alert.state == state && alert.labels.get("server") == Some(&server.name()));
    Ok(about.filter_map(|alert| alert.labels.get("alertname").cloned()).collect())
}

#[test]
#[ignore = "needs root and BPF"]
fn it_fires_about_the_server_that_is_stalled_and_no_other() -> anyhow::Result<()> {
    if process::answer_of(Command::new("prometheus").arg("--version")).is_err() {
        return skip("there is no prometheus: `cargo xtask setup` installs it");
    }
    process::comes_before_other_sessions()?;
    // The server looks at so many keys for each evicted one that a request waits for seconds.
    let stalled = Redis::private(&["--maxmemory-samples", "1000"])?;
    stalled.comes_first()?;
    let idle = Redis::private(&[])?;
    for redis in [&stalled, &idle] {
        redis.write_keys(150_000)?;
    }
    let agent = Agent::watching(&stalled, &[])?;
    agent.watches(&idle)?;
    let url = agent.metrics_url();
    let port = url.rsplit_once(':').and_then(|(_, rest)| rest.split('/').next()).context("no port")?.parse()?;
    let rules = workspace::files_ending(&workspace::root().join("dashboards/rules"), "yaml")?;
    let prometheus = Prometheus::start(port, &rules, PACE)?;
    let load = stalled.load(EVICTING_WITHOUT_PAUSE)?;
    load.comes_first()?;
    until_true("the alert fires", || {
        load.must_be_alive()?;
        prometheus.process.must_be_alive()?;
        Ok(alerts(&prometheus, "firing", &stalled)?.iter().any(|name| name == ALERT))
    })?;
    for state in ["firing", "pending"] {
        let about = alerts(&prometheus, state, &idle)?;
        ensure!(about.is_empty(), "{state} about an idle server: {about:?}");
    }
    drop(load);
    until_true("the alert ends", || Ok(!alerts(&prometheus, "firing", &stalled)?.iter().any(|name| name == ALERT)))
}
