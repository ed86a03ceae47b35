//! One scrape of /metrics.

use anyhow::{Context as _, bail};
use prometheus_parse::{Sample, Value};

/// One scrape of /metrics.
pub struct Scrape {
    samples: Vec<Sample>,
}

impl Scrape {
    /// Parses the text format.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let lines = text.lines().map(|line| Ok(line.to_owned()));
        let samples = prometheus_parse::Scrape::parse(lines)?.samples;
        Ok(Self { samples })
    }

    fn matching<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| {
            sample.metric == name
                && labels
                    .iter()
                    .all(|(key, value)| sample.labels.get(key) == Some(value))
        })
    }

    /// The sum of all matching counters and gauges.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> anyhow::Result<f64> {
        let mut sum = 0.0;
        let mut found = false;
        for sample in self.matching(name, labels) {
            let (Value::Counter(value) | Value::Gauge(value) | Value::Untyped(value)) =
                sample.value
            else {
                bail!("{name} is not a number");
            };
            sum += value;
            found = true;
        }
        found
            .then_some(sum)
            .with_context(|| format!("no {name} with {labels:?} on /metrics"))
    }

    /// How many values a histogram has.
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> anyhow::Result<f64> {
        self.sum(&format!("{name}_count"), labels)
    }

    /// A histogram's cumulative counts, by bound.
    pub fn buckets(&self, name: &str, labels: &[(&str, &str)]) -> anyhow::Result<Vec<(f64, f64)>> {
        let sample = self.matching(name, labels).next();
        match sample.map(|sample| &sample.value) {
            Some(Value::Histogram(buckets)) => Ok(buckets
                .iter()
                .map(|bucket| (bucket.less_than, bucket.count))
                .collect()),
            _ => bail!("no histogram {name} with {labels:?} on /metrics"),
        }
    }

    /// Whether there is any series about a server.
    pub fn has_server(&self, server: &str) -> bool {
        self.samples
            .iter()
            .any(|sample| sample.labels.get("server") == Some(server))
    }

    /// One label of the first matching series.
    pub fn label(&self, name: &str, labels: &[(&str, &str)], key: &str) -> Option<String> {
        self.matching(name, labels)
            .find_map(|sample| sample.labels.get(key).map(str::to_owned))
    }
}
