//! One reading of the agent's `/metrics` and of its API.
//!
//! The parser takes no commas or braces inside label values. The values that the demo asks for
//! (ports, kinds, classes, probes) have none.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use prometheus_parse::{Sample, Scrape, Value};
use serde::{Deserialize, Deserializer};
use ureq::Agent;

use crate::histogram::Histogram;

/// How long one answer of the agent may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Reads from one agent over HTTP.
pub struct Client {
    agent: Agent,
    base: String,
}

impl Client {
    /// For the agent that listens on this loopback port.
    pub fn new(port: u16) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            // Whatever proxy the environment names is not for the loopback interface.
            .proxy(None)
            .build();
        Self {
            agent: config.new_agent(),
            base: format!("http://127.0.0.1:{port}"),
        }
    }

    /// Where the metrics are.
    pub fn metrics_url(&self) -> String {
        format!("{}/metrics", self.base)
    }

    /// Whether the agent says that it is ready.
    pub fn ready(&self) -> bool {
        let answer = self.agent.get(format!("{}/-/ready", self.base)).call();
        answer.is_ok_and(|answer| answer.status() == 200)
    }

    /// The finished bursts of one server, the oldest first.
    pub fn bursts(&self, port: u16, pid: u32) -> Result<Vec<Burst>> {
        let text = self.get("/api/v1/bursts")?;
        let answer: Bursts = serde_json::from_str(&text)
            .context("the agent's bursts are not as docs/API.md describes them")?;
        let names = names(port, pid);
        let own = answer.bursts.into_iter();
        Ok(own.filter(|burst| names.contains(&burst.server)).collect())
    }

    /// Reads what there is about one server.
    pub fn server(&self, port: u16, pid: u32) -> Result<Reading> {
        Reading::parse(&self.get("/metrics")?, port, pid)
    }

    fn get(&self, path: &str) -> Result<String> {
        let url = format!("{}{path}", self.base);
        let mut answer = self
            .agent
            .get(&url)
            .call()
            .with_context(|| format!("cannot read {url}"))?;
        ensure!(
            answer.status() == 200,
            "{url} answers {} instead of 200",
            answer.status()
        );
        answer
            .body_mut()
            .read_to_string()
            .with_context(|| format!("cannot read {url}"))
    }
}

/// How the agent may call a server: by its port, and its process id too where another has the same.
fn names(port: u16, pid: u32) -> [String; 2] {
    [port.to_string(), format!("{port}@{pid}")]
}

/// A finished burst, of what docs/API.md says about it.
#[derive(Clone, Debug, Deserialize)]
pub struct Burst {
    /// What the agent calls the server.
    pub server: String,
    /// Seconds since 1970.
    #[serde(deserialize_with = "unix_seconds")]
    pub start: f64,
    /// Seconds since 1970.
    #[serde(deserialize_with = "unix_seconds")]
    pub end: f64,
    /// Throughput in it by that of the minute before.
    pub throughput_ratio: Option<f64>,
    /// The highest client buffers.
    pub client_buffers_peak_bytes: Option<u64>,
    /// By how much memory fell after it.
    pub reclaimed_bytes: Option<u64>,
    /// `self_amplifying` or `plain`.
    pub kind: String,
    /// Why.
    pub reason: String,
}

fn unix_seconds<'de, D: Deserializer<'de>>(time: D) -> Result<f64, D::Error> {
    let time = Timestamp::deserialize(time)?;
    Ok(time.as_millisecond() as f64 / 1e3)
}

#[derive(Deserialize)]
struct Bursts {
    bursts: Vec<Burst>,
}

/// The series about one server.
pub struct Reading {
    samples: Vec<Sample>,
}

impl Reading {
    /// Takes from `text` the series about the server on this port; `pid` tells it from another
    /// one of the same name.
    pub fn parse(text: &str, port: u16, pid: u32) -> Result<Self> {
        let names = names(port, pid);
        let scrape = Scrape::parse(text.lines().map(|line| Ok(line.to_owned())))
            .context("the agent's metrics are not in the text format")?;
        let samples = scrape
            .samples
            .into_iter()
            .filter(|sample| {
                let server = sample.labels.get("server");
                server.is_some_and(|server| names.iter().any(|name| name == server))
            })
            .collect();
        Ok(Self { samples })
    }

