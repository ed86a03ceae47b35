//! Every metric family of the agent, in the order in which they are exported.
//!
//! `docs/METRICS.md` describes them to users, and `documentation.rs` tests that it does.

use evictscope_abi::{Member, Variable};
use prometheus::proto::{Gauge, Metric, MetricFamily, MetricType};

use super::proto::{Series, Unit, label, single};
use super::series::{self, number};
use super::server::ExportedServer;

/// One metric family. Its type follows from its name and its series.
pub(super) struct Family {
    pub(super) name: &'static str,
    help: &'static str,
    /// Returns the series of one server.
    series: fn(&ExportedServer) -> Vec<Series<'_>>,
}

pub(super) const FAMILIES: [Family; 36] = [
    Family {
        name: "evictscope_eviction_call_duration_seconds",
        help: "Wall time of eviction calls: performEvictions(), freeMemoryIfNeeded() before Redis 6.2. \
               An evicting call is timed from when it has computed its goal, a no-op call from its entry.",
        series: series::call_durations,
    },
    Family {
        name: "evictscope_eviction_calls_total",
        help: "Eviction calls that have ended. Those of kind noop found memory within maxmemory; they \
               are only counted, and only have a series, while the probe mode is every-call.",
        series: series::calls,
    },
    Family {
        name: "evictscope_mem_tofree_bytes",
        help: "Eviction goal of each evicting call: mem_used - maxmemory.",
        series: |server| series::variable(server, Variable::MemTofree, &server.state.mem_tofree),
    },
    Family {
        name: "evictscope_mem_reported_bytes",
        help: "Memory tracked by the allocator, at each evicting call.",
        series: |server| {
            series::variable(server, Variable::MemReported, &server.state.mem_reported)
        },
    },
    Family {
        name: "evictscope_mem_used_bytes",
        help: "Memory that counts against maxmemory (mem_reported - overhead), at each evicting call.",
        series: |server| series::variable(server, Variable::MemUsed, &server.state.mem_used),
    },
    Family {
        name: "evictscope_mem_overhead_bytes",
        help: "Memory that does not count against maxmemory (replication output buffers and AOF \
               buffer), at each evicting call.",
        series: |server| series::variable(server, Variable::Overhead, &server.state.overhead),
    },
    Family {
        name: "evictscope_client_buffers_sample_bytes",
        help: "Total client buffers, at each sample of the main thread, 10 a second at most.",
        series: series::client_buffer_samples,
    },
    Family {
        name: "evictscope_client_buffers_bytes",
        help: "Client buffers (input and output buffers and client structs) by class of client, at \
               the last sample. The server brings its count up to date about once a second.",
        series: series::client_buffers,
    },
    Family {
        name: "evictscope_client_buffers_peak_bytes",
        help: "Highest total of client buffers since the process was found.",
        series: series::client_buffers_peak,
    },
    Family {
        name: "evictscope_used_memory_bytes",
        help: "Memory tracked by the allocator, at the last sample: used_memory of INFO.",
        series: series::used_memory,
    },
    Family {
        name: "evictscope_maxmemory_bytes",
        help: "Configured memory limit, at the last sample. 0: no limit.",
        series: |server| series::member(server, Member::Maxmemory),
    },
    Family {
        name: "evictscope_commands_processed_total",
        help: "The server's own counter: total_commands_processed of INFO. CONFIG RESETSTAT resets it.",
        series: |server| series::member(server, Member::CommandsProcessed),
    },
    Family {
        name: "evictscope_evicted_keys_total",
        help: "The server's own counter: evicted_keys of INFO. CONFIG RESETSTAT resets it.",
        series: |server| series::member(server, Member::EvictedKeys),
    },
    Family {
        name: "evictscope_expired_keys_total",
        help: "The server's own counter: expired_keys of INFO. CONFIG RESETSTAT resets it.",
        series: |server| series::member(server, Member::ExpiredKeys),
    },
    Family {
        name: "evictscope_main_thread_cpu_seconds_total",
        help: "CPU time of the main thread since the process was found, inside evicting calls and \
               elsewhere; sampled 250 times per second of it.",
        series: series::main_thread_cpu,
    },
    Family {
        name: "evictscope_phase",
        help: "1 for the phase of the eviction cycle that the server is in, 0 for the others.",
        series: |server| {
            series::by_phase(server, |cycle, phase| number(cycle.phases.phase == phase))
        },
    },
    Family {
        name: "evictscope_phase_seconds_total",
        help: "Time spent in each phase since the process was found. Time of which it is not certain \
               yet to which phase it belongs is missing for up to 2 s.",
        series: |server| {
            series::by_phase(server, |cycle, phase| {
                cycle.phases.time(phase).as_secs_f64()
            })
        },
    },
    Family {
        name: "evictscope_phase_entries_total",
        help: "How often each phase was entered; finding the process is the first entry to \
               not_saturated.",
        series: |server| {
            series::by_phase(server, |cycle, phase| cycle.phases.entries(phase) as f64)
        },
    },
    Family {
        name: "evictscope_bursts_total",
        help: "Finished bursts: one visit to saturated, and the reclaim that follows it. \
               self_amplifying: the main thread's CPU was saturated, throughput fell and client \
               buffers grew.",
        series: series::bursts,
    },
    Family {
        name: "evictscope_burst_duration_seconds",
        help: "From the first to the last evicting call of each finished burst.",
        series: |server| series::burst_histogram(server, |totals| &totals.duration, Unit::Seconds),
    },
    Family {
        name: "evictscope_reclaim_duration_seconds",
        help: "For how long memory kept falling after the last evicting call, of each burst after \
               which it did.",
        series: |server| series::burst_histogram(server, |totals| &totals.reclaim, Unit::Seconds),
    },
    Family {
        name: "evictscope_burst_client_buffer_growth_bytes",
        help: "From the client buffers at the start of each finished burst to the highest until the \
               end of its reclaim.",
        series: |server| {
            series::burst_histogram(server, |totals| &totals.client_buffer_growth, Unit::Bytes)
        },
    },
    Family {
        name: "evictscope_burst_reclaimed_bytes",
        help: "By how much memory fell after the last evicting call of each finished burst.",
        series: |server| series::burst_histogram(server, |totals| &totals.reclaimed, Unit::Bytes),
    },
    Family {
        name: "evictscope_burst_throughput_ratio",
        help: "Commands a second in each finished burst by those in the last minute without burst or \
               reclaim.",
        series: |server| {
            series::burst_histogram(server, |totals| &totals.throughput_ratio, Unit::Ratio)
        },
    },
    Family {
        name: "evictscope_last_burst_start_timestamp_seconds",
        help: "When the last burst began, finished or not: seconds since 1970.",
        series: series::last_burst_start,
    },
    Family {
        name: "evictscope_server_info",
        help: "1 for each server that is watched.",
        series: series::server_info,
    },
    Family {
        name: "evictscope_probe_plan_info",
        help: "1 for each variable: how the way to compute it was found. none: not found, and so not \
               exported.",
        series: series::plan_info,
    },
    Family {
        name: "evictscope_probe_mode",
        help: "1 for the probe mode that the server is in, 0 for the others. With --probe-mode auto \
               it follows what the probes cost.",
        series: series::mode,
    },
    Family {
        name: "evictscope_probe_hits_total",
        help: "How often each probe was hit.",
        series: series::hits,
    },
    Family {
        name: "evictscope_overhead_ratio",
        help: "What the probes cost the server, as a share of its main thread, in the last second: \
               hits by what a hit costs on this machine, measured when the agent started.",
        series: |server| single(server.overhead_ratio),
    },
    Family {
        name: "evictscope_read_faults_total",
        help: "What could not be read from the server's memory (recipe, member, allocator) or from \
               the kernel (cpu_time, map), hits by a process that is not the server (other_process), \
               and evicting calls whose end was not seen (lost_exit).",
        series: series::faults,
    },
    Family {
        name: "evictscope_not_found",
        help: "1 for each item that was not found in the server's executable, and so is not exported; \
               `evictscope inspect PID` says why.",
        series: series::not_found,
    },
    Family {
        name: "evictscope_plan_withdrawn",
        help: "1 for the reason for which the probe plan was found wrong at run time and withdrawn \
               for the life of the process, 0 for the others. What rests on the plan is no longer \
               exported.",
        series: series::withdrawn,
    },
    Family {
        name: "evictscope_goal_checks_total",
        help: "Invariants tested at evicting calls: mem_reported is the allocator's counter \
               (allocator), the goal variables add up (arithmetic), maxmemory is the configured one \
               (maxmemory).",
        series: |server| series::checks(server, &server.state.checks),
    },
    Family {
        name: "evictscope_goal_check_failures_total",
        help: "Tests of evictscope_goal_checks_total that failed. At the first one counting stops, and \
               the plan is withdrawn.",
        series: |server| series::checks(server, &server.state.check_failures),
    },
    Family {
        name: "evictscope_goal_allocator_moves_total",
        help: "Evicting calls at which the allocator's counter was not exactly mem_reported: other \
               threads of the server allocate and free meanwhile. Where it was off by more than \
               1 MiB, the call is not counted.",
        series: series::allocator_moves,
    },
];

