//! Reads an agent's metrics, by server.

use std::collections::BTreeMap;

use prometheus_parse::{Sample, Scrape, Value};

/// A histogram's cumulative counts by upper bound.
pub type Cumulative = Vec<(f64, f64)>;

/// The shown values of one server; `None` if the agent does not export one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerReading {
    pub phase: Option<String>,
    pub probe_mode: Option<String>,
    /// Which checks failed, where probes were switched off.
    pub withdrawn: Vec<String>,
    pub commands: Option<f64>,
    pub evicting_calls: Option<f64>,
    pub evicting_seconds: Option<f64>,
    /// For how long evicting calls were observed, seconds.
    pub observed_seconds: Option<f64>,
    pub used_memory: Option<f64>,
    /// Replication and AOF buffers, which Redis does not count against its limit.
    pub not_counted_memory: Option<f64>,
    pub maxmemory: Option<f64>,
    pub client_buffers: Option<f64>,
    pub evicted_keys: Option<f64>,
    /// Time in which clients were stalled, seconds.
    pub stalled_seconds: Option<f64>,
    /// The same by cause.
    pub stalled_by: BTreeMap<String, f64>,
    /// Requests that waited for longer than a second.
    pub waited_second: Option<f64>,
    /// Requests that waited for longer than a tenth of a second.
    pub waited_tenth: Option<f64>,
    pub clients_waiting: Option<f64>,
    pub clients_connected: Option<f64>,
    /// The longest wait of the last minutes, seconds.
    pub longest_wait: Option<f64>,
    /// The longest evicting call of the last minutes, seconds.
    pub longest_call: Option<f64>,
    /// Evicting calls that did not reach their goal although there was nothing left to try.
    pub failed_calls: Option<f64>,
    /// Duration of evicting calls, seconds.
    pub durations: Cumulative,
    /// `mem_tofree` of evicting calls, bytes.
    pub goals: Cumulative,
    pub expire_cycles: Option<f64>,
    pub expiring_seconds: Option<f64>,
    /// Keys that expire cycles looked at.
    pub sampled_keys: Option<f64>,
    /// Expire cycles that ended at their time limit.
    pub time_limit_hits: Option<f64>,
    /// Share of the keys with a time to live that have expired and are still held.
    pub stale_ratio: Option<f64>,
}

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
    ///
    /// # Errors
    ///
    /// Fails where it cannot be parsed.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let lines = text.lines().map(|line| Ok(line.to_owned()));
        let mut reading = Self::default();
        for sample in Scrape::parse(lines)?.samples {
            reading.is_of_evictscope |= sample.metric == "evictscope_build_info";
            if let Some(server) = sample.labels.get("server") {
                let server = reading.servers.entry(server.to_owned()).or_default();
                server.take_in(&sample);
            }
        }
        Ok(reading)
    }
}

