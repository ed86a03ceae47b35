//! One reading of an exporter's `/metrics`.
//!
//! The parser takes no commas or braces inside label values. The labels that are asked for here (ports,
//! kinds, classes, probes) have none.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use prometheus_parse::{Labels, Sample, Value};

pub struct Scrape {
    samples: Vec<Sample>,
}

impl Scrape {
    pub fn parse(text: &str) -> Result<Self> {
        let scrape = prometheus_parse::Scrape::parse(text.lines().map(|line| Ok(line.to_owned())));
        Ok(Self { samples: scrape.context("the metrics are not in the text format")?.samples })
    }

    /// Returns the series about the server with this process id. Fails if the agent does not watch it.
    pub fn of_server(self, pid: u32) -> Result<Self> {
        let info = self.server_info(pid).with_context(|| format!("process {pid} is not watched"))?;
        let name = info.get("server").context("it has no name")?.to_owned();
        let is_about = |sample: &Sample| sample.labels.get("server") == Some(&name);
        Ok(Self { samples: self.samples.into_iter().filter(is_about).collect() })
    }

    /// Returns the labels with which the agent describes the server with this process id, if it watches it.
    pub fn server_info(&self, pid: u32) -> Option<&Labels> {
        let pid = pid.to_string();
        let infos = self.samples.iter().filter(|sample| sample.metric == "evictscope_server_info");
        infos.map(|sample| &sample.labels).find(|labels| labels.get("pid") == Some(&pid))
    }

    pub fn has_server(&self, server: &str) -> bool {
        self.servers().contains(server)
    }

    /// Returns the names of all servers that there are series about, but for how they ended and what records say.
    pub fn servers(&self) -> BTreeSet<&str> {
        let last = ["evictscope_server_ended_timestamp_seconds", "evictscope_record_cause_timestamp_seconds"];
        let live = self.samples.iter().filter(|sample| !last.contains(&&*sample.metric));
        live.filter_map(|sample| sample.labels.get("server")).collect()
    }

    /// Returns the sum of the counters or gauges of this name that have these labels. Fails if there is no such series.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        let values = self.matching(name, labels).filter_map(number);
        let absent = || format!("no {name} with {labels:?} among {} series of /metrics", self.samples.len());
        values.reduce(|sum, value| sum + value).with_context(absent)
    }

    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        self.sum(&format!("{name}_count"), labels)
    }

    /// Returns the counters or gauges of this name that are not 0, by the value of one label.
    pub fn by_label(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let mut values = BTreeMap::new();
        for sample in self.matching(name, &[]) {
            if let (Some(key), Some(value)) = (sample.labels.get(label), number(sample))
                && value != 0.0
            {
                *values.entry(key.to_owned()).or_insert(0.0) += value;
            }
        }
        values
    }

    fn matching<'a>(&'a self, name: &'a str, labels: &'a [(&str, &str)]) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| {
            sample.metric == name && labels.iter().all(|(label, value)| sample.labels.get(label) == Some(*value))
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
# TYPE evictscope_eviction_calls_total counter
evictscope_eviction_calls_total{kind=\"evicting\",result=\"ok\",server=\"7001\"} 90
evictscope_eviction_calls_total{kind=\"evicting\",result=\"running\",server=\"7001\"} 10
evictscope_eviction_calls_total{kind=\"noop\",result=\"ok\",server=\"7001\"} 5
evictscope_eviction_calls_total{kind=\"evicting\",result=\"ok\",server=\"7002\"} 1000
# TYPE evictscope_mem_tofree_bytes histogram
evictscope_mem_tofree_bytes_bucket{server=\"7001\",le=\"+Inf\"} 100
evictscope_mem_tofree_bytes_sum{server=\"7001\"} 6400
evictscope_mem_tofree_bytes_count{server=\"7001\"} 100
# TYPE evictscope_used_memory_bytes gauge
evictscope_used_memory_bytes{server=\"7001\"} 6.7108864e+07
# TYPE evictscope_server_info gauge
evictscope_server_info{pid=\"42\",server=\"7001\"} 1
evictscope_server_info{pid=\"43\",server=\"7002\"} 1
";

    #[test]
    fn only_the_asked_server_counts() -> Result<()> {
        let of_server = |pid| Scrape::parse(PAGE)?.of_server(pid);
        let (reading, calls) = (of_server(42)?, "evictscope_eviction_calls_total");
        assert_eq!(reading.sum(calls, &[("kind", "evicting")])?, 100.0);
        assert_eq!(reading.sum(calls, &[])?, 105.0);
        assert_eq!(reading.sum("evictscope_used_memory_bytes", &[])?, 67_108_864.0);
        assert!(reading.sum("evictscope_overhead_ratio", &[]).is_err());
        assert_eq!(reading.count("evictscope_mem_tofree_bytes", &[])?, 100.0);
        assert!(of_server(44).is_err());
        assert_eq!(of_server(43)?.sum(calls, &[])?, 1000.0);
        Ok(())
    }
}
