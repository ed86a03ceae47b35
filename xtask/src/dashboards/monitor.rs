//! A real Prometheus that scrapes one agent and evaluates the rules.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    owned::{self, Owned},
    redis::free_port,
};

/// From one scrape to the next, and from one evaluation of the rules to the next: an operator's 15 s
/// would be too slow for a test.
pub const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);

/// The scrape job of the agent. There is another, as everywhere: Prometheus itself.
pub const JOB: &str = "evictscope";

/// What the rules say where they want a slower pace than the rest.
const SLOWER: &str = "interval: 1m";

/// How long it may take until it answers.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How long one answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A running Prometheus; dropping it ends it.
pub struct Prometheus {
    // Before the directory, because fields are dropped in this order.
    process: Owned,
    directory: TempDir,
    http: ureq::Agent,
    base: String,
}

/// One series of an answer: its labels, and its values with their times in seconds since 1970.
#[derive(Serialize, Deserialize)]
pub struct Series {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Time and value.
    pub points: Vec<(f64, f64)>,
}

/// A rule as Prometheus has loaded it.
#[derive(Deserialize)]
pub struct Rule {
    /// Of the alert or of the recorded series.
    pub name: String,
    /// Its expression.
    pub query: String,
    /// `alerting` or `recording`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `ok`, where it could be evaluated.
    pub health: String,
}

/// An alert that is pending or firing.
#[derive(Debug, Deserialize)]
pub struct Alert {
    /// Labels, `alertname` among them.
    pub labels: BTreeMap<String, String>,
    /// Texts, as they are sent.
    pub annotations: BTreeMap<String, String>,
    /// `pending` or `firing`.
    pub state: String,
}

