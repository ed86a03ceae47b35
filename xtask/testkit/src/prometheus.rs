//! A Prometheus that scrapes agents and evaluates rules.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, de::DeserializeOwned};
use tempfile::TempDir;

use crate::{clock::unix_time, http::Http, owned::Owned, port::free_port};

/// The scrape job of the agent. There is another, as everywhere: Prometheus itself.
pub const JOB: &str = "evictscope";

/// How a group of rules asks for a slower pace than the others.
const SLOWER: &str = "interval: 1m";

/// A running Prometheus, which is killed when this is dropped.
pub struct Prometheus {
    // Before the directory, because fields are dropped in this order.
    process: Owned,
    _directory: TempDir,
    http: Http,
    pace: Duration,
}

/// One series of an answer: its labels, and its values with their times in seconds since 1970.
pub struct Series {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Time and value.
    pub points: Vec<(f64, f64)>,
}

/// A rule as Prometheus has loaded it.
#[derive(Deserialize)]
pub struct Rule {
    /// The name of the alert or of the recorded series.
    pub name: String,
    /// Its expression.
    pub query: String,
    /// `alerting` or `recording`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `ok` if it could be evaluated.
    pub health: String,
}

/// An alert that is pending or firing.
#[derive(Debug, Deserialize)]
pub struct Alert {
    /// Labels, including `alertname`.
    pub labels: BTreeMap<String, String>,
    /// Texts, as they are sent.
    pub annotations: BTreeMap<String, String>,
    /// `pending` or `firing`.
    pub state: String,
}

impl Prometheus {
    /// Starts a Prometheus that, once in each `pace`, scrapes the agent on this loopback port as [`JOB`] and itself,
    /// and evaluates all rules.
    pub fn start(agent_port: u16, rules: &[PathBuf], pace: Duration) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("evictscope-prometheus-")
            .tempdir()
            .context("cannot make a temporary directory")?;
        for rule in rules {
            copy_at_pace(rule, directory.path(), pace)?;
        }
        let port = free_port()?;
        let seconds = pace.as_secs();
        let config = format!(
            "global:\n  scrape_interval: {seconds}s\n  evaluation_interval: {seconds}s\n\
             rule_files: ['*.yaml']\n\
             scrape_configs:\n  - job_name: {JOB}\n    static_configs:\n      \
             - targets: ['127.0.0.1:{agent_port}']\n\
             \x20 - job_name: prometheus\n    static_configs:\n      \
             - targets: ['127.0.0.1:{port}']\n"
        );
        let file = directory.path().join("prometheus.yml");
        fs::write(&file, config).with_context(|| format!("cannot write {}", file.display()))?;
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--log.level=warn");
        let process = Owned::start(&mut command)?;
        let http = Http::new(port);
        process.until("prometheus is ready", || Ok(http.get("/-/ready").ok()))?;
        Ok(Self { process, _directory: directory, http, pace })
    }

    /// Fails with its log if it has ended.
    pub fn must_be_alive(&self) -> Result<()> {
        self.process.must_be_alive()
    }

    /// Returns the answer to a query now.
    pub fn now(&self, query: &str) -> Result<Vec<Series>> {
        self.series("query", &[("query", query)])
    }

    /// Returns the time from one scrape to the next.
    pub fn pace(&self) -> Duration {
        self.pace
    }

    /// Returns the answers to a query, one for each scrape, from `start` (in seconds since 1970) until now.
    pub fn since(&self, start: f64, query: &str) -> Result<Vec<Series>> {
        let (start, end) = (start.to_string(), unix_time()?.to_string());
        let step = self.pace.as_secs().to_string();
        let pairs = [("query", query), ("start", &start), ("end", &end), ("step", &step)];
        self.series("query_range", &pairs)
    }

    /// Returns the values of a label among the series that match.
    pub fn label_values(&self, matching: &str, label: &str) -> Result<Vec<String>> {
        self.get(&format!("label/{label}/values"), &[("match[]", matching)])
    }

    /// Returns the rules that it evaluates.
    pub fn rules(&self) -> Result<Vec<Rule>> {
        #[derive(Deserialize)]
        struct Groups {
            groups: Vec<Group>,
        }
        #[derive(Deserialize)]
        struct Group {
            rules: Vec<Rule>,
        }
        let Groups { groups } = self.get("rules", &[])?;
        Ok(groups.into_iter().flat_map(|group| group.rules).collect())
    }

    /// Returns the alerts that are pending or firing now.
    pub fn alerts(&self) -> Result<Vec<Alert>> {
        #[derive(Deserialize)]
        struct Alerts {
            alerts: Vec<Alert>,
        }
        let Alerts { alerts } = self.get("alerts", &[])?;
        Ok(alerts)
    }

    fn series(&self, path: &str, pairs: &[(&str, &str)]) -> Result<Vec<Series>> {
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
        let Answer { result } = self.get(path, pairs)?;
        let series = result.into_iter().map(|found| {
            let points = (found.values.into_iter().chain(found.value))
                .map(|(time, value)| Ok((time, value.parse().context("a value is not a number")?)))
                .collect::<Result<_>>()?;
            Ok(Series { labels: found.metric, points })
        });
        series.collect()
    }

    fn get<T: DeserializeOwned>(&self, path: &str, pairs: &[(&str, &str)]) -> Result<T> {
        #[derive(Deserialize)]
        struct Answer<T> {
            status: String,
            data: Option<T>,
            error: Option<String>,
        }
        let (_, text) = self.http.ask(&format!("/api/v1/{path}"), pairs)?;
        let answer: Answer<T> = serde_json::from_str(&text)
            .with_context(|| format!("cannot understand the answer of prometheus to {path}"))?;
        ensure!(answer.status == "success", "prometheus answers {}", answer.error.unwrap_or_default());
        answer.data.context("prometheus answers without data")
    }
}

/// Copies a rule file and lets all its groups be evaluated at this pace.
fn copy_at_pace(rule: &Path, to: &Path, pace: Duration) -> Result<()> {
    let text = fs::read_to_string(rule).with_context(|| format!("cannot read {}", rule.display()))?;
    let name = rule.file_name().context("a rule file has no name")?;
    let pace = format!("interval: {}s", pace.as_secs());
    fs::write(to.join(name), text.replace(SLOWER, &pace)).context("cannot copy a rule file")
}
