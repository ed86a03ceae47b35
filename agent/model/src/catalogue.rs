//! The catalogue of metrics: each family that the agent exports once, but for those that export a member of `server`
//! unchanged, which are in the [list of members](Member), and the `process_*` of the agent itself.
//!
//! A line has the name, the unit as in docs/METRICS.md, what explains it to Prometheus, its labels beside `server`, and
//! what of a probe plan it [needs](Needs): that decides what an operator is told is [`lost`].

use serde::Serialize;

use self::Need::{Item, Of};
use crate::alerts::ALERTS;
use crate::members::Member;
use crate::members::Member::{
    AofBuf, AofEnabled, EvalContext, EvictionPool, InitialMemoryUsage, Loading, Masterhost, Maxmemory, MaxmemoryPolicy,
    ReplBacklog, ReplBacklogSize, ReplBufferMem, Slaves, StatClientsTypeMemory, StatClusterLinksMemory,
    StatEvictedkeys, StatExpiredStalePerc, StatExpiredkeys, StatNumcommands, StatTotalErrorReplies, UsedMemory,
};

/// A metric family.
#[derive(Debug)]
pub struct MetricEntry {
    /// Its name. That of a counter, and no other, ends in `_total`.
    pub name: &'static str,
    /// Whether it is a histogram.
    pub is_histogram: bool,
    /// Its unit, as docs/METRICS.md has it.
    pub unit: &'static str,
    /// What explains it to Prometheus.
    pub help: &'static str,
    /// The labels of its series, beside `server`.
    pub labels: &'static [&'static str],
    /// What it needs of a probe plan.
    pub needs: &'static [Needs],
}

/// What a metric, or a part of it, needs.
#[derive(Debug)]
pub struct Needs {
    /// All of these.
    of: &'static [Need<'static>],
    /// What is not exported without: empty for the whole family, or a label or a value of one, as in `{kind="noop"}`.
    pub part: &'static str,
    /// Whether all series may still be there without it, but do not count everything; also where only a server with
    /// another policy, or one that is watched for long enough, has them.
    pub is_weaker: bool,
}

/// Something that a plan may not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need<'a> {
    /// An item, by the name that it has in `evictscope_not_found`.
    Item(&'a str),
    /// A member of `server`, or a global beside it.
    Of(Member),
}

