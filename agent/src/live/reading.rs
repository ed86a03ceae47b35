//! An agent's metrics, by server.

use std::collections::BTreeMap;

use prometheus_parse::{Sample, Scrape, Value};

/// A histogram's cumulative counts by upper bound.
pub type Cumulative = Vec<(f64, f64)>;

/// A metric, and the labels that its samples must have.
pub type Metric = (&'static str, &'static [(&'static str, &'static str)]);

const EVICTING: &[(&str, &str)] = &[("kind", "evicting")];
const FAILING: &[(&str, &str)] = &[("kind", "evicting"), ("result", "fail")];

pub const COMMANDS: Metric = ("evictscope_commands_processed_total", &[]);
pub const EVICTED_KEYS: Metric = ("evictscope_evicted_keys_total", &[]);
pub const DURATIONS: Metric = ("evictscope_eviction_call_duration_seconds", EVICTING);
pub const CALLS: Metric = ("evictscope_eviction_call_duration_seconds_count", EVICTING);
pub const CALL_SECONDS: Metric = ("evictscope_eviction_call_duration_seconds_sum", EVICTING);
pub const FAILED_CALLS: Metric = ("evictscope_eviction_calls_total", FAILING);
pub const LONGEST_CALL: Metric = ("evictscope_eviction_call_longest_seconds", &[]);
pub const GOALS: Metric = ("evictscope_mem_tofree_bytes", &[]);
/// How long evicting calls were observed.
pub const OBSERVED: Metric = ("evictscope_observed_seconds_total", EVICTING);
pub const USED_MEMORY: Metric = ("evictscope_used_memory_bytes", &[]);
pub const NOT_COUNTED_MEMORY: Metric = ("evictscope_not_counted_memory_bytes", &[]);
pub const MAXMEMORY: Metric = ("evictscope_maxmemory_bytes", &[]);
pub const LIMIT_IGNORED: Metric = ("evictscope_server_role_info", &[("applies", "no")]);
pub const CLIENT_BUFFERS: Metric = ("evictscope_client_buffers_bytes", &[]);
pub const STALLED: Metric = ("evictscope_stall_seconds_total", &[]);
pub const WAITED_SECOND: Metric = ("evictscope_requests_waited_total", &[("over", "1")]);
pub const WAITED_TENTH: Metric = ("evictscope_requests_waited_total", &[("over", "0.1")]);
pub const CLIENTS_WAITING: Metric = ("evictscope_clients_waiting", &[]);
pub const CLIENTS_CONNECTED: Metric = ("evictscope_clients_connected", &[]);
pub const LONGEST_WAIT: Metric = ("evictscope_client_wait_longest_seconds", &[]);
pub const CYCLES: Metric = ("evictscope_expire_cycle_duration_seconds_count", &[]);
pub const CYCLE_SECONDS: Metric = ("evictscope_expire_cycle_duration_seconds_sum", &[]);
/// Keys that expire cycles looked at.
pub const SAMPLED_KEYS: Metric = ("evictscope_expire_cycle_keys_sampled_total", &[]);
pub const TIME_LIMIT_HITS: Metric = ("evictscope_expire_cycle_time_limit_hits_total", &[]);
pub const STALE_RATIO: Metric = ("evictscope_expire_stale_ratio", &[]);

const LIMIT_REACHED: &str = "evictscope_maxmemory_reached_seconds";
pub const LIMIT_EARLIEST: Metric = (LIMIT_REACHED, &[("estimate", "earliest")]);
pub const LIMIT_LIKELY: Metric = (LIMIT_REACHED, &[("estimate", "likely")]);
pub const LIMIT_LATEST: Metric = (LIMIT_REACHED, &[("estimate", "latest")]);
pub const EVICTIONS_WOULD_ADD: &str = "evictscope_evictions_would_add_ratio";

/// The metrics of one server.
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
            reading.is_of_evictscope |= sample.metric == "evictscope_build_info";
            if let Some(server) = sample.labels.get("server") {
                let server = reading.servers.entry(server.to_owned()).or_default();
                server.0.push(sample);
            }
        }
        Ok(reading)
    }
}

impl ServerReading {
    fn matching(&self, (name, labels): Metric) -> impl Iterator<Item = &Sample> {
        self.0.iter().filter(move |sample| {
            let has = |(label, value): &(&str, &str)| sample.labels.get(label) == Some(*value);
            sample.metric == name && labels.iter().all(has)
        })
    }

