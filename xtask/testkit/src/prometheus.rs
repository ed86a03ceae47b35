//! A Prometheus that scrapes agents and evaluates rules.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::TempDir;

use crate::loopback::{Http, free_port};
use crate::process::Owned;
use crate::wait::unix_time;

/// The scrape job of the agent. There is another, as everywhere: Prometheus itself.
pub const JOB: &str = "evictscope";

pub struct Prometheus {
    // Before the directory, because fields are dropped in this order.
    pub process: Owned,
    _directory: TempDir,
    http: Http,
    pub pace: Duration,
}

/// One series of an answer. Values have their times.
#[derive(Deserialize)]
pub struct PrometheusSeries {
    #[serde(rename = "metric")]
    pub labels: BTreeMap<String, String>,
    value: Option<(f64, String)>,
    #[serde(default)]
    values: Vec<(f64, String)>,
}

impl PrometheusSeries {
    /// Returns the values. One that is no number is NaN.
    pub fn numbers(&self) -> impl Iterator<Item = f64> {
        self.values.iter().chain(&self.value).map(|(_, value)| value.parse().unwrap_or(f64::NAN))
    }
}

#[derive(Deserialize)]
pub struct Rule {
    /// The name of the alert or of the recorded series.
    pub name: String,
    pub query: String,
    /// `alerting` or `recording`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `ok` if it could be evaluated.
    pub health: String,
}

#[derive(Debug, Deserialize)]
pub struct PrometheusAlert {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// `pending` or `firing`.
    pub state: String,
}

impl Prometheus {
    /// Starts a Prometheus that, once in each `pace`, scrapes the agent on this loopback port as [`JOB`] and itself,
    /// and evaluates all rules.
    pub fn start(agent_port: u16, rules: &[PathBuf], pace: Duration) -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
        let (port, seconds) = (free_port()?, pace.as_secs());
        for rule in rules {
            let text = fs::read_to_string(rule).with_context(|| format!("cannot read {}", rule.display()))?;
            // All groups are evaluated at this pace, even those that ask for a slower one.
            let text = text.replace("interval: 1m", &format!("interval: {seconds}s"));
            let name = rule.file_name().context("a rule file has no name")?;
            fs::write(directory.path().join(name), text).context("cannot copy a rule file")?;
        }
        let config = format!(
            "global: {{scrape_interval: {seconds}s, evaluation_interval: {seconds}s}}\n\
             rule_files: ['*.yaml']\n\
             scrape_configs:\n\
             - {{job_name: {JOB}, static_configs: [{{targets: ['127.0.0.1:{agent_port}']}}]}}\n\
             - {{job_name: prometheus, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}\n"
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

    pub fn now(&self, query: &str) -> Result<Vec<PrometheusSeries>> {
        self.get("query", "/result", &[("query", query)])
    }

    pub fn since(&self, start: f64, query: &str) -> Result<Vec<PrometheusSeries>> {
        let [start, end, step] = [start, unix_time()?, self.pace.as_secs_f64()].map(|number| number.to_string());
        let pairs = [("query", query), ("start", &start), ("end", &end), ("step", &step)];
        self.get("query_range", "/result", &pairs)
    }

    pub fn label_values(&self, matching: &str, label: &str) -> Result<Vec<String>> {
        self.get(&format!("label/{label}/values"), "", &[("match[]", matching)])
    }

    pub fn rules(&self) -> Result<Vec<Rule>> {
        #[derive(Deserialize)]
        struct Group {
            rules: Vec<Rule>,
        }
        let groups: Vec<Group> = self.get("rules", "/groups", &[])?;
        Ok(groups.into_iter().flat_map(|group| group.rules).collect())
    }

    pub fn alerts(&self) -> Result<Vec<PrometheusAlert>> {
        self.get("alerts", "/alerts", &[])
    }

    fn get<T: DeserializeOwned>(&self, path: &str, place: &str, pairs: &[(&str, &str)]) -> Result<T> {
        let (_, text) = self.http.ask(&format!("/api/v1/{path}"), pairs)?;
        let read = || format!("cannot understand the answer of prometheus to {path}: {text}");
        let answer: Value = serde_json::from_str(&text).with_context(read)?;
        let data = answer["data"].pointer(place).with_context(read)?;
        T::deserialize(data).with_context(read)
    }
}