/// Without these, evicting calls cannot be told from others, or their ends are not seen.
const EVICTING_CALLS: &[Need<'_>] = &[Item("eviction_goal"), Item("eviction_done")];
/// Without it, calls that do not evict are not seen.
const ENTRY: &[Need<'_>] = &[Item("eviction_enter")];
/// What those calls are in labels.
const NOOP: &str = r#"{kind="noop"}"#;
/// Without these, expire cycles are not timed.
const EXPIRE_CYCLES: &[Need<'_>] = &[Item("expire_cycle"), Item("expire_start"), Item("expire_end")];
/// A server that evicts all the time is in the probe mode sampled, in which what evictions take is estimated from it.
const SAMPLED: &[Need<'_>] = &[Of(StatEvictedkeys)];
/// What tells growth of memory from fills and evictions.
const GROWTH: &[Need<'_>] =
    &[Item("eviction_goal"), Of(UsedMemory), Of(StatNumcommands), Of(StatEvictedkeys), Of(StatClientsTypeMemory)];

const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> MetricEntry {
    MetricEntry { name, is_histogram: false, unit, help, labels: &[], needs: &[] }
}

const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> MetricEntry {
    gauge(name, unit, help)
}

const fn histogram(name: &'static str, unit: &'static str, help: &'static str) -> MetricEntry {
    MetricEntry { is_histogram: true, ..gauge(name, unit, help) }
}

const fn whole(of: &'static [Need<'static>]) -> Needs {
    part("", of)
}

const fn part(part: &'static str, of: &'static [Need<'static>]) -> Needs {
    Needs { of, part, is_weaker: false }
}

impl Needs {
    const fn weaker(mut self) -> Self {
        self.is_weaker = true;
        self
    }
}

impl MetricEntry {
    const fn labels(mut self, labels: &'static [&'static str]) -> Self {
        self.labels = labels;
        self
    }

    const fn needs(mut self, needs: &'static [Needs]) -> Self {
        self.needs = needs;
        self
    }
}

/// Makes a constant of each line, and the list of all.
macro_rules! metrics {
    ($($metric:ident: $line:expr,)*) => {
        $(#[expect(missing_docs, reason = "its line says what it is")] pub const $metric: MetricEntry = $line;)*

        /// All of them, in the order of export.
        pub const ALL: &[MetricEntry] = &[$($metric),*];
    };
}

metrics! {
    EVICTION_CALL_DURATION: histogram("evictscope_eviction_call_duration_seconds", "seconds",
        "Wall time of eviction calls: performEvictions(), freeMemoryIfNeeded() before Redis 6.2. An evicting call is \
        timed from when it has computed its goal, a no-op call from its entry.")
        .labels(&["kind"])
        .needs(&[whole(EVICTING_CALLS), part(NOOP, ENTRY)]),
    EVICTION_CALLS: counter("evictscope_eviction_calls_total", "calls",
        "Eviction calls that have ended. Those of kind noop found memory within maxmemory; they are only counted, \
        and only have a series, while the probe mode is every-call.")
        .labels(&["kind", "result"])
        .needs(&[whole(EVICTING_CALLS), part(NOOP, ENTRY), part("{result}", &[Item("eviction_result")]).weaker()]),
    REFUSED_COMMANDS: counter("evictscope_refused_commands_total", "commands",
        "Commands that the server refused because they may take memory and no key could be evicted: errorstat_OOM of \
        INFO (Redis 6.2 or later; there without those in scripts).")
        .needs(&[whole(&[Of(StatTotalErrorReplies)])]),
    EVICTION_CALL_LONGEST: gauge("evictscope_eviction_call_longest_seconds", "seconds",
        "The longest evicting call of the last 5 minutes, with the one under way, without the time in which it \
        waited for a CPU; 0 where there was none.")
        .needs(&[whole(EVICTING_CALLS)]),
    EVICTION_CALL_CPU_WAIT: counter("evictscope_eviction_call_cpu_wait_seconds_total", "seconds",
        "Time inside evicting calls in which the main thread waited for a CPU.")
        .needs(&[whole(EVICTING_CALLS)]),
    OBSERVED: counter("evictscope_observed_seconds_total", "seconds",
        "Time in which calls of that kind were observed. Divide by it for rates: in the probe mode sampled, only \
        what was observed is counted.")
        .labels(&["kind"])
        .needs(&[whole(EVICTING_CALLS), part(NOOP, ENTRY)]),
    MEM_TOFREE: histogram("evictscope_mem_tofree_bytes", "bytes",
        "Eviction goal of each evicting call: mem_used - maxmemory.")
        .needs(&[whole(EVICTING_CALLS), whole(&[Item("mem_tofree")])]),
    CLIENT_BUFFERS_SAMPLE: histogram("evictscope_client_buffers_sample_bytes", "bytes",
        "Total client buffers, 10 times a second at most.")
        .needs(&[whole(&[Of(StatClientsTypeMemory)])]),
    CLIENT_BUFFERS: gauge("evictscope_client_buffers_bytes", "bytes",
        "Client buffers (input and output buffers and client structs) by class of client, at the last sample. The \
        server brings its count up to date about once a second.")
        .labels(&["class"])
        .needs(&[whole(&[Of(StatClientsTypeMemory)])]),
    CLIENT_BUFFERS_PEAK: gauge("evictscope_client_buffers_peak_bytes", "bytes",
        "Highest total of client buffers since the process was found.")
        .needs(&[whole(&[Of(StatClientsTypeMemory)])]),
    NOT_COUNTED_MEMORY: gauge("evictscope_not_counted_memory_bytes", "bytes",
        "Memory that does not count against maxmemory, at the last sample: replication output buffers and AOF \
        buffer, as mem_not_counted_for_evict of INFO.")
        .needs(&[whole(&[Of(ReplBacklogSize), Of(ReplBufferMem), Of(AofEnabled), Of(AofBuf)])]),
    MEMORY_PART: gauge("evictscope_memory_part_bytes", "bytes",
        "What used_memory is made of, once a second, as INFO MEMORY and MEMORY STATS account it. part is rest for what \
        remains: keys and values, and what the server does not account for.")
        .labels(&["part"])
        .needs(&[
            whole(&[Of(UsedMemory)]),
            part(r#"{part="startup"}"#, &[Of(InitialMemoryUsage)]),
            part(r#"{part="clients_normal"}"#, &[Of(StatClientsTypeMemory)]),
            part(r#"{part="clients_pubsub"}"#, &[Of(StatClientsTypeMemory)]),
            part(r#"{part="clients_primary"}"#, &[Of(StatClientsTypeMemory)]),
            part(r#"{part="replicas"}"#, &[Of(ReplBacklogSize), Of(ReplBacklog), Of(ReplBufferMem), Of(Slaves)]),
            part(r#"{part="backlog"}"#, &[Of(ReplBacklogSize), Of(ReplBacklog), Of(ReplBufferMem), Of(Slaves)]),
            part(r#"{part="aof_buffer"}"#, &[Of(AofEnabled), Of(AofBuf)]),
            part(r#"{part="cluster_links"}"#, &[Of(StatClusterLinksMemory)]),
            part(r#"{part="scripts"}"#, &[Of(EvalContext)]),
        ]),
    KEY_LOSSES: counter("evictscope_key_losses_total", "times",
        "Times that a tenth of all keys, or more, were lost within a minute: evicted (and not by a cache that evicts as \
        calmly as before), expired in the minute of a promotion, or removed at once, as by FLUSHALL.")
        .labels(&["how"])
        .needs(&[whole(EVICTING_CALLS), whole(&[Of(StatEvictedkeys)]), whole(&[Of(StatExpiredkeys)])]),
    SERVER_ROLE: gauge("evictscope_server_role_info", "1",
        "1 for the server's role, and for whether maxmemory applies to it now: not without a limit, to a replica \
        that ignores it (replica-ignore-maxmemory), while the server loads, or while evictions are paused.")
        .labels(&["role", "applies"])
        .needs(&[whole(&[Of(Maxmemory), Of(Masterhost), Of(Loading)])]),
    MAXMEMORY_POLICY: gauge("evictscope_maxmemory_policy_info", "1",
        "1 for the maxmemory-policy that is configured, at the last sample.")
        .labels(&["policy"])
        .needs(&[whole(&[Of(MaxmemoryPolicy)])]),
    CANDIDATE_IDLE: gauge("evictscope_candidate_idle_seconds", "seconds",
        "Idle time of the longest-idle key in the server's eviction pool, from when it was taken in (policies by \
        LRU). What is evicted next may have been idle for longer.")
        .needs(&[whole(&[Of(EvictionPool), Of(MaxmemoryPolicy)])]),
    CANDIDATE_TTL: gauge("evictscope_candidate_ttl_seconds", "seconds",
        "Time that the key in the server's eviction pool that expires first has to live (volatile-ttl). What is \
        evicted next may expire sooner.")
        .needs(&[whole(&[Of(EvictionPool), Of(MaxmemoryPolicy)]).weaker()]),
    MAXMEMORY_REACHED: gauge("evictscope_maxmemory_reached_seconds", "seconds",
        "Time until the memory that counts is at maxmemory, if it grows on as in the last hour, since evictions \
        ended, or since the server was filled. No series where it does not grow, or the limit does not apply.")
        .labels(&["estimate"])
        .needs(&[whole(GROWTH).weaker(), whole(&[Of(Maxmemory)]).weaker()]),
    EVICTIONS_WOULD_ADD: gauge("evictscope_evictions_would_add_ratio", "share of the main thread, 0 …",
        "Share of the main thread that evictions would take at the limit: that growth, times the CPU time that they \
        took for each byte when the server last evicted, or, where it has not yet, in the lab.")
        .labels(&["measured"])
        .needs(&[whole(GROWTH).weaker()]),
    EXPIRE_CYCLE_DURATION: histogram("evictscope_expire_cycle_duration_seconds", "seconds",
        "Wall time of expire cycles, activeExpireCycle(), from behind the early returns on. slow: made by the cron, \
        fast: before the event loop sleeps; _fields: Valkey's jobs for fields of hashes.")
        .labels(&["type"])
        .needs(&[whole(EXPIRE_CYCLES), part("{type}", &[Item("expire_type")])]),
    EXPIRE_CYCLE_KEYS_SAMPLED: counter("evictscope_expire_cycle_keys_sampled_total", "keys",
        "Keys with a time to live that expire cycles looked at.")
        .labels(&["type"])
        .needs(&[whole(EXPIRE_CYCLES), part("{type}", &[Item("expire_type")]), whole(&[Item("expire_keys_sampled")])]),
    EXPIRE_CYCLE_KEYS_EXPIRED: counter("evictscope_expire_cycle_keys_expired_total", "keys",
        "Keys of those that had expired, which they deleted. Keys that expire when a command asks for them are only \
        in evictscope_expired_keys_total.")
        .labels(&["type"])
        .needs(&[whole(EXPIRE_CYCLES), part("{type}", &[Item("expire_type")]), whole(&[Item("expire_keys_expired")])]),
    EXPIRE_CYCLE_HASHES_SAMPLED: counter("evictscope_expire_cycle_hashes_sampled_total", "hashes",
        "Hashes that have fields with a time to live, which Valkey's jobs for such fields looked at.")
        .labels(&["type"]),
    EXPIRE_CYCLE_HASHES_EXPIRED: counter("evictscope_expire_cycle_hashes_expired_total", "hashes",
        "Hashes of those that had fields which had expired.")
        .labels(&["type"]),
    EXPIRED_HELD: gauge("evictscope_expired_held_ratio", "share of the keys with a time to live, 0 … 1",
        "Share of the keys with a time to live that have expired and are still held, of some 400 that were looked at \
        from outside. No series where fewer than 100 keys have one."),
    EXPIRE_STALE: gauge("evictscope_expire_stale_ratio", "share of the keys with a time to live, 0 … 1",
        "The server's own estimate, a moving average over expire cycles, of the share of keys with a time to live \
        that have expired and are still held: expired_stale_perc of INFO, as a ratio.")
        .needs(&[whole(&[Of(StatExpiredStalePerc)])]),
    MAIN_THREAD_CPU: counter("evictscope_main_thread_cpu_seconds_total", "seconds",
        "CPU time of the main thread since the process was found: inside evicting calls, inside expire cycles, \
        elsewhere, and spinning for io-threads. Where a server has io-threads and no account of its own of active \
        time, it is unknown what was work. While evicting calls are not observed, in the probe mode sampled, their \
        share of it is taken to be that of the last seconds in which they were.")
        .labels(&["activity"])
        .needs(&[
            part(r#"{activity="eviction"}"#, EVICTING_CALLS),
            part(r#"{activity="eviction"}"#, SAMPLED).weaker(),
            part(r#"{activity="expire"}"#, EXPIRE_CYCLES),
        ]),
    MAIN_THREAD_WAITING: counter("evictscope_main_thread_waiting_seconds_total", "seconds",
        "Time since the process was found in which the main thread was ready to run and had no CPU."),
    CPU_QUOTA_THROTTLED: counter("evictscope_cpu_quota_throttled_seconds_total", "seconds",
        "Time since the process was found in which a CPU quota of its control groups was used up, of all CPUs \
        together."),
    PHASE: gauge("evictscope_phase", "0 or 1",
        "1 for the phase of the eviction cycle that the server is in, 0 for the others.")
        .labels(&["phase"])
        .needs(&[whole(EVICTING_CALLS)]),
    PHASE_SECONDS: counter("evictscope_phase_seconds_total", "seconds",
        "Time spent in each phase since the process was found. Time that cannot be assigned to a phase yet is \
        missing until it can.")
        .labels(&["phase"])
        .needs(&[whole(EVICTING_CALLS)]),
    STALLS: counter("evictscope_stall_seconds_total", "seconds",
        "Time in which some client was stalled: a request had waited for 0.1 s or longer (--stall-threshold). cause: \
        what took most of the main thread's time since that request came. Counted as it happens.")
        .labels(&["cause"])
        .needs(&[
            part(r#"{cause="eviction"}"#, EVICTING_CALLS),
            part(r#"{cause="eviction"}"#, SAMPLED).weaker(),
            part(r#"{cause="expire"}"#, EXPIRE_CYCLES),
        ]),
    CLIENT_WAIT: counter("evictscope_client_wait_seconds_total", "seconds",
        "Connections times the time that their requests waited. Divided by commands: the mean wait of a command."),
    REQUESTS_WAITED: counter("evictscope_requests_waited_total", "times",
        "Times that a request waited for longer than over, in seconds.")
        .labels(&["over"]),
    CLIENT_WAIT_LONGEST: gauge("evictscope_client_wait_longest_seconds", "seconds",
        "The longest time that a request waited, in the last 5 minutes."),
    CLIENTS_WAITING: gauge("evictscope_clients_waiting", "connections",
        "Connections in which requests waited, at the last look."),
    CLIENTS_CONNECTED: gauge("evictscope_clients_connected", "connections",
        "Connections of clients, accepted or not, at the last look."),
    CLIENTS_GAVE_UP: counter("evictscope_clients_gave_up_total", "connections",
        "Connections that their client closed while a request of theirs waited."),
    CLIENTS_NOT_SEEN: gauge("evictscope_clients_not_seen", "connections",
        "Connections whose requests cannot be seen, at the last look: by SMC, or by MPTCP before Linux 6.13. No \
        series where there are none."),
    UNANSWERED: gauge("evictscope_unanswered_seconds", "seconds",
        "For how long nobody has been answered although requests wait, at the last look. Clients that are blocked on \
        purpose do not wait."),
    BURSTS: counter("evictscope_bursts_total", "bursts",
        "Finished bursts: one visit to saturated, and the reclaim that follows it. self_amplifying: it stalled \
        clients and fed on itself: evictions took the CPU time that the main thread lacked, more and more requests \
        waited, and client buffers grew. stalling: its evictions stalled clients. plain: they stalled none. unknown: \
        what decides is not known.")
        .labels(&["kind"])
        .needs(&[whole(EVICTING_CALLS), part(r#"{kind="self_amplifying"}"#, &[Of(StatClientsTypeMemory)]).weaker()]),
    BURST_OPEN: gauge("evictscope_burst_open", "0 or 1",
        "1 while a burst is under way, up to the end of its reclaim.")
        .needs(&[whole(EVICTING_CALLS)]),
    BURST_DURATION: histogram("evictscope_burst_duration_seconds", "seconds",
        "From the first to the last evicting call of each finished burst of 0.5 s or more.")
        .needs(&[whole(EVICTING_CALLS)]),
    RECLAIM_DURATION: histogram("evictscope_reclaim_duration_seconds", "seconds",
        "From the last evicting call of each burst of 0.5 s or more until memory had made four fifths of its whole \
        fall, and stayed there.")
        .needs(&[whole(EVICTING_CALLS), whole(&[Of(UsedMemory)])]),
    BURST_CLIENT_BUFFER_GROWTH: counter("evictscope_burst_client_buffer_growth_bytes_total", "bytes",
        "From the client buffers at the start of each finished burst of 0.5 s or more to the highest until the end \
        of its reclaim, added up.")
        .needs(&[whole(EVICTING_CALLS), whole(&[Of(StatClientsTypeMemory)])]),
    BURST_RECLAIMED: counter("evictscope_burst_reclaimed_bytes_total", "bytes",
        "By how much memory fell after the last evicting call of each finished burst of 0.5 s or more, added up.")
        .needs(&[whole(EVICTING_CALLS), whole(&[Of(UsedMemory)])]),
    LAST_BURST_START: gauge("evictscope_last_burst_start_timestamp_seconds", "seconds since 1970",
        "When the last burst began, finished or not: seconds since 1970.")
        .needs(&[whole(EVICTING_CALLS)]),
    SERVER_INFO: gauge("evictscope_server_info", "1",
        "1 for each server that is watched; exe is the name that it was started with, file what it runs.")
        .labels(&[
            "pid", "exe", "file", "build_id", "product", "version", "container_id", "container_name", "pod_uid",
            "pod_namespace", "pod_name", "cgroup",
        ])
        .needs(&[part("{version}", &[Item("version")])]),
    PROBE_PLAN: gauge("evictscope_probe_plan_info", "1",
        "1 for each variable: how the way to compute it was found. none: not found, and so not exported.")
        .labels(&["variable", "method"]),
    PROBE_MODE: gauge("evictscope_probe_mode", "0 or 1",
        "1 for the probe mode that the server is in, 0 for the others. With --probe-mode auto it follows what the \
        probes cost.")
        .labels(&["mode"]),
    PROBE_HITS: counter("evictscope_probe_hits_total", "hits",
        "How often each probe was hit.")
        .labels(&["probe"]),
    OVERHEAD: gauge("evictscope_overhead_ratio", "share of the main thread, 0 … 1",
        "What evictscope costs the server, as a share of its main thread, in the last 10 s: hits of probes, and \
        placing them, by what each costs on this machine, measured when the agent started."),
    OVERHEAD_BUDGET: gauge("evictscope_overhead_budget_ratio", "share of the main thread, 0 … 1",
        "The most that evictscope_overhead_ratio may be in probe mode auto: --overhead-budget."),
    FOREIGN_BREAKPOINTS: gauge("evictscope_foreign_breakpoints", "breakpoints",
        "Breakpoints that were in the server's code when it was attached to, and that the kernel did not let \
        evictscope take out: of another tool, or left by an agent that was killed together with its keeper. No \
        series where there were none."),
    READ_FAULTS: counter("evictscope_read_faults_total", "faults",
        "What could not be read from the server's memory (recipe, member, allocator) or from the kernel (map), hits \
        by a process that is not the server (other_process), and evicting calls and expire cycles whose end was not \
        seen (lost_exit). A reason has a series once there was one.")
        .labels(&["reason"]),
    NOT_FOUND: gauge("evictscope_not_found", "0 or 1",
        "1 for each item that was not found in the server's executable, and so is not exported; `evictscope inspect \
        PID` says why.")
        .labels(&["item"]),
    PLAN_WITHDRAWN: gauge("evictscope_plan_withdrawn", "1",
        "1 for the reason for which the probe plan was found wrong at run time and withdrawn for the life of the \
        process. What rests on it is no longer exported. Reasons that begin with expire are about the expire cycle \
        alone, the others about eviction calls.")
        .labels(&["reason"]),
    BUILD_INFO: gauge("evictscope_build_info", "1",
        "1, with the version of this agent, and the commit that a packed one was built from.")
        .labels(&["commit", "version"]),
    SERVERS_UNWATCHED: gauge("evictscope_servers_unwatched", "servers",
        "Servers on this host that cannot be watched, by reason. /api/v1/unwatched has details of each.")
        .labels(&["reason"]),
    LOOP_LAST_TURN: gauge("evictscope_loop_last_turn_timestamp_seconds", "seconds since 1970",
        "When the loop that watches the servers last turned: seconds since 1970. It turns several times a second; \
        /-/healthy says whether it does."),
    SERVERS_ENDED: counter("evictscope_servers_ended_total", "servers",
        "Servers that ended while they were watched, by how: exit, signal, oom (by the OOM killer), or unknown.")
        .labels(&["how"]),
    SERVER_ENDED: gauge("evictscope_server_ended_timestamp_seconds", "seconds since 1970",
        "When a server ended, for an hour after: seconds since 1970. status is its exit status, or the signal that \
        ended it.")
        .labels(&["server", "how", "status", "container_name", "pod_namespace", "pod_name"]),
    RECORD_CAUSE: gauge("evictscope_record_cause_timestamp_seconds", "seconds since 1970",
        "When what the last record was about ended that names this cause, for an hour after: seconds since 1970.")
        .labels(&["server", "cause"]),
    RECORDS: gauge("evictscope_records", "records",
        "Records of bursts, of stalls and of what was asked for that are kept."),
    RECORDS_BYTES: gauge("evictscope_records_bytes", "bytes",
        "Size of the records on disk. At most --keep-records."),
    RECORDS_WRITTEN: counter("evictscope_records_written_total", "records",
        "Records that were written."),
    RECORDS_FAILED: counter("evictscope_records_failed_total", "records",
        "Records that were lost: the disk is full or too slow, or the record is larger than all that may be kept. \
        The log says which."),
}

/// What is lost, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Metrics that have no series, lack a label or one of its values, or do not count everything.
    pub metrics: Vec<String>,
    /// Alerts of `dashboards/rules/alerts.yaml`.
    pub alerts: Vec<&'static str>,
}

/// If the server is not watched.
const EVERYTHING: &str = "evictscope_*";
/// The items without which it is not.
const WATCHED_BY: [Need<'_>; 2] = [Item("plan"), Item("eviction_call")];

/// Returns what is lost if this was not found: first what is not exported, then what is weaker, parts first.
pub fn lost(missing: Need<'_>) -> Lost {
    let metrics = if WATCHED_BY.contains(&missing) { vec![EVERYTHING.to_owned()] } else { lost_metrics(missing) };
    let is_lost = |needed: &String| {
        let family = needed.split('{').next().unwrap_or(needed);
        metrics.iter().any(|lost| lost == needed || lost == family || lost == EVERYTHING)
    };
    let alerts = ALERTS.iter().filter(|alert| alert.needs.iter().any(is_lost));
    Lost { alerts: alerts.map(|alert| alert.name).collect(), metrics }
}

fn lost_metrics(missing: Need<'_>) -> Vec<String> {
    let unchanged = match missing {
        Of(member) => member.line().metric.map(|metric| metric.name.to_owned()),
        Item(_) => None,
    };
    let lost = |is_weaker: bool, is_listed: fn(&Needs) -> bool| {
        let needs = ALL.iter().flat_map(|metric| metric.needs.iter().map(move |needs| (metric.name, needs)));
        let needs = needs.filter(move |(_, needs)| needs.is_weaker == is_weaker && is_listed(needs));
        needs.filter(move |(_, needs)| needs.of.contains(&missing)).map(|(name, needs)| format!("{name}{}", needs.part))
    };
    let weaker = lost(true, |needs| !needs.part.is_empty()).chain(lost(true, |needs| needs.part.is_empty()));
    unchanged.into_iter().chain(lost(false, |_| true)).chain(weaker).collect()
}