impl Prometheus {
    /// Starts one that scrapes the agent on this loopback port as [`JOB`], and itself.
    pub fn start(agent_port: u16, rules: &[PathBuf]) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("evictscope-prometheus-")
            .tempdir()
            .context("cannot make a temporary directory")?;
        for rule in rules {
            copy_at_pace(rule, directory.path())?;
        }
        let seconds = SCRAPE_INTERVAL.as_secs();
        let port = free_port()?;
        let config = directory.path().join("prometheus.yml");
        fs::write(
            &config,
            format!(
                "global:\n  scrape_interval: {seconds}s\n  evaluation_interval: {seconds}s\n\
                 rule_files: ['*.yaml']\n\
                 scrape_configs:\n  - job_name: {JOB}\n    static_configs:\n      \
                 - targets: ['127.0.0.1:{agent_port}']\n\
                 \x20 - job_name: prometheus\n    static_configs:\n      \
                 - targets: ['127.0.0.1:{port}']\n"
            ),
        )
        .with_context(|| format!("cannot write {}", config.display()))?;
        let log = File::create(log_file(directory.path()))
            .context("cannot make the log file of prometheus")?;
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.path().join("data").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--log.level=warn")
            .stdout(log.try_clone()?)
            .stderr(log);
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        let mut prometheus = Self {
            process: Owned::start(&mut command)?,
            directory,
            http: config.new_agent(),
            base: format!("http://127.0.0.1:{port}"),
        };
        prometheus.wait_until_ready()?;
        Ok(prometheus)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < START_TIMEOUT {
            let answer = self.http.get(format!("{}/-/ready", self.base)).call();
            if answer.is_ok_and(|answer| answer.status() == 200) {
                return Ok(());
            }
            if let Some(status) = self.process.ended() {
                let log = owned::log_text(&log_file(self.directory.path()));
                bail!("prometheus ended ({status}){log}");
            }
            thread::sleep(Duration::from_millis(100));
        }
        bail!("prometheus is not ready after {START_TIMEOUT:?}")
    }

    /// What a query yields now.
    pub fn now(&self, query: &str) -> Result<Vec<Series>> {
        series(self.get("query", &[("query", query)])?)
    }

    /// What a query yields in each second from then (in seconds since 1970) until now.
    pub fn since(&self, start: f64, query: &str) -> Result<Vec<Series>> {
        let (start, end) = (start.to_string(), unix_time()?.to_string());
        let pairs = [
            ("query", query),
            ("start", &start),
            ("end", &end),
            ("step", "1"),
        ];
        series(self.get("query_range", &pairs)?)
    }

    /// The values of a label among the series that match.
    pub fn label_values(&self, matching: &str, label: &str) -> Result<Vec<String>> {
        let data = self.get(&format!("label/{label}/values"), &[("match[]", matching)])?;
        serde_json::from_value(data).context("cannot understand the values of a label")
    }

    /// The rules that it evaluates.
    pub fn rules(&self) -> Result<Vec<Rule>> {
        #[derive(Deserialize)]
        struct Groups {
            groups: Vec<Group>,
        }
        #[derive(Deserialize)]
        struct Group {
            rules: Vec<Rule>,
        }
        let groups: Groups = serde_json::from_value(self.get("rules", &[])?)
            .context("cannot understand the rules")?;
        Ok(groups
            .groups
            .into_iter()
            .flat_map(|group| group.rules)
            .collect())
    }

    /// The alerts that are pending or firing now.
    pub fn alerts(&self) -> Result<Vec<Alert>> {
        #[derive(Deserialize)]
        struct Alerts {
            alerts: Vec<Alert>,
        }
        let alerts: Alerts = serde_json::from_value(self.get("alerts", &[])?)
            .context("cannot understand the alerts")?;
        Ok(alerts.alerts)
    }

    fn get(&self, path: &str, pairs: &[(&str, &str)]) -> Result<Value> {
        #[derive(Deserialize)]
        struct Answer {
            status: String,
            data: Option<Value>,
            error: Option<String>,
        }
        let mut request = self.http.get(format!("{}/api/v1/{path}", self.base));
        for (key, value) in pairs {
            request = request.query(key, value);
        }
        let mut answer = request.call().context("prometheus does not answer")?;
        let text = answer
            .body_mut()
            .with_config()
            .limit(64 << 20)
            .read_to_string()
            .context("cannot read the answer of prometheus")?;
        let answer: Answer =
            serde_json::from_str(&text).context("cannot understand the answer of prometheus")?;
        ensure!(
            answer.status == "success",
            "prometheus answers {}",
            answer.error.unwrap_or_default()
        );
        answer.data.context("prometheus answers without data")
    }
}

/// Seconds since 1970.
pub fn unix_time() -> Result<f64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(now.context("the clock stands before 1970")?.as_secs_f64())
}

/// Copies a rule file, with all its groups at the pace of the test.
fn copy_at_pace(rule: &Path, to: &Path) -> Result<()> {
    let text =
        fs::read_to_string(rule).with_context(|| format!("cannot read {}", rule.display()))?;
    let name = rule.file_name().context("a rule file has no name")?;
    let pace = format!("interval: {}s", SCRAPE_INTERVAL.as_secs());
    fs::write(to.join(name), text.replace(SLOWER, &pace)).context("cannot copy a rule file")
}

fn log_file(directory: &Path) -> PathBuf {
    directory.join("prometheus.log")
}

fn series(data: Value) -> Result<Vec<Series>> {
    #[derive(Deserialize)]
    struct Answer {
        result: Vec<Found>,
    }
    #[derive(Deserialize)]
    struct Found {
        metric: BTreeMap<String, String>,
        value: Option<(f64, String)>,
        #[serde(default)]
        values: Vec<(f64, String)>,
    }
    let answer: Answer =
        serde_json::from_value(data).context("an answer of prometheus is no vector")?;
    answer
        .result
        .into_iter()
        .map(|found| {
            let points = found
                .values
                .into_iter()
                .chain(found.value)
                .map(|(time, value)| Ok((time, value.parse().context("a value is no number")?)))
                .collect::<Result<_>>()?;
            Ok(Series {
                labels: found.metric,
                points,
            })
        })
        .collect()
}
