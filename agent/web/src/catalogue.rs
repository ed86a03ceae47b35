//! Every metric family of the agent, in the order in which they are exported. Those that are a member of `server` as it
//! is come from the list of members (`evictscope-plan`), and stand between the others.
//!
//! `docs/METRICS.md` describes them to users, and `documentation.rs` tests that it does.

use std::sync::Arc;
use std::time::Duration;

use evictscope_plan::{Member, MemberMetric};
use evictscope_records::KeeperCounts;
use evictscope_telemetry::{BurstTotals, Waits};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

use super::cycles;
use super::proto::{Series, Unit, histogram, label, single};
use super::series::{self, number};
use super::server::ExportedServer;
use super::unwatched::{Reason, Unwatched};
use crate::version;

/// A metric family. Its type follows from its name and its series.
pub(super) struct Family {
    name: &'static str,
    help: &'static str,
    /// Returns the series of one server.
    series: fn(&ExportedServer) -> Vec<Series<'_>>,
}

/// The families before those of members that are settings or sizes.
const BEFORE_GAUGES: [Family; 10] = [
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
        name: "evictscope_eviction_call_longest_seconds",
        help: "The longest evicting call of the last 5 minutes, with the one under way, without the time in which it waited for a \
               CPU; 0 where there was none.",
        series: series::longest_call,
    },
    Family {
        name: "evictscope_eviction_call_cpu_wait_seconds_total",
        help: "Time inside evicting calls in which the main thread waited for a CPU.",
        series: series::cpu_wait,
    },
    Family {
        name: "evictscope_observed_seconds_total",
        help: "Time in which calls of that kind were observed. Divide by it for rates: in the probe mode \
               sampled, only what was observed is counted.",
        series: series::observed,
    },
    Family {
        name: "evictscope_mem_tofree_bytes",
        help: "Eviction goal of each evicting call: mem_used - maxmemory.",
        series: series::mem_tofree,
    },
    Family {
        name: "evictscope_not_counted_memory_bytes",
        help: "Memory that does not count against maxmemory (replication output buffers and AOF buffer), at \
               the last evicting call.",
        series: series::not_counted_memory,
    },
    Family {
        name: "evictscope_client_buffers_sample_bytes",
        help: "Total client buffers, 10 times a second at most.",
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
];

/// The families between these and the members that are counters.
const BEFORE_COUNTERS: [Family; 1] = [Family {
    name: "evictscope_maxmemory_policy_info",
    help: "1 for the maxmemory-policy that is configured, at the last sample.",
    series: series::policy_info,
}];

/// The families between these and the server's own counters of expire cycles.
const BEFORE_COUNTERS_OF_CYCLES: [Family; 3] = [
    Family {
        name: "evictscope_expire_cycle_duration_seconds",
        help: "Wall time of expire cycles, activeExpireCycle(), from behind the early returns on. slow: made by \
               the cron, fast: before the event loop sleeps.",
        series: cycles::durations,
    },
    Family {
        name: "evictscope_expire_cycle_keys_sampled_total",
        help: "Keys with a time to live that expire cycles looked at.",
        series: cycles::sampled,
    },
    Family {
        name: "evictscope_expire_cycle_keys_expired_total",
        help: "Keys of those that had expired, which they deleted. Keys that expire when a command asks for them \
               are only in evictscope_expired_keys_total.",
        series: cycles::expired,
    },
];

