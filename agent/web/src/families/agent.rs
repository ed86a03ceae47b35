//! The families about what is watched and how, what was not found, and what watching costs.
//!
//! Second observers, all watched: of hits, the breakpoints in the server's own memory and its counter of evicted keys
//! (`not_run`, `unhit`); of the plan, the invariants of each call. Of a record's causes, the record. Of the cost, only
//! `cargo xtask bench`.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use evictscope_abi::{Fault, Probe, VARIABLES};
use evictscope_model::answers::{UnwatchedReason, UnwatchedServer};
use evictscope_model::catalogue;
use evictscope_plan::{EXPIRE_CYCLE, FunctionKind, variable_name};
use evictscope_records::{Causes, Ending, KeeperCounts};
use evictscope_telemetry::ProbeMode;
use prometheus::proto::MetricFamily;

use super::family::{Family, Series, by, number, single};
use crate::exported::ExportedServer;
use crate::version;

pub fn probes(server: &ExportedServer) -> Vec<Family<'_>> {
    let method = |variable| {
        let function = server.eviction_call();
        let plan = function.and_then(|function| function.quantity(variable));
        plan.map_or("none", |plan| plan.method.name())
    };
    let methods = VARIABLES
        .map(|variable| Series::number(&[("variable", variable_name(variable)), ("method", method(variable))], 1.0));
    // The server is in no mode if its plan was withdrawn, or as long as probes are missing.
    let is_probed = server.withdrawn.is_none() && !server.is_obstructed;
    let is_on = |mode| mode == server.mode && is_probed;
    // Several entries may be about the same item.
    let missing = server.plan.not_found.iter();
    let mut items: BTreeSet<String> = missing.map(|missing| missing.item.to_string()).collect();
    if server.knows_no_expired {
        items.insert("expired_keys".to_owned());
    }
    // One reason may be about both.
    let of_cycles = server.cycles_withdrawn;
    let of_cycles = of_cycles.filter(|_| of_cycles != server.withdrawn);
    let withdrawn = server.withdrawn.into_iter().chain(of_cycles);
    vec![
        Family::new(&catalogue::SERVER_INFO, [info(server)]),
        Family::new(&catalogue::PROBE_PLAN, methods),
        by(&catalogue::PROBE_MODE, ProbeMode::ALL.map(|mode| (mode, number(is_on(mode))))),
        by(&catalogue::PROBE_HITS, hits(server)),
        single(&catalogue::OVERHEAD, server.overhead_ratio),
        single(&catalogue::OVERHEAD_BUDGET, Some(server.overhead_budget_ratio)),
        single(
            &catalogue::FOREIGN_BREAKPOINTS,
            (server.foreign_breakpoints > 0).then_some(server.foreign_breakpoints as f64),
        ),
        by(&catalogue::READ_FAULTS, faults(server)),
        by(&catalogue::NOT_FOUND, items.into_iter().map(|item| (item, 1.0))),
        by(&catalogue::PLAN_WITHDRAWN, withdrawn.map(|broken| (broken, 1.0))),
    ]
}

fn info(server: &ExportedServer) -> Series<'static> {
    let (identity, container) = (&server.plan.identity, &server.container);
    let [name, pod_namespace, pod_name] = names(server);
    let or_empty = |text: &'_ Option<String>| text.clone().unwrap_or_default();
    let labels = [
        ("pid", &*server.pid.to_string()),
        ("exe", &server.command),
        ("file", &*server.exe.to_string_lossy()),
        ("build_id", &or_empty(&identity.build_id)),
        ("product", identity.product.unwrap_or_default()),
        ("version", &or_empty(&identity.version)),
        ("container_id", &or_empty(&container.id)),
        name,
        ("pod_uid", &or_empty(&container.pod_uid)),
        pod_namespace,
        pod_name,
        ("cgroup", &container.cgroup),
    ];
    Series::number(&labels, 1.0)
}

