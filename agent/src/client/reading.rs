//! An agent's metrics, by server.

use std::collections::BTreeMap;
use std::fmt;

use evictscope_model::{Member, MetricEntry, catalogue};
use prometheus_parse::{Sample, Scrape, Value};

/// A histogram's cumulative counts by upper bound.
pub type Cumulative = Vec<(f64, f64)>;

/// Which series of a metric are meant: those with these labels, and of a histogram its buckets, its sum or its count.
#[derive(Clone, Copy, Debug)]
pub struct Selector {
    metric: &'static str,
    /// What the text format appends to the name.
    suffix: &'static str,
    labels: &'static [(&'static str, &'static str)],
}

const fn all_of(metric: &MetricEntry) -> Selector {
    Selector { metric: metric.name, suffix: "", labels: &[] }
}

const fn member(member: Member) -> Selector {
    match member.line().metric {
        Some(metric) => Selector { metric: metric.name, suffix: "", labels: &[] },
        None => panic!("no metric exports it"),
    }
}

impl Selector {
    /// Narrows it to the series with these labels.
    pub const fn with(self, labels: &'static [(&'static str, &'static str)]) -> Self {
        Self { labels, ..self }
    }

    const fn sum(self) -> Self {
        Self { suffix: "_sum", ..self }
    }

    const fn count(self) -> Self {
        Self { suffix: "_count", ..self }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.metric, self.suffix)
    }
}

const EVICTING: &[(&str, &str)] = &[("kind", "evicting")];

pub const COMMANDS: Selector = member(Member::StatNumcommands);
pub const EVICTED_KEYS: Selector = member(Member::StatEvictedkeys);
pub const DURATIONS: Selector = all_of(&catalogue::EVICTION_CALL_DURATION).with(EVICTING);
pub const CALLS: Selector = DURATIONS.count();
pub const CALL_SECONDS: Selector = DURATIONS.sum();
pub const FAILED_CALLS: Selector = all_of(&catalogue::EVICTION_CALLS).with(&[("kind", "evicting"), ("result", "fail")]);
pub const LONGEST_CALL: Selector = all_of(&catalogue::EVICTION_CALL_LONGEST);
pub const GOALS: Selector = all_of(&catalogue::MEM_TOFREE);
pub const OBSERVED: Selector = all_of(&catalogue::OBSERVED).with(EVICTING);
pub const USED_MEMORY: Selector = member(Member::UsedMemory);
pub const NOT_COUNTED_MEMORY: Selector = all_of(&catalogue::NOT_COUNTED_MEMORY);
pub const MAXMEMORY: Selector = member(Member::Maxmemory);
pub const LIMIT_IGNORED: Selector = all_of(&catalogue::SERVER_ROLE).with(&[("applies", "no")]);
pub const CLIENT_BUFFERS: Selector = all_of(&catalogue::CLIENT_BUFFERS);
pub const STALLED: Selector = all_of(&catalogue::STALLS);
pub const WAITED_SECOND: Selector = all_of(&catalogue::REQUESTS_WAITED).with(&[("over", "1")]);
pub const WAITED_TENTH: Selector = all_of(&catalogue::REQUESTS_WAITED).with(&[("over", "0.1")]);
pub const CLIENTS_WAITING: Selector = all_of(&catalogue::CLIENTS_WAITING);
pub const CLIENTS_CONNECTED: Selector = all_of(&catalogue::CLIENTS_CONNECTED);
pub const LONGEST_WAIT: Selector = all_of(&catalogue::CLIENT_WAIT_LONGEST);
pub const CYCLES: Selector = all_of(&catalogue::EXPIRE_CYCLE_DURATION).count();
pub const CYCLE_SECONDS: Selector = all_of(&catalogue::EXPIRE_CYCLE_DURATION).sum();
/// Keys that expire cycles looked at.
pub const SAMPLED_KEYS: Selector = all_of(&catalogue::EXPIRE_CYCLE_KEYS_SAMPLED);
pub const TIME_LIMIT_HITS: Selector = member(Member::StatExpiredTimeCapReachedCount);
pub const STALE_RATIO: Selector = all_of(&catalogue::EXPIRE_STALE);
pub const LIMIT_REACHED: Selector = all_of(&catalogue::MAXMEMORY_REACHED);
pub const EVICTIONS_WOULD_ADD: Selector = all_of(&catalogue::EVICTIONS_WOULD_ADD);
pub const PHASE: Selector = all_of(&catalogue::PHASE);
pub const PROBE_MODE: Selector = all_of(&catalogue::PROBE_MODE);
pub const WITHDRAWN: Selector = all_of(&catalogue::PLAN_WITHDRAWN);

#[derive(Clone, Debug, Default)]
pub struct ServerReading(Vec<Sample>);

/// One reading of all servers of an agent.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// By the label `server`.
    pub servers: BTreeMap<String, ServerReading>,
    /// Whether the metrics are those of an evictscope.
    pub is_of_evictscope: bool,
}

