//! Proves the dashboards and the rules on real servers: a Prometheus scrapes the agent while it watches
//! the lab's `burst`, a server that evicts calmly, and one that only grows.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use evictscope_lab::{Onlooker, cycles_before};
use evictscope_testkit::{
    agent::Program, clock::unix_time, process, prometheus::Prometheus, redis::Redis,
    service::Installed, workspace,
};

use super::{answers, calm::Calm, expected::FIRING, folders, growing::Growing, recording, rules};

/// From one scrape to the next, and from one evaluation of the rules to the next: an operator's 15 s would be too slow
/// here.
const PACE: Duration = Duration::from_secs(1);

/// The number of bursts after which all of [`FIRING`] fire.
const BURSTS: usize = 2;

/// Seconds from the last low of memory until the agent says that memory falls no more.
const FALLS_NO_MORE: f64 = 3.0;

/// Seconds from the end of the lab's reclaim, when a fifth of the fall is left, to the last low of memory, at most.
const LAST_FIFTH: f64 = 2.0;

/// How long all alerts may take to fire, once the lab and the agent have agreed that the last burst is
/// over.
const ALERTS_FIRE: Duration = Duration::from_secs(10);

/// The least rate of the server that evicts calmly, in evicting calls a second (mean of a minute).
const CALM_EVICTIONS: f64 = 100.0;

/// The time between two looks at the alerts.
const LOOK: Duration = Duration::from_millis(250);

/// An agent, dashboards and rules that are proved together.
pub struct Subject {
    agent: Program,
    /// The folder of the dashboards.
    dashboards: PathBuf,
    /// The folder of the rules.
    rules: PathBuf,
}

impl Subject {
    /// Returns the release build, and the dashboards and rules in the sources.
    pub fn built() -> Result<Self> {
        let dashboards = folders::sources();
        Ok(Self {
            agent: Program::Built(workspace::agent_binary()?),
            rules: dashboards.join("rules"),
            dashboards,
        })
    }

    /// Returns what an operator has installed.
    pub fn installed(installed: &Installed) -> Self {
        Self {
            agent: Program::Installed(installed.clone()),
            dashboards: installed.path("/usr/share/evictscope/dashboards"),
            rules: installed.path("/usr/share/evictscope/rules"),
        }
    }
}

/// Proves them, and that the agent and the record of the lab agree.
///
/// Call it in a process of its own: it pins itself to a core and takes over Ctrl-C.
pub fn run(subject: Subject) -> Result<()> {
    let interrupted = process::catch_ctrl_c()?;
    let agent = subject.agent.clone();
    let mut proof = Proof {
        subject,
        stage: None,
    };
    cycles_before(&mut proof, agent, BURSTS, &interrupted)
}

struct Proof {
    subject: Subject,
    /// What runs beside the lab, once the lab has called.
    stage: Option<Stage>,
}

struct Stage {
    start: f64,
    prometheus: Prometheus,
    calm: Calm,
    _growing: Growing,
}

impl Onlooker for Proof {
    fn come(&mut self, agent_port: u16) -> Result<()> {
        let rules = rules::files(&self.subject.rules)?;
        self.stage = Some(Stage {
            start: unix_time()?,
            prometheus: Prometheus::start(agent_port, &rules, PACE)?,
            calm: Calm::start()?,
            _growing: Growing::start()?,
        });
        Ok(())
    }

    fn ask(&mut self, server: &Redis, agent: u32, interrupted: &AtomicBool) -> Result<()> {
        let stage = self.stage.take().context("the lab has not begun")?;
        if let Program::Installed(installed) = &self.subject.agent {
            installed
                .must_be(agent)
                .context("the agent does not run as it is installed")?;
        }
        let dashboards = &self.subject.dashboards;
        stage.ask(dashboards, &server.port().to_string(), interrupted)
    }
}