/// Returns all families that have a series: those of the servers, and the build of this agent.
pub fn families(servers: &[ExportedServer]) -> Vec<MetricFamily> {
    let mut families: Vec<MetricFamily> = Vec::new();
    for Family { name, help, series } in FAMILIES {
        let of_server = |server| series(server).into_iter().map(move |one| (server, one));
        let series: Vec<(&ExportedServer, Series<'_>)> =
            servers.iter().flat_map(of_server).collect();
        let Some((_, first)) = series.first() else {
            continue;
        };
        let kind = first.kind(name);
        let metrics = series
            .iter()
            .map(|(server, one)| one.metric(&server.label, kind));
        families.push(metric_family(name, kind, help, metrics.collect()));
    }
    families.push(build_info());
    families
}

fn build_info() -> MetricFamily {
    let mut one = Gauge::default();
    one.set_value(1.0);
    let mut metric = Metric::from_gauge(one);
    metric.set_label(vec![label("version", env!("CARGO_PKG_VERSION"))]);
    let help = "1, with the version of this agent.";
    metric_family(
        "evictscope_build_info",
        MetricType::GAUGE,
        help,
        vec![metric],
    )
}

fn metric_family(name: &str, kind: MetricType, help: &str, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_field_type(kind);
    family.set_help(help.to_owned());
    family.set_metric(metrics);
    family
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::families;
    use crate::export::ExportedServer;
    use crate::export::fixture::{busy_server, new_server, partial_server};
    use crate::telemetry::{BrokenInvariant, ProbeMode};

    #[test]
    fn the_text_of_made_up_servers() -> prometheus::Result<()> {
        let families = families(&[busy_server(), partial_server()]);
        let text = TextEncoder::new().encode_to_string(&families)?;
        insta::with_settings!({ omit_expression => true }, {
            insta::assert_snapshot!(text.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
        });
        Ok(())
    }

    #[test]
    fn without_a_server_the_build_is_exported() {
        let families = families(&[]);
        let names: Vec<_> = families.iter().map(|family| family.name()).collect();
        assert_eq!(names, ["evictscope_build_info"]);
    }

    #[test]
    fn calls_and_their_variables_are_there_from_the_start() -> prometheus::Result<()> {
        let text = TextEncoder::new().encode_to_string(&families(&[new_server()]))?;
        for series in [
            "eviction_calls_total{server=\"6379\",kind=\"evicting\",result=\"fail\"} 0",
            "eviction_call_duration_seconds_count{server=\"6379\",kind=\"evicting\"} 0",
            "mem_tofree_bytes_sum{server=\"6379\"} 0",
            "goal_check_failures_total{server=\"6379\",check=\"allocator\"} 0",
        ] {
            let line = format!("\nevictscope_{series}\n");
            assert!(text.contains(&line), "{series}");
        }
        // Nothing was read yet, and no entry and return probes are attached.
        let noop = "kind=\"noop\"";
        for absent in ["used_memory", "client_buffers", "main_thread_cpu", noop] {
            assert!(!text.contains(absent), "{absent}");
        }
        Ok(())
    }

    fn text_of(server: ExportedServer) -> prometheus::Result<String> {
        TextEncoder::new().encode_to_string(&families(&[server]))
    }

    #[test]
    fn nothing_that_rests_on_a_withdrawn_plan_is_exported() -> prometheus::Result<()> {
        const CALLS: [&str; 4] = [
            "eviction_call",
            "mem_",
            "main_thread_cpu",
            "allocator_moves",
        ];
        const CYCLE: [&str; 4] = ["phase", "bursts", "burst_", "last_burst"];
        const MEMBERS: [&str; 2] = ["maxmemory_bytes", "client_buffers"];
        const COUNTERS: [&str; 3] = ["commands_processed", "evicted_keys", "expired_keys"];
        for (broken, gone) in [
            (BrokenInvariant::Allocator, vec!["used_memory_bytes"]),
            (BrokenInvariant::Arithmetic, vec![]),
            (
                BrokenInvariant::Maxmemory,
                [&MEMBERS[..], &COUNTERS].concat(),
            ),
            (BrokenInvariant::LostExit, vec![]),
        ] {
            let before = text_of(busy_server())?;
            let after = text_of(ExportedServer {
                withdrawn: Some(broken),
                ..busy_server()
            })?;
            for name in CALLS.iter().chain(&CYCLE).chain(&gone) {
                let series =
                    format!("\nevictscope_{name}").replace("_allocator", "_goal_allocator");
                assert!(before.contains(&series), "{name}: the test tests nothing");
                assert!(!after.contains(&series), "{broken}: {name}");
            }
            for series in [
                format!("plan_withdrawn{{server=\"6379\",reason=\"{broken}\"}} 1"),
                "probe_plan_info{server=\"6379\",variable=\"mem_used\",method=\"none\"} 1"
                    .to_owned(),
                "probe_mode{server=\"6379\",mode=\"every-call\"} 0".to_owned(),
                "goal_checks_total{server=\"6379\",check=\"maxmemory\"} 2".to_owned(),
            ] {
                let line = format!("\nevictscope_{series}\n");
                assert!(after.contains(&line), "{broken}: {series}");
            }
        }
        let sound = text_of(busy_server())?;
        let reasons = sound
            .lines()
            .filter(|line| line.starts_with("evictscope_plan_withdrawn{"));
        assert_eq!(reasons.filter(|line| line.ends_with(" 0")).count(), 4);
        Ok(())
    }

    #[test]
    fn no_op_calls_have_no_series_while_they_are_not_counted() -> prometheus::Result<()> {
        assert!(text_of(busy_server())?.contains("kind=\"noop\""));
        let shed = text_of(ExportedServer {
            mode: ProbeMode::EvictingOnly,
            ..busy_server()
        })?;
        assert!(!shed.contains("kind=\"noop\""), "{shed}");
        Ok(())
    }
}
