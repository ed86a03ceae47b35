//! Proves the dashboards and the rules on real servers: a Prometheus scrapes the agent while it watches one server that
//! evictions stall, and one that only grows.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::agent::Agent;
use evictscope_testkit::clock::unix_time;
use evictscope_testkit::owned::Owned;
use evictscope_testkit::port::free_port;
use evictscope_testkit::prometheus::Prometheus;
use evictscope_testkit::redis::{EVICTING_WITHOUT_PAUSE, Redis};
use evictscope_testkit::service::Installed;
use evictscope_testkit::wait::{HANG, until_true};
use evictscope_testkit::{own_build, process};

use super::answers::FIRING;
use super::{answers, rules};

/// Time between scrapes, and between evaluations of the rules: an operator's 15 s would be too slow here.
const PACE: Duration = Duration::from_secs(1);

/// The keys that fill the stalled server.
const KEYS: u32 = 150_000;

/// Proves that the installed agent, dashboards and rules work together: every query and every rule has data, and the alert
/// on a stall fires.
pub fn run(installed: &Installed) -> Result<()> {
    process::comes_before_other_sessions()?;
    let start = unix_time()?;
    let port = free_port()?;
    // So many keys are looked at for each eviction that a request waits for seconds.
    let stalled = Redis::own(&["--maxmemory-samples", "1000"])?;
    stalled.comes_first()?;
    // It grows by 200 kB a second, for 200 s at most. Otherwise, only by chance would a server's memory be on its way to the
    // limit.
    let growing = Redis::own(&[])?;
    let mut grow = Command::new("redis-cli");
    grow.args(["-p", &growing.name(), "-r", "4000", "-i", "0.05"]);
    grow.args(["append", "growing", &"x".repeat(10_000)]);
    let _growth = Owned::start(&mut grow)?;
    // It may not find everything in other people's servers.
    let agent = Agent::start_command(installed.start(&[&own_build::all()]), port, &[])?;
    installed
        .must_be(agent.pid())
        .context("the agent does not run as it is installed")?;
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
        let firing = answers::firing(&prometheus, &server)?;
        Ok(FIRING.iter().all(|name| firing.contains_key(*name)))
    })?;
    let reclaims = || {
        let query = format!("evictscope_reclaim_duration_seconds_count{{server=\"{server}\"}}");
        let points = prometheus
            .now(&query)?
            .into_iter()
            .flat_map(|series| series.points);
        anyhow::Ok(points.map(|(_, count)| count).sum::<f64>())
    };
    let before = reclaims()?;
    drop(load);
    evict_and_flush(stalled.port())?;
    until_true(
        "the burst is over, and scraped",
        || Ok(reclaims()? > before),
    )?;
    // The burst's panels have a value for each second.
    thread::sleep(3 * PACE);
    let rules = answers::of_rules(&prometheus, &server, start)?;
    let dashboards = installed.path("/usr/share/evictscope/dashboards");
    let queries = answers::of_dashboards(&prometheus, &dashboards, &server, start)?;
    ensure!(queries > 0, "no dashboard is installed");
    println!(
        "{queries} queries of the dashboards and {rules} rules have data, and {FIRING:?} fired"
    );
    Ok(())
}

/// Makes a server at its limit evict, and its memory fall right after that: otherwise, chance decides whether a reclaim follows.
fn evict_and_flush(port: u16) -> Result<()> {
    let mut client = TcpStream::connect(("127.0.0.1", port))?;
    client.set_read_timeout(Some(HANG))?;
    let value = "x".repeat(500);
    let sets = (0..200).map(|number| format!("SET last:{number} {value}\r\n"));
    // At once, so that nothing comes in between.
    let all: String = sets
        .chain(["FLUSHALL\r\n".into(), "QUIT\r\n".into()])
        .collect();
    client.write_all(all.as_bytes())?;
    let mut answers = String::new();
    client.read_to_string(&mut answers)?;
    ensure!(!answers.contains('-'), "the server refuses: {answers}");
    Ok(())
}