impl Stage {
    fn ask(mut self, dashboards: &Path, burst: &str, interrupted: &AtomicBool) -> Result<()> {
        let begun = Instant::now();
        let prometheus = &self.prometheus;
        while !all_fire(prometheus, burst)? {
            ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
            ensure!(
                begun.elapsed() < ALERTS_FIRE,
                "after {BURSTS} bursts not all of {FIRING:?} fire"
            );
            thread::sleep(LOOK);
        }
        let rules = answers::of_rules(prometheus, burst, self.start)?;
        let asked = answers::of_dashboards(prometheus, dashboards, burst, self.start)?;
        asked.must_have_data()?;
        let queries = asked.count;
        recording::keep(prometheus, asked.answers, self.start)?;
        let delay = alert_delay(prometheus, burst, self.start)?;
        let calm = self.calm.server();
        let most = answers::most_evictions(prometheus, &calm, self.start)?;
        self.calm.end()?;
        ensure!(
            most > CALM_EVICTIONS,
            "the server that evicts calmly made {most} evicting calls a second at most"
        );
        answers::must_have_been_calm(prometheus, &calm, self.start)?;
        let delay = delay.map_or("at a time that is not compared with".to_owned(), |delay| {
            format!("{delay:.1} s after")
        });
        println!(
            "{queries} queries of the dashboards and {rules} rules have data; the alert fired {delay} \
             the end of the burst, and none about a server that made up to {most:.0} evicting calls a \
             second calmly ({:.1} s)",
            begun.elapsed().as_secs_f64()
        );
        Ok(())
    }
}

/// Returns whether all alerts on bursts fire about this server.
fn all_fire(prometheus: &Prometheus, server: &str) -> Result<bool> {
    let alerts = prometheus.alerts()?;
    Ok(FIRING.iter().all(|name| {
        alerts.iter().any(|alert| {
            let is = |label: &str, value: &str| {
                alert.labels.get(label).is_some_and(|found| found == value)
            };
            alert.state == "firing" && is("alertname", name) && is("server", server)
        })
    }))
}

/// Returns the seconds from the end of the first burst until its alert fired. Returns nothing where that end is not
/// known: the next burst had begun before a scrape told of the first, or another one was before it.
///
/// # Errors
///
/// Fails where that was more than two scrapes and one evaluation after the agent knew of the end.
fn alert_delay(prometheus: &Prometheus, server: &str, start: f64) -> Result<Option<f64>> {
    let first = |query: &str| {
        let series = prometheus.since(start, query)?;
        let points = series.iter().flat_map(|series| series.points.first());
        let first = points.min_by(|one, other| one.0.total_cmp(&other.0));
        anyhow::Ok(first.copied())
    };
    let chosen = format!("{{server=\"{server}\"}}");
    let ended = first(&format!(
        "(evictscope_last_burst_start_timestamp_seconds{chosen} \
         + evictscope_burst_duration_seconds_sum{chosen} + evictscope_reclaim_duration_seconds_sum{chosen}) \
         and on (server) evictscope_bursts_total{{server=\"{server}\",kind=\"self_amplifying\"}} == 1 \
         and on (server) sum by (server) (evictscope_bursts_total{chosen}) == 1 \
         and on (server) evictscope_burst_open{chosen} == 0"
    ))?;
    let Some((_, ended)) = ended else {
        return Ok(None);
    };
    let fired = first(&format!(
        "ALERTS{{alertname=\"{}\",alertstate=\"firing\",server=\"{server}\"}}",
        FIRING[0]
    ))?;
    let (fired, _) = fired.context("the alert is not recorded")?;
    let delay = fired - ended;
    let limit = LAST_FIFTH + FALLS_NO_MORE + 3.0 * PACE.as_secs_f64();
    ensure!(
        (0.0..=limit).contains(&delay),
        "the alert fired {delay:.1} s after the end of the burst, which may take {limit} s"
    );
    Ok(Some(delay))
}