/// Returns the labels that name a server's container and pod. To Prometheus, an empty label is no label.
fn names(server: &ExportedServer) -> [(&'static str, &str); 3] {
    let named = server.container_name.as_ref();
    let pod = named.and_then(|named| named.pod.as_ref());
    [
        ("container_name", named.map_or("", |named| &named.name)),
        ("pod_namespace", pod.map_or("", |pod| &pod.namespace)),
        ("pod_name", pod.map_or("", |pod| &pod.name)),
    ]
}

fn hits(server: &ExportedServer) -> Vec<(String, f64)> {
    let mut hits = Vec::new();
    for function in &server.plan.functions {
        let FunctionKind { index, description } = function.kind;
        let calls = server.state.counted.calls.get(index);
        let mut push = |name, probe| {
            let count = calls.map_or(0, |calls| calls.hits[probe as usize]);
            hits.push((description.probe(name), count as f64));
        };
        // The entry of the expire cycle is never probed.
        if description.inner.is_some() && description != EXPIRE_CYCLE.description {
            push("enter", Probe::Enter);
            push("return", Probe::Return);
        }
        // Without an inner site, calls are timed from the entry on.
        push(description.inner.unwrap_or("enter"), Probe::Inner);
        push(description.exit, Probe::Exit);
    }
    hits
}

fn faults(server: &ExportedServer) -> impl Iterator<Item = (&'static str, f64)> {
    let names = [
        ("recipe", Fault::Recipe),
        ("member", Fault::Member),
        ("allocator", Fault::Allocator),
        ("other_process", Fault::OtherProcess),
        ("map", Fault::Map),
    ];
    let faults = &server.state.counted.faults;
    let counted = names.map(|(name, fault)| (name, faults[fault as usize]));
    let all = counted.into_iter().chain([("lost_exit", server.state.lost_exits())]);
    all.filter(|(_, count)| *count > 0).map(|(name, count)| (name, count as f64))
}

/// For how long a server that has ended has a series: long enough for a ticket that names it.
const ENDED_SHOWN: Duration = Duration::from_secs(3_600);

pub fn build_info() -> MetricFamily {
    let built = [("commit", version::COMMIT.unwrap_or_default()), ("version", version::NUMBER)];
    exported(&Family::new(&catalogue::BUILD_INFO, [Series::number(&built, 1.0)]))
}

pub fn servers_unwatched(servers: &[UnwatchedServer]) -> MetricFamily {
    let count = |reason| servers.iter().filter(|server| server.reason == reason).count() as f64;
    exported(&by(&catalogue::SERVERS_UNWATCHED, UnwatchedReason::ALL.map(|reason| (reason, count(reason)))))
}

/// Returns the families that say how servers ended. `ended` are the last ones.
///
/// Second observers: the parent of a server, which gets its exit code, and the kernel's log of the OOM killer. Neither
/// is watched.
pub fn servers_ended(
    counts: [(&'static str, u64); Ending::HOW.len()],
    ended: &[Arc<ExportedServer>],
) -> [MetricFamily; 2] {
    let counts = counts.map(|(how, count)| (how, count as f64));
    // The latest of each label comes first.
    let mut labels = HashSet::new();
    let last = ended.iter().filter(|server| server.ended.is_some()).filter(|server| labels.insert(&server.label));
    let series = last.filter(|server| server.read.elapsed() < ENDED_SHOWN).filter_map(|server| {
        let (at, ending) = server.ended?;
        // A server that dies at its start may never have been scraped, so this has names of its own.
        let [name, pod_namespace, pod_name] = names(server);
        let status = ending.status();
        let labels =
            [("how", ending.how()), ("server", &server.label), ("status", &status), name, pod_namespace, pod_name];
        Some(Series::number(&labels, (server.since_1970 + at).as_secs_f64()))
    });
    [exported(&by(&catalogue::SERVERS_ENDED, counts)), exported(&Family::new(&catalogue::SERVER_ENDED, series))]
}

pub fn loop_last_turn(unix_time: Duration) -> MetricFamily {
    exported(&single(&catalogue::LOOP_LAST_TURN, Some(unix_time.as_secs_f64())))
}

pub fn records(counts: KeeperCounts, causes: &Causes) -> impl Iterator<Item = MetricFamily> {
    let causes = causes.iter().map(|((server, cause), ended_us)| {
        Series::number(&[("server", server), ("cause", &cause.to_string())], *ended_us as f64 / 1e6)
    });
    let numbers = [
        (catalogue::RECORDS, counts.records),
        (catalogue::RECORDS_BYTES, counts.bytes),
        (catalogue::RECORDS_WRITTEN, counts.written),
        (catalogue::RECORDS_FAILED, counts.failed),
    ];
    let numbers = numbers.map(|(metric, value)| single(&metric, Some(value as f64)));
    [Family::new(&catalogue::RECORD_CAUSE, causes)].into_iter().chain(numbers).map(|family| exported(&family))
}

fn exported(family: &Family<'_>) -> MetricFamily {
    let mut exported = family.begun();
    family.add_to(&mut exported, None);
    exported
}