/// The families after those of members.
const AFTER_MEMBERS: [Family; 28] = [
    Family {
        name: "evictscope_expire_stale_ratio",
        help: "The server's own estimate, a moving average over expire cycles, of the share of keys with a time \
               to live that have expired and are still held: expired_stale_perc of INFO, as a ratio.",
        series: |server| single(server.members().stale_ratio()),
    },
    Family {
        name: "evictscope_main_thread_cpu_seconds_total",
        help: "CPU time of the main thread since the process was found: inside evicting calls, inside expire \
               cycles and elsewhere. While evicting calls are not observed, in the probe mode sampled, their share of it \
               is taken to be that of the last seconds in which they were.",
        series: series::main_thread_cpu,
    },
    Family {
        name: "evictscope_main_thread_waiting_seconds_total",
        help: "Time since the process was found in which the main thread was ready to run and had no CPU.",
        series: series::main_thread_waiting,
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
               yet to which phase it belongs is missing until it is.",
        series: |server| {
            series::by_phase(server, |cycle, phase| {
                cycle.phases.time(phase).as_secs_f64()
            })
        },
    },
    Family {
        name: "evictscope_stall_seconds_total",
        help: "Time in which some client was stalled: a request had waited for 0.1 s or longer (--stall-threshold). \
               cause: what took most of the main thread's time since that request came. Counted as it happens.",
        series: series::stalls,
    },
    Family {
        name: "evictscope_client_wait_seconds_total",
        help: "Connections times the time that their requests waited. Divided by commands: the mean wait of a command.",
        series: |server| series::wait(server, Waits::seconds),
    },
    Family {
        name: "evictscope_requests_waited_total",
        help: "Times that a request waited for longer than that, in seconds.",
        series: series::requests_waited,
    },
    Family {
        name: "evictscope_client_wait_longest_seconds",
        help: "The longest time that a request waited, in the last 5 minutes.",
        series: |server| series::wait(server, |waits| waits.longest().as_secs_f64()),
    },
    Family {
        name: "evictscope_clients_waiting",
        help: "Connections in which requests waited, at the last look.",
        series: |server| series::wait(server, |waits| waits.waiting() as f64),
    },
    Family {
        name: "evictscope_clients_connected",
        help: "Connections, at the last look.",
        series: |server| series::wait(server, |waits| waits.connected() as f64),
    },
    Family {
        name: "evictscope_bursts_total",
        help: "Finished bursts: one visit to saturated, and the reclaim that follows it. \
               self_amplifying: it stalled clients and fed on itself: evictions took the CPU time that the main thread lacked, \
               more and more requests waited, and client buffers grew. stalling: its evictions stalled clients. plain: they \
               stalled none. unknown: what decides is not known.",
        series: series::bursts,
    },
    Family {
        name: "evictscope_burst_open",
        help: "1 while a burst is under way, up to the end of its reclaim.",
        series: |server| single(server.cycle().map(|cycle| number(cycle.has_open_burst()))),
    },
    Family {
        name: "evictscope_burst_duration_seconds",
        help: "From the first to the last evicting call of each finished burst of 0.5 s or more.",
        series: |server| {
            let totals = server.cycle().map(|cycle| &cycle.totals.duration);
            histogram(totals, Unit::Seconds)
        },
    },
    Family {
        name: "evictscope_reclaim_duration_seconds",
        help: "From the last evicting call of each burst of 0.5 s or more until memory had fallen, but \
               for a fifth of its whole fall, to stay there.",
        series: series::reclaims,
    },
    Family {
        name: "evictscope_burst_client_buffer_growth_bytes_total",
        help: "From the client buffers at the start of each finished burst of 0.5 s or more to the highest \
               until the end of its reclaim, added up.",
        series: |server| {
            let grown = |totals: &BurstTotals| totals.client_buffer_growth;
            series::of_bursts(server, grown, Member::StatClientsTypeMemory)
        },
    },
    Family {
        name: "evictscope_burst_reclaimed_bytes_total",
        help: "By how much memory fell after the last evicting call of each finished burst of 0.5 s or \
               more, added up.",
        series: |server| {
            let reclaimed = |totals: &BurstTotals| totals.reclaimed;
            series::of_bursts(server, reclaimed, Member::UsedMemory)
        },
    },
    Family {
        name: "evictscope_last_burst_start_timestamp_seconds",
        help: "When the last burst began, finished or not: seconds since 1970.",
        series: series::last_burst_start,
    },
    Family {
        name: "evictscope_server_info",
        help: "1 for each server that is watched; exe is the name that it was started by, file what it runs.",
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
        help: "What evictscope costs the server, as a share of its main thread, in the last 10 s: hits of \
               probes, and placing them, by what each costs on this machine, measured when the agent \
               started.",
        series: |server| single(server.overhead_ratio),
    },
    Family {
        name: "evictscope_overhead_budget_ratio",
        help: "The most that evictscope_overhead_ratio may be in probe mode auto: --overhead-budget.",
        series: |server| single(Some(server.overhead_budget_ratio)),
    },
    Family {
        name: "evictscope_foreign_breakpoints",
        help: "Breakpoints that were in the server's code when it was attached to, and that the kernel did not let evictscope \
               take out: of another tool, or left by an agent that was killed together with its keeper. No series where \
               there were none.",
        series: |server| {
            let breakpoints = server.foreign_breakpoints;
            single((breakpoints > 0).then_some(breakpoints as f64))
        },
    },
    Family {
        name: "evictscope_read_faults_total",
        help: "What could not be read from the server's memory (recipe, member, allocator) or from \
               the kernel (map), hits by a process that is not the server (other_process), \
               and evicting calls and expire cycles whose end was not seen (lost_exit). A reason has a series once there was \
               one.",
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
               for the life of the process. What rests on it is no longer exported. Reasons that begin with expire \
               are about the expire cycle alone, the others about eviction calls.",
        series: series::withdrawn,
    },
];

