//! Every metric family about servers, in the order in which they are exported.
//!
//! `docs/METRICS.md` describes them to users, and a test keeps the two together.

use evictscope_ebpf::{Member, Variable};
use prometheus::proto::{Gauge, Metric, MetricFamily, MetricType};

use super::{ExportedServer, proto, series};

/// One metric family.
struct Family {
    name: &'static str,
    kind: MetricType,
    help: &'static str,
    /// The series of one server.
    series: fn(&ExportedServer) -> Vec<Metric>,
}

const FAMILIES: [Family; 24] = [
    Family {
        name: "evictscope_eviction_call_duration_seconds",
        kind: MetricType::HISTOGRAM,
        help: "Wall time of eviction calls: performEvictions(), freeMemoryIfNeeded() before Redis 6.2. \
               An evicting call is timed from when it has computed its goal, a no-op call from its entry.",
        series: series::call_durations,
    },
    Family {
        name: "evictscope_eviction_calls_total",
        kind: MetricType::COUNTER,
        help: "Eviction calls that have ended. Those of kind noop found memory within maxmemory; they \
               are only counted while the probe mode is every-call.",
        series: series::calls,
    },
    Family {
        name: "evictscope_mem_tofree_bytes",
        kind: MetricType::HISTOGRAM,
        help: "Eviction goal of each evicting call: mem_used - maxmemory.",
        series: |server| series::variable(server, Variable::MemTofree),
    },
    Family {
        name: "evictscope_mem_reported_bytes",
        kind: MetricType::HISTOGRAM,
        help: "Memory tracked by the allocator, at each evicting call.",
        series: |server| series::variable(server, Variable::MemReported),
    },
    Family {
        name: "evictscope_mem_used_bytes",
        kind: MetricType::HISTOGRAM,
        help: "Memory that counts against maxmemory (mem_reported - overhead), at each evicting call.",
        series: |server| series::variable(server, Variable::MemUsed),
    },
    Family {
        name: "evictscope_mem_overhead_bytes",
        kind: MetricType::HISTOGRAM,
        help: "Memory that does not count against maxmemory (replication output buffers and AOF \
               buffer), at each evicting call.",
        series: |server| series::variable(server, Variable::Overhead),
    },
    Family {
        name: "evictscope_client_buffers_sample_bytes",
        kind: MetricType::HISTOGRAM,
        help: "Total client buffers, at each sample of the main thread, 10 a second at most.",
        series: series::client_buffer_samples,
    },
    Family {
        name: "evictscope_client_buffers_bytes",
        kind: MetricType::GAUGE,
        help: "Client buffers (input and output buffers and client structs) by class of client, at \
               the last sample. The server brings its count up to date about once a second.",
        series: series::client_buffers,
    },
    Family {
        name: "evictscope_client_buffers_peak_bytes",
        kind: MetricType::GAUGE,
        help: "Highest total of client buffers since the process was found.",
        series: series::client_buffers_peak,
    },
    Family {
        name: "evictscope_used_memory_bytes",
        kind: MetricType::GAUGE,
        help: "Memory tracked by the allocator, at the last sample: used_memory of INFO.",
        series: series::used_memory,
    },
    Family {
        name: "evictscope_maxmemory_bytes",
        kind: MetricType::GAUGE,
        help: "Configured memory limit, at the last sample. 0: no limit.",
        series: series::maxmemory,
    },
    Family {
        name: "evictscope_commands_processed_total",
        kind: MetricType::COUNTER,
        help: "The server's own counter: total_commands_processed of INFO. CONFIG RESETSTAT resets it.",
        series: |server| series::mirrored(server, Member::CommandsProcessed),
    },
    Family {
        name: "evictscope_evicted_keys_total",
        kind: MetricType::COUNTER,
        help: "The server's own counter: evicted_keys of INFO. CONFIG RESETSTAT resets it.",
        series: |server| series::mirrored(server, Member::EvictedKeys),
    },
    Family {
        name: "evictscope_expired_keys_total",
        kind: MetricType::COUNTER,
        help: "The server's own counter: expired_keys of INFO. CONFIG RESETSTAT resets it.",
        series: |server| series::mirrored(server, Member::ExpiredKeys),
    },
    Family {
        name: "evictscope_main_thread_cpu_seconds_total",
        kind: MetricType::COUNTER,
        help: "CPU time of the main thread since the process was found, inside evicting calls and \
               elsewhere; sampled 999 times per second of it.",
        series: series::main_thread_cpu,
    },
    Family {
        name: "evictscope_server_info",
        kind: MetricType::GAUGE,
        help: "1 for each server that is watched.",
        series: series::server_info,
    },
    Family {
        name: "evictscope_probe_plan_info",
        kind: MetricType::GAUGE,
        help: "1 for each variable: how the way to compute it was found. none: not found, and so not \
               exported.",
        series: series::plan_info,
    },
    Family {
        name: "evictscope_probe_mode",
        kind: MetricType::GAUGE,
        help: "1 for the probe mode that the server is in, 0 for the others.",
        series: series::mode,
    },
    Family {
        name: "evictscope_probe_hits_total",
        kind: MetricType::COUNTER,
        help: "How often each probe was hit.",
        series: series::hits,
    },
    Family {
        name: "evictscope_read_faults_total",
        kind: MetricType::COUNTER,
        help: "What could not be read from the server's memory (recipe, member, allocator), and \
               evicting calls whose end was not seen (lost_exit).",
        series: series::faults,
    },
    Family {
        name: "evictscope_plan_refusals_total",
        kind: MetricType::COUNTER,
        help: "Items that could not be found in the server's executable, and so are not exported; \
               `evictscope inspect PID` says why.",
        series: series::refusals,
    },
    Family {
        name: "evictscope_goal_checks_total",
        kind: MetricType::COUNTER,
        help: "Invariants tested at evicting calls: mem_reported is the allocator's counter \
               (allocator), the goal variables add up (arithmetic), maxmemory is the configured one \
               (maxmemory).",
        series: series::checks,
    },
    Family {
        name: "evictscope_goal_check_failures_total",
        kind: MetricType::COUNTER,
        help: "Tests of evictscope_goal_checks_total that failed. Threads that free memory in the \
               background make a few of check=allocator fail; any other says that the numbers of \
               this server are not to be trusted.",
        series: series::check_failures,
    },
    // Last, as its series do not belong to a server: see `families`.
    Family {
        name: "evictscope_build_info",
        kind: MetricType::GAUGE,
        help: "1, with the version of this agent.",
        series: |_| Vec::new(),
    },
];

/// The families about `servers`, and the agent's own `evictscope_build_info`. A family without any
/// series is left out.
pub fn families(servers: &[ExportedServer]) -> Vec<MetricFamily> {
    FAMILIES
        .iter()
        .filter_map(|family| {
            let mut metrics: Vec<Metric> = servers.iter().flat_map(family.series).collect();
            if family.name == "evictscope_build_info" {
                metrics.push(build_info());
            }
            if metrics.is_empty() {
                return None;
            }
            let mut exported = MetricFamily::default();
            exported.set_name(family.name.to_owned());
            exported.set_help(family.help.to_owned());
            exported.set_field_type(family.kind);
            exported.set_metric(metrics);
            Some(exported)
        })
        .collect()
}

fn build_info() -> Metric {
    let version = proto::label("version", env!("CARGO_PKG_VERSION"));
    let mut one = Gauge::default();
    one.set_value(1.0);
    let mut metric = Metric::from_label(vec![version]);
    metric.set_gauge(one);
    metric
}