impl ServerReading {
    fn take_in(&mut self, sample: &Sample) {
        let Some(name) = sample.metric.strip_prefix("evictscope_") else {
            return;
        };
        let (value, buckets) = match &sample.value {
            Value::Counter(value) | Value::Gauge(value) | Value::Untyped(value) => {
                (*value, &[][..])
            }
            Value::Histogram(buckets) => (0.0, &buckets[..]),
            Value::Summary(_) => return,
        };
        let buckets = buckets
            .iter()
            .map(|bucket| (bucket.less_than, bucket.count));
        let is_evicting = sample.labels.get("kind") == Some("evicting");
        match name {
            "phase" if value == 1.0 => self.phase = sample.labels.get("phase").map(str::to_owned),
            "probe_mode" if value == 1.0 => {
                self.probe_mode = sample.labels.get("mode").map(str::to_owned);
            }
            "plan_withdrawn" if value == 1.0 => {
                let reason = sample.labels.get("reason").map(str::to_owned);
                self.withdrawn.extend(reason);
            }
            "observed_seconds_total" if is_evicting => self.observed_seconds = Some(value),
            "commands_processed_total" => self.commands = Some(value),
            "eviction_call_duration_seconds" if is_evicting => self.durations = buckets.collect(),
            "eviction_call_duration_seconds_count" if is_evicting => {
                self.evicting_calls = Some(value);
            }
            "eviction_call_duration_seconds_sum" if is_evicting => {
                self.evicting_seconds = Some(value);
            }
            "mem_tofree_bytes" => self.goals = buckets.collect(),
            "evicted_keys_total" => self.evicted_keys = Some(value),
            "stall_seconds_total" => {
                *self.stalled_seconds.get_or_insert(0.0) += value;
                let cause = sample.labels.get("cause").unwrap_or_default();
                self.stalled_by.insert(cause.to_owned(), value);
            }
            "requests_waited_total" => match sample.labels.get("over") {
                Some("1") => self.waited_second = Some(value),
                Some("0.1") => self.waited_tenth = Some(value),
                _ => {}
            },
            "clients_waiting" => self.clients_waiting = Some(value),
            "clients_connected" => self.clients_connected = Some(value),
            "client_wait_longest_seconds" => self.longest_wait = Some(value),
            "eviction_call_longest_seconds" => self.longest_call = Some(value),
            "eviction_calls_total"
                if is_evicting && sample.labels.get("result") == Some("fail") =>
            {
                self.failed_calls = Some(value);
            }
            "used_memory_bytes" => self.used_memory = Some(value),
            "not_counted_memory_bytes" => self.not_counted_memory = Some(value),
            "maxmemory_bytes" => self.maxmemory = Some(value),
            "client_buffers_bytes" => *self.client_buffers.get_or_insert(0.0) += value,
            // By type.
            "expire_cycle_duration_seconds_count" => {
                *self.expire_cycles.get_or_insert(0.0) += value;
            }
            "expire_cycle_duration_seconds_sum" => {
                *self.expiring_seconds.get_or_insert(0.0) += value;
            }
            "expire_cycle_keys_sampled_total" => *self.sampled_keys.get_or_insert(0.0) += value,
            "expire_cycle_time_limit_hits_total" => self.time_limit_hits = Some(value),
            "expire_stale_ratio" => self.stale_ratio = Some(value),
            _ => {}
        }
    }
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeMap;

    use super::Reading;

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

    #[test]
    fn each_server_has_what_is_exported_of_it() -> anyhow::Result<()> {
        let reading = Reading::parse(TEXT)?;
        assert!(reading.is_of_evictscope);
        let one = reading.servers.get("6379").cloned().unwrap_or_default();
        assert_eq!(one.phase.as_deref(), Some("saturated"));
        assert_eq!(one.probe_mode.as_deref(), Some("sampled"));
        assert_eq!(one.observed_seconds, Some(7.5));
        assert_eq!(one.commands, Some(5_000.0));
        assert_eq!(one.client_buffers, Some(1_024.0));
        assert_eq!(one.evicting_calls, Some(40.0));
        assert_eq!(one.evicting_seconds, Some(0.5));
        assert_eq!(one.durations, [(0.0005, 30.0), (f64::INFINITY, 40.0)]);
        assert_eq!(one.used_memory, None);
        assert_eq!(one.stalled_seconds, Some(11.5));
        let by = [("eviction", 2.5), ("expire", 9.0)]
            .map(|(cause, seconds)| (cause.to_owned(), seconds));
        assert_eq!(one.stalled_by, BTreeMap::from(by));
        assert_eq!(
            (one.waited_second, one.waited_tenth),
            (Some(12.0), Some(70.0))
        );
        assert_eq!(
            (one.clients_waiting, one.clients_connected),
            (Some(7.0), Some(1_200.0))
        );
        assert_eq!(one.longest_wait, Some(2.25));
        assert_eq!(one.longest_call, Some(0.487));
        assert_eq!(one.failed_calls, Some(3.0));
        assert_eq!(one.expire_cycles, Some(70.0));
        assert_eq!(one.expiring_seconds, Some(0.75));
        assert_eq!(one.sampled_keys, Some(1_400.0));
        assert_eq!(one.time_limit_hits, Some(6.0));
        assert_eq!(one.stale_ratio, Some(0.375));
        assert!(one.withdrawn.is_empty());
        let other = reading.servers.get("6380").cloned().unwrap_or_default();
        assert_eq!((other.used_memory, other.phase), (Some(1e6), None));
        assert_eq!(other.withdrawn, ["lost_exit", "expire_keys"]);
        assert!(!Reading::parse("up 1\n")?.is_of_evictscope);
        Ok(())
    }
}