/// A family of servers.
pub(super) enum OfServers {
    /// One of those above.
    Made(&'static Family),
    /// A member of `server` as it is.
    Member(Member, MemberMetric),
}

/// Returns the families of servers, in the order in which they are exported.
pub(super) fn of_servers() -> impl Iterator<Item = OfServers> {
    let made = |families: &'static [Family]| families.iter().map(OfServers::Made);
    let members = |are_here: fn(&MemberMetric) -> bool| {
        Member::ALL.iter().filter_map(move |member| {
            let metric = member.metric().filter(are_here)?;
            Some(OfServers::Member(*member, metric))
        })
    };
    fn is_of_cycles(metric: &MemberMetric) -> bool {
        metric.name.starts_with("evictscope_expire_cycle_")
    }
    made(&BEFORE_GAUGES)
        .chain(members(|metric| !metric.is_counter()))
        .chain(made(&BEFORE_COUNTERS))
        .chain(members(|metric| {
            metric.is_counter() && !is_of_cycles(metric)
        }))
        .chain(made(&BEFORE_COUNTERS_OF_CYCLES))
        .chain(members(is_of_cycles))
        .chain(made(&AFTER_MEMBERS))
}

impl OfServers {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Made(family) => family.name,
            Self::Member(_, metric) => metric.name,
        }
    }

    fn help(&self) -> String {
        match self {
            Self::Made(family) => family.help.to_owned(),
            Self::Member(member, metric) => member.help(*metric),
        }
    }

    pub(super) fn series<'a>(&self, server: &'a ExportedServer) -> Vec<Series<'a>> {
        match self {
            Self::Made(family) => (family.series)(server),
            Self::Member(member, _) => series::member(server, *member),
        }
    }
}