    /// Returns the sum of a metric's samples; `None` if the agent exports none.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        let values = self.matching(metric).filter_map(number);
        values.reduce(|sum, value| sum + value)
    }

    /// Returns a metric by one of its labels.
    pub fn by(&self, name: &'static str, label: &'static str) -> impl Iterator<Item = (&str, f64)> {
        let samples = self.matching((name, &[]));
        samples.filter_map(move |sample| Some((sample.labels.get(label)?, number(sample)?)))
    }

    /// Returns the values of a label for which a metric is 1.
    pub fn states(&self, name: &'static str, label: &'static str) -> impl Iterator<Item = &str> {
        let set = self.by(name, label).filter(|(_, value)| *value == 1.0);
        set.map(|(state, _)| state)
    }

    /// Returns the phase; `None` if evicting calls are not seen.
    pub fn phase(&self) -> Option<&str> {
        self.states("evictscope_phase", "phase").next()
    }

    /// Returns a histogram; empty if the agent does not export it.
    pub fn histogram(&self, metric: Metric) -> Cumulative {
        let buckets = self.matching(metric).find_map(|sample| match &sample.value {
            Value::Histogram(buckets) => Some(buckets),
            _ => None,
        });
        let buckets = buckets.into_iter().flatten();
        buckets.map(|bucket| (bucket.less_than, bucket.count)).collect()
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

    pub const TEXT: &str = "\
# TYPE evictscope_build_info gauge
evictscope_build_info{version=\"0.1.0\"} 1
# TYPE evictscope_phase gauge
evictscope_phase{server=\"6379\",phase=\"not_saturated\"} 0
evictscope_phase{server=\"6379\",phase=\"saturated\"} 1
# TYPE evictscope_probe_mode gauge
evictscope_probe_mode{server=\"6379\",mode=\"evicting-only\"} 0
evictscope_probe_mode{server=\"6379\",mode=\"sampled\"} 1
# TYPE evictscope_observed_seconds_total counter
evictscope_observed_seconds_total{server=\"6379\",kind=\"evicting\"} 7.5
evictscope_observed_seconds_total{server=\"6379\",kind=\"noop\"} 3
# TYPE evictscope_commands_processed_total counter
evictscope_commands_processed_total{server=\"6379\"} 5000
# TYPE evictscope_eviction_call_duration_seconds histogram
evictscope_eviction_call_duration_seconds_bucket{server=\"6379\",kind=\"evicting\",le=\"0.0005\"} 30
evictscope_eviction_call_duration_seconds_bucket{server=\"6379\",kind=\"evicting\",le=\"+Inf\"} 40
evictscope_eviction_call_duration_seconds_sum{server=\"6379\",kind=\"evicting\"} 0.5
evictscope_eviction_call_duration_seconds_count{server=\"6379\",kind=\"evicting\"} 40
# TYPE evictscope_client_buffers_bytes gauge
evictscope_client_buffers_bytes{server=\"6379\",class=\"normal\"} 1000
evictscope_client_buffers_bytes{server=\"6379\",class=\"replica\"} 24
# TYPE evictscope_used_memory_bytes gauge
evictscope_used_memory_bytes{server=\"6380\"} 1e6
# TYPE evictscope_stall_seconds_total counter
evictscope_stall_seconds_total{server=\"6379\",cause=\"eviction\"} 2.5
evictscope_stall_seconds_total{server=\"6379\",cause=\"expire\"} 9
# TYPE evictscope_requests_waited_total counter
evictscope_requests_waited_total{server=\"6379\",over=\"0.1\"} 70
evictscope_requests_waited_total{server=\"6379\",over=\"1\"} 12
# TYPE evictscope_client_wait_longest_seconds gauge
evictscope_client_wait_longest_seconds{server=\"6379\"} 2.25
# TYPE evictscope_clients_waiting gauge
evictscope_clients_waiting{server=\"6379\"} 7
# TYPE evictscope_clients_connected gauge
evictscope_clients_connected{server=\"6379\"} 1200
# TYPE evictscope_expire_cycle_duration_seconds histogram
evictscope_expire_cycle_duration_seconds_bucket{server=\"6379\",type=\"slow\",le=\"+Inf\"} 20
evictscope_expire_cycle_duration_seconds_sum{server=\"6379\",type=\"slow\"} 0.25
evictscope_expire_cycle_duration_seconds_count{server=\"6379\",type=\"slow\"} 20
evictscope_expire_cycle_duration_seconds_bucket{server=\"6379\",type=\"fast\",le=\"+Inf\"} 50
evictscope_expire_cycle_duration_seconds_sum{server=\"6379\",type=\"fast\"} 0.5
evictscope_expire_cycle_duration_seconds_count{server=\"6379\",type=\"fast\"} 50
# TYPE evictscope_expire_cycle_keys_sampled_total counter
evictscope_expire_cycle_keys_sampled_total{server=\"6379\",type=\"slow\"} 400
evictscope_expire_cycle_keys_sampled_total{server=\"6379\",type=\"fast\"} 1000
# TYPE evictscope_expire_cycle_time_limit_hits_total counter
evictscope_expire_cycle_time_limit_hits_total{server=\"6379\"} 6
# TYPE evictscope_expire_stale_ratio gauge
evictscope_expire_stale_ratio{server=\"6379\"} 0.375
# TYPE evictscope_eviction_call_longest_seconds gauge
evictscope_eviction_call_longest_seconds{server=\"6379\"} 0.487
# TYPE evictscope_eviction_calls_total counter
evictscope_eviction_calls_total{server=\"6379\",kind=\"evicting\",result=\"ok\"} 37
evictscope_eviction_calls_total{server=\"6379\",kind=\"evicting\",result=\"fail\"} 3
# TYPE evictscope_plan_withdrawn gauge
evictscope_plan_withdrawn{server=\"6380\",reason=\"lost_exit\"} 1
evictscope_plan_withdrawn{server=\"6380\",reason=\"expire_keys\"} 1
";

    /// Returns what an agent exports for a server with these values.
    pub fn server(values: &[(Metric, f64)]) -> ServerReading {
        let line = |((name, labels), value): &(Metric, f64)| {
            let labels = labels.iter();
            let labels = labels.map(|(label, value)| format!(",{label}=\"{value}\""));
            let labels: String = labels.collect();
            format!("{name}{{server=\"6379\"{labels}}} {value}\n")
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
        let stalled: Vec<_> = one.by(STALLED.0, "cause").collect();
        assert_eq!(stalled, [("eviction", 2.5), ("expire", 9.0)]);
        assert_eq!((one.get(USED_MEMORY), other.get(USED_MEMORY)), (None, Some(1e6)));
        let withdrawn = |server: &ServerReading| -> Vec<String> {
            let reasons = server.states("evictscope_plan_withdrawn", "reason");
            reasons.map(str::to_owned).collect()
        };
        assert_eq!(withdrawn(other), ["lost_exit", "expire_keys"]);
        assert!(withdrawn(one).is_empty());
        assert!(!Reading::parse("up 1\n")?.is_of_evictscope);
        Ok(())
    }
}
