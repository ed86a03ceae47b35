//! The dashboards and the rules beside real servers: a Prometheus scrapes the agent, which watches the
//! lab, first `steady` and then `burst`, and a server that only grows.

use std::{
    fs::{self, File},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;
use tempfile::NamedTempFile;

use super::{
    answers,
    expected::FIRING,
    monitor::{Prometheus, SCRAPE_INTERVAL, unix_time},
    rules,
};
use crate::{
    agent::Agent,
    owned::{self, Owned},
    redis::Server,
    workspace,
};

/// How long `steady` is watched once it evicts.
const STEADY: Duration = Duration::from_secs(8);

/// How long the lab may take to connect, measure and fill: some 20 s.
const PREPARATION: Duration = Duration::from_secs(90);

/// How long two bursts may take: the lab has one every 20 s.
const TWO_BURSTS: Duration = Duration::from_secs(120);

/// How long after the last low of memory the agent says that the reclaim is over.
const RECLAIM_IS_OVER: f64 = 2.0;

/// How often it is looked whether something has happened.
const LOOK: Duration = Duration::from_millis(250);

/// Proves them.
pub fn run() -> Result<()> {
    let begun = Instant::now();
    let start = unix_time()?;
    let mut agent = Agent::start(&workspace::agent_binary()?, &[])?;
    agent.wait_until_ready()?;
    let prometheus = Prometheus::start(
        agent.port(),
        &rules::files(&super::directory().join("rules"))?,
    )?;

    let _growing = Growing::start()?;

    let mut lab = Lab::start("steady")?;
    let steady = lab.server()?;
    let evicting = format!("server:evictscope_evicting_calls:rate1m{{server=\"{steady}\"}} > 100");
    lab.wait_for("evictions", PREPARATION, || {
        Ok(!prometheus.now(&evicting)?.is_empty())
    })?;
    thread::sleep(STEADY);
    lab.stop();

    let mut lab = Lab::start("burst")?;
    let burst = lab.server()?;
    lab.wait_for("two bursts that fire the alerts", TWO_BURSTS, || {
        let alerts = prometheus.alerts()?;
        Ok(FIRING.iter().all(|name| {
            alerts.iter().any(|alert| {
                let is = |label: &str, value: &str| {
                    alert.labels.get(label).is_some_and(|found| found == value)
                };
                alert.state == "firing" && is("alertname", name) && is("server", &burst)
            })
        }))
    })?;
    // While the server lives: its series end with it.
    let rules = answers::of_rules(&prometheus, &burst, start)?;
    let queries = answers::of_dashboards(&prometheus, &burst, start)?;
    let delay = alert_delay(&prometheus, &burst, start)?;
    lab.stop();
    answers::must_have_been_calm(&prometheus, &steady, start)?;
    println!(
        "{queries} queries of the dashboards and {rules} rules have data; the alert fired {delay:.1} s after \
         the end of the burst; all quiet about the server that evicts calmly ({:.0} s)",
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

/// How long after the end of the first burst the alert on it fired, in seconds. It may take two
/// scrapes, and one evaluation, after the agent knew that the burst was over.
fn alert_delay(prometheus: &Prometheus, server: &str, start: f64) -> Result<f64> {
    let first = |query: &str| {
        let series = prometheus.since(start, query)?;
        let points = series.iter().flat_map(|series| series.points.first());
        points
            .min_by(|one, other| one.0.total_cmp(&other.0))
            .copied()
            .with_context(|| format!("no {query}"))
    };
    let chosen = format!("{{server=\"{server}\"}}");
    let (_, ended) = first(&format!(
        "(evictscope_last_burst_start_timestamp_seconds{chosen} \
         + evictscope_burst_duration_seconds_sum{chosen} + evictscope_reclaim_duration_seconds_sum{chosen}) \
         and on (server) evictscope_bursts_total{{server=\"{server}\",kind=\"self_amplifying\"}} == 1"
    ))?;
    let (fired, _) = first(&format!(
        "ALERTS{{alertname=\"{}\",alertstate=\"firing\",server=\"{server}\"}}",
        FIRING[0]
    ))?;
    let delay = fired - ended;
    let limit = RECLAIM_IS_OVER + 3.0 * SCRAPE_INTERVAL.as_secs_f64();
    ensure!(
        delay <= limit,
        "the alert fired {delay:.1} s after the end of the burst, which may take {limit} s"
    );
    Ok(delay)
}

/// A server that will reach its limit in some minutes, if it goes on as it does: without one, it would
/// be by chance that a line through a server's memory leads up to its limit.
struct Growing {
    // Before the server, because fields are dropped in this order.
    _writer: Owned,
    _server: Server,
}

impl Growing {
    fn start() -> Result<Self> {
        let server = Server::start_with("64mb", &[])?;
        let mut command = Command::new("redis-cli");
        command
            .args(["-p", &server.port().to_string()])
            // 200 kB a second, for 200 s at most.
            .args(["-r", "4000", "-i", "0.05", "append", "growing"])
            .arg("x".repeat(10_000))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(Self {
            _writer: Owned::start(&mut command)?,
            _server: server,
        })
    }
}

/// A scenario of the lab, in a process of its own: it pins itself to cores, and takes over Ctrl-C.
struct Lab {
    process: Owned,
    output: NamedTempFile,
}

impl Lab {
    fn start(scenario: &str) -> Result<Self> {
        let output = NamedTempFile::new().context("cannot make the log file of the lab")?;
        let log: File = output
            .reopen()
            .context("cannot open the log file of the lab")?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command
            // Ended by `stop`; this is for a test that is killed.
            .args(["lab", scenario, "--seconds", "240"])
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(Self {
            process: Owned::start(&mut command)?,
            output,
        })
    }

    /// The name of its server in the metrics, once its load has begun: the first line says its port.
    fn server(&mut self) -> Result<String> {
        let mut port = None;
        let path = self.output.path().to_owned();
        self.wait_for("the load", PREPARATION, || {
            let text = fs::read_to_string(&path).context("cannot read the log of the lab")?;
            port = text
                .split_once("127.0.0.1:")
                .and_then(|(_, rest)| rest.split_once(','))
                .map(|(port, _)| port.to_owned());
            Ok(port.is_some())
        })?;
        port.context("the lab does not say its port")
    }

    fn wait_for(
        &mut self,
        what: &str,
        limit: Duration,
        mut happened: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            if happened()? {
                return Ok(());
            }
            if let Some(status) = self.process.ended() {
                let log = owned::log_text(self.output.path());
                bail!("the lab ended ({status}) before {what}{log}");
            }
            thread::sleep(LOOK);
        }
        let log = owned::log_text(self.output.path());
        bail!("after {limit:?} there is no sign of {what} in the lab{log}")
    }

    fn stop(&mut self) {
        self.process.stop_with(Signal::INT);
    }
}
