//! Proves the dashboards and the rules on real servers: a Prometheus scrapes the agent while it watches one server that
//! evictions stall, and one that only grows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::agent::Agent;
use evictscope_testkit::loopback::free_port;
use evictscope_testkit::process;
use evictscope_testkit::process::Owned;
use evictscope_testkit::prometheus::{JOB, Prometheus, PrometheusSeries};
use evictscope_testkit::redis::{self, EVICTING_WITHOUT_PAUSE, Redis};
use evictscope_testkit::service::Installed;
use evictscope_testkit::wait::{unix_time, until_true};
use serde::Deserialize;

use super::queries::{ALL, Opened, Query, QueryKind};
use super::{queries, rules};

/// Time between scrapes, and between evaluations of the rules: an operator's 15 s would be too slow here.
const PACE: Duration = Duration::from_secs(1);

const KEYS: u32 = 150_000;

/// Which queries of dashboards, by their places, and which series in the rules of alerts have no data, or not always.
const WITHOUT_DATA: &str = include_str!("without_data.yaml");

#[derive(Deserialize)]
struct WithoutData {
    never: BTreeSet<String>,
    uncertain: BTreeSet<String>,
}

impl WithoutData {
    fn known() -> Result<Self> {
        serde_saphyr::from_str(WITHOUT_DATA).context("cannot understand without_data.yaml")
    }

    /// Returns whether this is strange of a query or a series.
    fn contradicts(&self, name: &str, has_data: bool) -> bool {
        has_data == self.never.contains(name) && !self.uncertain.contains(name)
    }
}

/// The alerts that must fire. promtool's tests say when the others do.
const FIRING: [&str; 1] = ["EvictscopeStalled"];

/// Proves that the installed agent, dashboards and rules work together: every query and every rule has data, and the
/// alert on a stall fires.
pub fn run(installed: &Installed) -> Result<()> {
    process::comes_before_other_sessions()?;
    let start = unix_time()?;
    let port = free_port()?;
    // So many keys are looked at for each eviction that a request waits for seconds.
    let stalled = Redis::private(&["--maxmemory-samples", "1000"])?;
    stalled.comes_first()?;
    // It grows by 200 kB a second, for 200 s at most. Otherwise, only by chance would a server's memory be on its way
    // to the limit.
    let growing = Redis::private(&[])?;
    let mut grow = Command::new("redis-cli");
    grow.args(["-p", &growing.name(), "-r", "4000", "-i", "0.05"]);
    grow.args(["append", "growing", &"x".repeat(10_000)]);
    let _growth = Owned::start(&mut grow)?;
    // It may not find everything in other people's servers.
    let agent = Agent::start_command(installed.start(&[&redis::match_private()]), port, &[])?;
    installed.must_be(agent.pid()).context("the agent does not run as it is installed")?;
    agent.watches(&stalled)?;
    let rules = rules::files(&installed.path("/usr/share/evictscope/rules"))?;
    let prometheus = Prometheus::start(port, &rules, PACE)?;
    stalled.write_keys(KEYS)?;
    let server = stalled.name();
    let load = stalled.load(EVICTING_WITHOUT_PAUSE)?;
    load.comes_first()?;
    until_true("all alerts on a stall fire", || {
        load.must_be_alive()?;
        prometheus.process.must_be_alive()?;
        let firing = firing(&prometheus, &server)?;
        Ok(FIRING.iter().all(|name| firing.contains_key(*name)))
    })?;
    let reclaims = || {
        let query = format!("evictscope_reclaim_duration_seconds_count{{server=\"{server}\"}}");
        let series = prometheus.now(&query)?;
        anyhow::Ok(series.iter().flat_map(PrometheusSeries::numbers).sum::<f64>())
    };
    let before = reclaims()?;
    drop(load);
    process::answer_of(Command::new("bash").args(["-c", EVICT_AND_FLUSH, "bash", &server]))?;
    until_true("the burst is over, and scraped", || Ok(reclaims()? > before))?;
    // The burst's panels have a value for each second.
    thread::sleep(3 * PACE);
    let rules = of_rules(&prometheus, &server, start)?;
    let dashboards = installed.path("/usr/share/evictscope/dashboards");
    let queries = of_dashboards(&prometheus, &dashboards, &format!("127.0.0.1:{port}"), &server, start)?;
    ensure!(queries > 0, "no dashboard is installed");
    println!("{queries} queries of the dashboards and {rules} rules have data, and {FIRING:?} fired");
    Ok(())
}

/// Makes a server at its limit evict, and its memory fall right after that: otherwise, chance decides whether a reclaim
/// follows. All of it arrives at once.
const EVICT_AND_FLUSH: &str = r#"{ for key in {1..200}; do printf 'SET last:%d %0500d\r\n' $key 0; done
    printf 'FLUSHALL\r\n'; } | redis-cli -p "$1" --pipe"#;

/// Runs every query of every dashboard in a folder for this server of this instance, from `start` (seconds since 1970)
/// on, and returns how many there are. Fails if a query has no data, unless [`WITHOUT_DATA`] names it.
fn of_dashboards(
    prometheus: &Prometheus,
    dashboards: &Path,
    instance: &str,
    server: &str,
    start: f64,
) -> Result<usize> {
    let known = WithoutData::known()?;
    let mut count = 0;
    let mut strange = Vec::new();
    let opened = Opened {
        instance,
        server,
        namespace: ALL,
        pod: ALL,
        pace: prometheus.pace,
        range: Duration::from_secs_f64((unix_time()? - start).max(0.0)),
    };
    for file in super::dashboards(dashboards)? {
        for query in queries::of_dashboard(&super::read(&file)?, &opened)? {
            count += 1;
            let answered = answer(prometheus, &query, start)
                .with_context(|| format!("the query of {} fails: {}", query.place, query.text))?;
            if known.contradicts(&query.place, answered) {
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

fn answer(prometheus: &Prometheus, query: &Query, start: f64) -> Result<bool> {
    let series = match &query.kind {
        QueryKind::Now => prometheus.now(&query.text)?,
        QueryKind::Range => prometheus.since(start, &query.text)?,
        QueryKind::Label(label) => {
            let values = prometheus.label_values(&query.text, label)?;
            return Ok(!values.is_empty());
        }
    };
    // With the variables at All, series such as `up` also come from other jobs.
    let strange = series.iter().filter_map(|series| series.labels.get("job")).find(|job| *job != JOB);
    ensure!(strange.is_none(), "the answer is about other jobs than {JOB}: {strange:?}");
    Ok(has_data(&series))
}

fn has_data(series: &[PrometheusSeries]) -> bool {
    series.iter().flat_map(PrometheusSeries::numbers).any(|value| !value.is_nan())
}

/// Checks every rule: that it can be evaluated, that the series that it records or asks for exist, and that the alerts
/// that fire about this server have sound texts. Returns how many rules there are.
fn of_rules(prometheus: &Prometheus, server: &str, start: f64) -> Result<usize> {
    let known = WithoutData::known()?;
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
                let found = has_data(&prometheus.since(start, &selector)?);
                if known.contradicts(&selector, found) {
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

fn firing(prometheus: &Prometheus, server: &str) -> Result<BTreeMap<String, String>> {
    let alerts = prometheus.alerts()?.into_iter();
    let about = alerts
        .filter(|alert| alert.state == "firing" && alert.labels.get("server").is_some_and(|about| about == server));
    let named = about.filter_map(|mut alert| {
        Some((alert.labels.remove("alertname")?, alert.annotations.remove("description").unwrap_or_default()))
    });
    Ok(named.collect())
}
