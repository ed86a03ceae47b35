//! Proves the dashboards and the rules on real servers: a Prometheus scrapes the agent while it watches one server that
//! evictions stall, and one that only grows.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
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
use evictscope_testkit::wait::{HANG, unix_time, until_true};

use super::queries::{ALL, Opened, Query, QueryKind};
use super::{queries, rules};

/// Time between scrapes, and between evaluations of the rules: an operator's 15 s would be too slow here.
const PACE: Duration = Duration::from_secs(1);

const KEYS: u32 = 150_000;

/// Queries of dashboards that have no data, by their place: everything is found in Debian's redis-server, no check
/// fails, every server can be watched, and there is no kube-state-metrics.
const EMPTY_QUERIES: [&str; 9] = [
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

/// Queries that may or may not have data: they show what changed between two scrapes, what is known once memory has
/// grown for a minute without evictions, or a share of keys with a time to live, of which there are too few.
const UNCERTAIN_QUERIES: [&str; 4] = [
    "evictscope / Eviction cycle / Expired keys that are held / A",
    "evictscope / Eviction cycle / Client buffers / B",
    "evictscope / Eviction cycle / At the limit / B",
    "evictscope / Eviction cycle / At the limit / C",
];

/// Series in the rules of alerts that have no data, for the same reasons.
const EMPTY_SELECTORS: [&str; 4] = [
    "evictscope_not_found{item=~\"plan|eviction_call|eviction_goal|eviction_done|eviction_result|expire_cycle|\
     expire_start|expire_end|used_memory|stat_numcommands|stat_evictedkeys|stat_clients_type_memory|stat_total_error_replies|\
     stat_expired_stale_perc|stat_expired_time_cap_reached_count\"}",
    "evictscope_not_found{item=\"maxmemory\"}",
    "evictscope_plan_withdrawn",
    "evictscope_server_ended_timestamp_seconds{status!~\"0|unknown\"}",
];

/// Series in the rules of alerts that may or may not have data, for the same reason, or because too few keys have a
/// time to live.
const UNCERTAIN_SELECTORS: [&str; 3] = [
    "evictscope_expired_held_ratio",
    "evictscope_evictions_would_add_ratio",
    "evictscope_maxmemory_reached_seconds{estimate=\"likely\"}",
];

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
        prometheus.must_be_alive()?;
        let firing = firing(&prometheus, &server)?;
        Ok(FIRING.iter().all(|name| firing.contains_key(*name)))
    })?;
    let reclaims = || {
        let query = format!("evictscope_reclaim_duration_seconds_count{{server=\"{server}\"}}");
        let series = prometheus.now(&query)?;
        anyhow::Ok(series.iter().flat_map(|series| &series.points).map(|(_, count)| count).sum::<f64>())
    };
    let before = reclaims()?;
    drop(load);
    evict_and_flush(stalled.port())?;
    until_true("the burst is over, and scraped", || Ok(reclaims()? > before))?;
    // The burst's panels have a value for each second.
    thread::sleep(3 * PACE);
    let rules = of_rules(&prometheus, &server, start)?;
    let dashboards = installed.path("/usr/share/evictscope/dashboards");
    let queries = of_dashboards(&prometheus, &dashboards, &server, start)?;
    ensure!(queries > 0, "no dashboard is installed");
    println!("{queries} queries of the dashboards and {rules} rules have data, and {FIRING:?} fired");
    Ok(())
}

/// Makes a server at its limit evict, and its memory fall right after that: otherwise, chance decides whether a reclaim
/// follows.
fn evict_and_flush(port: u16) -> Result<()> {
    let mut client = TcpStream::connect(("127.0.0.1", port))?;
    client.set_read_timeout(Some(HANG))?;
    let value = "x".repeat(500);
    let sets = (0..200).map(|number| format!("SET last:{number} {value}\r\n"));
    // At once, so that nothing comes in between.
    let all: String = sets.chain(["FLUSHALL\r\n".into(), "QUIT\r\n".into()]).collect();
    client.write_all(all.as_bytes())?;
    let mut answers = String::new();
    client.read_to_string(&mut answers)?;
    ensure!(!answers.contains('-'), "the server refuses: {answers}");
    Ok(())
}

/// Runs every query of every dashboard in a folder for this server, from `start` (seconds since 1970) on, and returns
/// how many there are. Fails if a query has no data, unless it is one of [`UNCERTAIN_QUERIES`] or of [`EMPTY_QUERIES`].
/// The latter must have none.
fn of_dashboards(prometheus: &Prometheus, dashboards: &Path, server: &str, start: f64) -> Result<usize> {
    let mut count = 0;
    let mut strange = Vec::new();
    let opened = Opened {
        server,
        namespace: ALL,
        pod: ALL,
        pace: prometheus.pace(),
        range: Duration::from_secs_f64((unix_time()? - start).max(0.0)),
    };
    for file in super::dashboards(dashboards)? {
        for query in queries::of_dashboard(&super::read(&file)?, &opened)? {
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
    series.iter().flat_map(|series| &series.points).any(|(_, value)| !value.is_nan())
}

/// Checks every rule: that it can be evaluated, that the series that it records or asks for exist, and that the alerts
/// that fire about this server have sound texts. Returns how many rules there are.
fn of_rules(prometheus: &Prometheus, server: &str, start: f64) -> Result<usize> {
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
fn firing(prometheus: &Prometheus, server: &str) -> Result<BTreeMap<String, String>> {
    let alerts = prometheus.alerts()?.into_iter();
    let about = alerts
        .filter(|alert| alert.state == "firing" && alert.labels.get("server").is_some_and(|about| about == server));
    let named = about.filter_map(|mut alert| {
        Some((alert.labels.remove("alertname")?, alert.annotations.remove("description").unwrap_or_default()))
    });
    Ok(named.collect())
}