    /// Whether there is anything about the server.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// The sum of the counters or gauges of this name that have these labels. None if there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.having(name, labels)
            .filter_map(number)
            .reduce(|sum, value| sum + value)
    }

    /// The counters or gauges of this name, by the value of one label, other than zero.
    pub fn by_label(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let mut values = BTreeMap::new();
        for sample in self.having(name, &[]) {
            if let (Some(key), Some(value)) = (sample.labels.get(label), number(sample))
                && value != 0.0
            {
                *values.entry(key.to_owned()).or_insert(0.0) += value;
            }
        }
        values
    }

    /// The histogram of this name and these labels, empty if there is none.
    pub fn histogram(&self, name: &str, labels: &[(&str, &str)]) -> Histogram {
        let found = self
            .having(name, labels)
            .find_map(|sample| match &sample.value {
                Value::Histogram(buckets) => Some(Histogram::new(
                    buckets
                        .iter()
                        .map(|bucket| (bucket.less_than, bucket.count)),
                )),
                _ => None,
            });
        found.unwrap_or_default()
    }

    fn having<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&str, &str)],
    ) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| {
            sample.metric == name
                && labels
                    .iter()
                    .all(|(label, value)| sample.labels.get(label) == Some(*value))
        })
    }
}

fn number(sample: &Sample) -> Option<f64> {
    match sample.value {
        Value::Counter(value) | Value::Gauge(value) | Value::Untyped(value) => Some(value),
        Value::Histogram(_) | Value::Summary(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# HELP evictscope_eviction_calls_total Eviction calls
# TYPE evictscope_eviction_calls_total counter
evictscope_eviction_calls_total{kind=\"evicting\",result=\"ok\",server=\"7001\"} 90
evictscope_eviction_calls_total{kind=\"evicting\",result=\"running\",server=\"7001\"} 10
evictscope_eviction_calls_total{kind=\"noop\",result=\"ok\",server=\"7001\"} 5
evictscope_eviction_calls_total{kind=\"evicting\",result=\"ok\",server=\"7002\"} 1000
# HELP evictscope_mem_tofree_bytes Goal of each evicting call
# TYPE evictscope_mem_tofree_bytes histogram
evictscope_mem_tofree_bytes_bucket{server=\"7001\",le=\"64\"} 50
evictscope_mem_tofree_bytes_bucket{server=\"7001\",le=\"128\"} 100
evictscope_mem_tofree_bytes_bucket{server=\"7001\",le=\"+Inf\"} 100
evictscope_mem_tofree_bytes_sum{server=\"7001\"} 6400
evictscope_mem_tofree_bytes_count{server=\"7001\"} 100
# TYPE evictscope_probe_hits_total counter
evictscope_probe_hits_total{probe=\"eviction_goal\",server=\"7001\"} 100
evictscope_probe_hits_total{probe=\"eviction_enter\",server=\"7001\"} 0
# TYPE evictscope_used_memory_bytes gauge
evictscope_used_memory_bytes{server=\"7001\"} 6.7108864e+07
";

    #[test]
    fn only_the_asked_server_counts() -> Result<()> {
        let reading = Reading::parse(PAGE, 7001, 42)?;
        let calls = "evictscope_eviction_calls_total";
        assert_eq!(reading.sum(calls, &[("kind", "evicting")]), Some(100.0));
        assert_eq!(reading.sum(calls, &[]), Some(105.0));
        assert_eq!(
            reading.sum("evictscope_used_memory_bytes", &[]),
            Some(67_108_864.0)
        );
        assert_eq!(reading.sum("evictscope_overhead_ratio", &[]), None);
        assert!(Reading::parse(PAGE, 7003, 42)?.is_empty());
        Ok(())
    }

    #[test]
    fn a_name_with_the_pid_is_the_servers_too() -> Result<()> {
        let page = PAGE.replace("\"7002\"", "\"7001@43\"");
        let reading = Reading::parse(&page, 7001, 43)?;
        assert_eq!(
            reading.sum("evictscope_eviction_calls_total", &[("kind", "evicting")]),
            Some(1100.0)
        );
        Ok(())
    }

    #[test]
    fn histograms_are_read_with_their_bounds() -> Result<()> {
        let goal = Reading::parse(PAGE, 7001, 42)?.histogram("evictscope_mem_tofree_bytes", &[]);
        assert_eq!(goal.count(), 100.0);
        assert_eq!(goal.quantile(0.5), Some(64.0));
        assert_eq!(goal.quantile(0.75), Some(96.0));
        Ok(())
    }

    #[test]
    fn series_are_told_apart_by_a_label_and_zeros_left_out() -> Result<()> {
        let hits = Reading::parse(PAGE, 7001, 42)?.by_label("evictscope_probe_hits_total", "probe");
        assert_eq!(hits, BTreeMap::from([("eviction_goal".to_owned(), 100.0)]));
        Ok(())
    }
}