/// Returns all families that have a series: those of the servers, and the build of this agent.
pub fn families(servers: &[Arc<ExportedServer>]) -> Vec<MetricFamily> {
    let mut families: Vec<MetricFamily> = Vec::new();
    for family in of_servers() {
        let of_server = |server| {
            let series = family.series(server).into_iter();
            series.map(move |one| (server, one))
        };
        let series: Vec<(&ExportedServer, Series<'_>)> = servers
            .iter()
            .map(Arc::as_ref)
            .flat_map(of_server)
            .collect();
        let Some((_, first)) = series.first() else {
            continue;
        };
        let kind = first.kind(family.name());
        let metrics = series
            .iter()
            .map(|(server, one)| one.metric(&server.label, kind));
        let (name, help) = (family.name(), family.help());
        families.push(metric_family(name, kind, &help, metrics.collect()));
    }
    families.push(build_info());
    families
}

fn build_info() -> MetricFamily {
    let built = vec![
        label("commit", version::COMMIT.unwrap_or_default()),
        label("version", version::NUMBER),
    ];
    let help =
        "1, with the version of this agent, and the commit that a packed one was built from.";
    of_the_agent("evictscope_build_info", help, 1.0, built)
}

/// Returns the family that says how many servers run that cannot be watched, by reason.
pub fn servers_unwatched(servers: &[Unwatched]) -> MetricFamily {
    let name = "evictscope_servers_unwatched";
    let help = "How many servers run on this host that cannot be watched, by reason: /api/v1/unwatched says more of each.";
    let gauges = Reason::ALL.into_iter().map(|reason| {
        let count = servers
            .iter()
            .filter(|server| server.reason == reason)
            .count();
        gauge(count as f64, vec![label("reason", reason.name())])
    });
    metric_family(name, MetricType::GAUGE, help, gauges.collect())
}

/// Returns the family that says when the run loop last turned, since 1970.
pub fn loop_last_turn(unix_time: Duration) -> MetricFamily {
    let name = "evictscope_loop_last_turn_timestamp_seconds";
    let help = "When the loop that watches the servers last turned: seconds since 1970. It turns several \
                times a second; /-/healthy says whether it does.";
    of_the_agent(name, help, unix_time.as_secs_f64(), Vec::new())
}

/// Returns the families that say what the agent keeps on disk.
pub fn records(counts: KeeperCounts) -> [MetricFamily; 4] {
    let gauge = |name, help, value: u64| of_the_agent(name, help, value as f64, Vec::new());
    let counter = |name, help, value: u64| {
        let mut counter = Counter::default();
        counter.set_value(value as f64);
        let mut metric = Metric::default();
        metric.set_counter(counter);
        metric_family(name, MetricType::COUNTER, help, vec![metric])
    };
    [
        gauge(
            "evictscope_records",
            "Records of bursts, of stalls and of what was asked for that are kept.",
            counts.records,
        ),
        gauge(
            "evictscope_records_bytes",
            "Size of the records on disk. At most --keep-records.",
            counts.bytes,
        ),
        counter(
            "evictscope_records_written_total",
            "Records that were written.",
            counts.written,
        ),
        counter(
            "evictscope_records_failed_total",
            "Records that were lost: the disk is full or too slow, or the record is larger than all that may be kept. The log says which.",
            counts.failed,
        ),
    ]
}

/// Returns a gauge about the agent itself.
fn of_the_agent(name: &str, help: &str, value: f64, labels: Vec<LabelPair>) -> MetricFamily {
    metric_family(name, MetricType::GAUGE, help, vec![gauge(value, labels)])
}

fn gauge(value: f64, labels: Vec<LabelPair>) -> Metric {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    let mut metric = Metric::from_gauge(gauge);
    metric.set_label(labels);
    metric
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
    use std::sync::Arc;

    use evictscope_telemetry::{BrokenInvariant, ProbeMode};
    use prometheus::TextEncoder;

    use super::families;
    use crate::ExportedServer;
    use crate::fixture::{busy_server, new_server, partial_server};

    #[test]
    fn the_text_of_made_up_servers() -> prometheus::Result<()> {
        let families = families(&[busy_server(), partial_server()].map(Arc::new));
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
        let text = TextEncoder::new().encode_to_string(&families(&[Arc::new(new_server())]))?;
        for series in [
            "eviction_calls_total{server=\"6379\",kind=\"evicting\",result=\"fail\"} 0",
            "eviction_call_duration_seconds_count{server=\"6379\",kind=\"evicting\"} 0",
            "mem_tofree_bytes_sum{server=\"6379\"} 0",
            "eviction_call_longest_seconds{server=\"6379\"} 0",
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
        TextEncoder::new().encode_to_string(&families(&[Arc::new(server)]))
    }

    #[test]
    fn a_server_with_everything_has_200_series_at_most() -> prometheus::Result<()> {
        let mut server = busy_server();
        server.overhead_ratio = Some(0.001);
        let text = TextEncoder::new().encode_to_string(&families(&[Arc::new(server)]))?;
        let series = text
            .lines()
            .filter(|line| line.contains("server=\""))
            .count();
        assert!((170..=200).contains(&series), "{series} series");
        Ok(())
    }

    #[test]
    fn nothing_that_rests_on_a_withdrawn_plan_is_exported() -> prometheus::Result<()> {
        const CALLS: [&str; 4] = ["eviction_call", "mem_", "not_counted", "main_thread_cpu"];
        const CYCLE: [&str; 4] = ["phase", "bursts", "burst_", "last_burst"];
        const MEMBERS: [&str; 3] = ["maxmemory_", "client_buffers", "expire_stale_ratio"];
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
                let series = format!("\nevictscope_{name}");
                assert!(before.contains(&series), "{name}: the test tests nothing");
                assert!(!after.contains(&series), "{broken}: {name}");
            }
            assert!(!after.contains("cause=\"eviction\""), "{broken}");
            for series in [
                format!("plan_withdrawn{{server=\"6379\",reason=\"{broken}\"}} 1"),
                "probe_plan_info{server=\"6379\",variable=\"mem_used\",method=\"none\"} 1"
                    .to_owned(),
                "probe_mode{server=\"6379\",mode=\"every-call\"} 0".to_owned(),
            ] {
                let line = format!("\nevictscope_{series}\n");
                assert!(after.contains(&line), "{broken}: {series}");
            }
        }
        assert!(!text_of(busy_server())?.contains("plan_withdrawn"));
        Ok(())
    }

    #[test]
    fn what_was_withdrawn_of_the_expire_cycle_is_gone_and_nothing_else() -> prometheus::Result<()> {
        let before = text_of(busy_server())?;
        let after = text_of(ExportedServer {
            cycles_withdrawn: Some(BrokenInvariant::CycleTime),
            ..busy_server()
        })?;
        let reason = "\nevictscope_plan_withdrawn{server=\"6379\",reason=\"expire_time\"} 1\n";
        assert!(after.contains(reason), "{after}");
        for gone in [
            "expire_cycle_duration",
            "expire_cycle_keys_sampled",
            "expire_cycle_keys_expired",
            "activity=\"expire\"",
            "cause=\"expire\"",
        ] {
            assert!(before.contains(gone), "{gone}: the test tests nothing");
            assert!(!after.contains(gone), "{gone}");
        }
        for stays in [
            "eviction_calls_total",
            "activity=\"eviction\"",
            "cause=\"eviction\"",
            "expire_stale_ratio",
            "expire_cycle_time_limit_hits_total",
            "probe_mode{server=\"6379\",mode=\"every-call\"} 1",
        ] {
            assert!(after.contains(stays), "{stays}");
        }
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