impl Reading {
    /// Parses Prometheus's text format.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let lines = text.lines().map(|line| Ok(line.to_owned()));
        let mut reading = Self::default();
        for sample in Scrape::parse(lines)?.samples {
            reading.is_of_evictscope |= sample.metric == catalogue::BUILD_INFO.name;
            if let Some(server) = sample.labels.get("server") {
                reading.servers.entry(server.to_owned()).or_default().0.push(sample);
            }
        }
        Ok(reading)
    }
}

impl ServerReading {
    fn matching(&self, selector: Selector) -> impl Iterator<Item = &Sample> {
        let Selector { metric, suffix, labels } = selector;
        self.0.iter().filter(move |sample| {
            let has = |(label, value): &(&str, &str)| sample.labels.get(label) == Some(*value);
            sample.metric.strip_suffix(suffix) == Some(metric) && labels.iter().all(has)
        })
    }

    /// Returns the sum of a metric's samples; `None` if the agent exports none.
    pub fn get(&self, metric: Selector) -> Option<f64> {
        self.matching(metric).filter_map(number).reduce(|sum, value| sum + value)
    }

    /// Returns a metric by one of its labels.
    pub fn by(&self, selector: Selector, label: &'static str) -> impl Iterator<Item = (&str, f64)> {
        self.matching(selector).filter_map(move |sample| Some((sample.labels.get(label)?, number(sample)?)))
    }

    /// Returns the values of a label for which a metric is 1.
    pub fn states(&self, selector: Selector, label: &'static str) -> impl Iterator<Item = &str> {
        self.by(selector, label).filter(|(_, value)| *value == 1.0).map(|(state, _)| state)
    }

    /// Returns the phase; `None` if evicting calls are not seen.
    pub fn phase(&self) -> Option<&str> {
        self.states(PHASE, "phase").next()
    }

    /// Returns a histogram; empty if the agent does not export it.
    pub fn histogram(&self, metric: Selector) -> Cumulative {
        let buckets = self.matching(metric).find_map(|sample| match &sample.value {
            Value::Histogram(buckets) => Some(buckets),
            _ => None,
        });
        buckets.into_iter().flatten().map(|bucket| (bucket.less_than, bucket.count)).collect()
    }
}

fn number(sample: &Sample) -> Option<f64> {
    match sample.value {
        Value::Counter(value) | Value::Gauge(value) | Value::Untyped(value) => Some(value),
        Value::Histogram(_) | Value::Summary(_) => None,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const TEXT: &str = include_str!("testdata/metrics.txt");

    /// Returns what an agent exports for a server with these values.
    pub fn server(values: &[(Selector, f64)]) -> ServerReading {
        let line = |(metric, value): &(Selector, f64)| {
            let labels = metric.labels.iter().map(|(label, value)| format!(",{label}=\"{value}\""));
            format!("{metric}{{server=\"6379\"{}}} {value}\n", labels.collect::<String>())
        };
        let text: String = values.iter().map(line).collect();
        let mut reading = Reading::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        reading.servers.remove("6379").unwrap_or_default()
    }

    #[test]
    fn each_server_has_what_is_exported_of_it() -> anyhow::Result<()> {
        let reading = Reading::parse(TEXT)?;
        assert!(reading.is_of_evictscope);
        let (one, other) = (&reading.servers["6379"], &reading.servers["6380"]);
        for (metric, value) in [
            (COMMANDS, 5_000.0),
            (CALLS, 40.0),
            (CALL_SECONDS, 0.5),
            (FAILED_CALLS, 3.0),
            (LONGEST_CALL, 0.487),
            (OBSERVED, 7.5),
            (CLIENT_BUFFERS, 1_024.0),
            (STALLED, 11.5),
            (WAITED_SECOND, 12.0),
            (WAITED_TENTH, 70.0),
            (CLIENTS_WAITING, 7.0),
            (CLIENTS_CONNECTED, 1_200.0),
            (LONGEST_WAIT, 2.25),
            (CYCLES, 70.0),
            (CYCLE_SECONDS, 0.75),
            (SAMPLED_KEYS, 1_400.0),
            (TIME_LIMIT_HITS, 6.0),
            (STALE_RATIO, 0.375),
        ] {
            assert_eq!(one.get(metric), Some(value), "{metric:?}");
        }
        assert_eq!((one.phase(), other.phase()), (Some("saturated"), None));
        let durations = [(0.0005, 30.0), (f64::INFINITY, 40.0)];
        assert_eq!(one.histogram(DURATIONS), durations);
        let stalled: Vec<_> = one.by(STALLED, "cause").collect();
        assert_eq!(stalled, [("eviction", 2.5), ("expire", 9.0)]);
        assert_eq!((one.get(USED_MEMORY), other.get(USED_MEMORY)), (None, Some(1e6)));
        let withdrawn =
            |server: &ServerReading| -> Vec<String> { server.states(WITHDRAWN, "reason").map(str::to_owned).collect() };
        assert_eq!(withdrawn(other), ["lost_exit", "expire_keys"]);
        assert!(withdrawn(one).is_empty());
        assert!(!Reading::parse("up 1\n")?.is_of_evictscope);
        Ok(())
    }
}
