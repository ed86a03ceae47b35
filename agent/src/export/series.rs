//! The series of one server in each family. What is not known has no series.

use std::collections::BTreeSet;

use evictscope_abi::{Activity, Check, Fault, Member, Probe, ResultKind, VARIABLES, Variable};
use prometheus::proto::Metric;

use super::proto::{Unit, counter, gauge, histogram};
use super::server::ExportedServer;
use crate::telemetry::{BrokenInvariant, EvictionTotals, Members, ProbeMode};
use evictscope_plan::{EVICTION_CALL, FunctionKind, TracedFunction, variable_name};

/// The kinds of eviction calls that are counted for this server. Without a goal site, evicting
/// calls cannot be told from no-op calls; without done sites, their ends are not seen. No-op calls
/// that are not counted at present have no series: one that does not move would say that no such
/// calls are made.
fn call_kinds(server: &ExportedServer) -> Vec<(&'static str, EvictionTotals<'_>)> {
    let Some(function) = trusted_function(server) else {
        return Vec::new();
    };
    let mut kinds = Vec::new();
    if function.inner_span().is_some() {
        kinds.push(("evicting", server.state.evicting()));
    }
    if server.mode == ProbeMode::EveryCall && function.every_call().is_some() {
        kinds.push(("noop", server.state.noop()));
    }
    kinds
}

/// Returns the eviction call in the plan.
fn eviction_call(server: &ExportedServer) -> Option<&TracedFunction> {
    server.plan.function(EVICTION_CALL.description)
}

/// Returns the same, unless the plan was withdrawn.
fn trusted_function(server: &ExportedServer) -> Option<&TracedFunction> {
    eviction_call(server).filter(|_| server.withdrawn.is_none())
}

/// Tells whether the plan has a goal site to make checks at.
fn has_goal(server: &ExportedServer) -> bool {
    eviction_call(server).is_some_and(|function| function.inner_span().is_some())
}

pub(super) fn call_durations(server: &ExportedServer) -> Vec<Metric> {
    call_kinds(server)
        .into_iter()
        .map(|(kind, calls)| histogram(server, &[("kind", kind)], calls.duration, Unit::Seconds))
        .collect()
}

pub(super) fn calls(server: &ExportedServer) -> Vec<Metric> {
    const RESULTS: [(&str, ResultKind); 4] = [
        ("ok", ResultKind::Ok),
        ("running", ResultKind::Running),
        ("fail", ResultKind::Fail),
        ("unknown", ResultKind::Unknown),
    ];
    let results = |(kind, calls): (&'static str, EvictionTotals<'_>)| {
        RESULTS.map(|(name, result)| {
            let labels = [("kind", kind), ("result", name)];
            counter(server, &labels, calls.results(result) as f64)
        })
    };
    call_kinds(server).into_iter().flat_map(results).collect()
}

/// The histogram of a goal variable, where the plan knows it.
pub(super) fn variable(server: &ExportedServer, variable: Variable) -> Vec<Metric> {
    let is_known = trusted_function(server).is_some_and(|function| {
        function.inner_span().is_some() && function.quantity(variable).is_some()
    });
    server
        .state
        .variable(variable)
        .filter(|_| is_known)
        .map(|totals| histogram(server, &[], totals, Unit::Bytes))
        .into_iter()
        .collect()
}

pub(super) fn client_buffer_samples(server: &ExportedServer) -> Vec<Metric> {
    let totals = server.state.client_buffers();
    let totals = totals.filter(|_| trusts_server_members(server));
    let metric = totals.map(|totals| histogram(server, &[], totals, Unit::Bytes));
    metric.into_iter().collect()
}

pub(super) fn client_buffers(server: &ExportedServer) -> Vec<Metric> {
    let buffers = server.state.members().and_then(Members::client_buffers);
    let Some(buffers) = buffers.filter(|_| trusts_server_members(server)) else {
        return Vec::new();
    };
    [
        ("normal", buffers.normal),
        ("replica", buffers.replica),
        ("pubsub", buffers.pubsub),
        ("primary", buffers.primary),
    ]
    .map(|(class, bytes)| gauge(server, &[("class", class)], bytes as f64))
    .into()
}

pub(super) fn client_buffers_peak(server: &ExportedServer) -> Vec<Metric> {
    let peak = server.state.client_buffers_peak();
    let peak = peak.filter(|_| trusts_server_members(server));
    peak.map(|bytes| gauge(server, &[], bytes as f64))
        .into_iter()
        .collect()
}

pub(super) fn used_memory(server: &ExportedServer) -> Vec<Metric> {
    let bytes = server.state.members().and_then(Members::used_memory);
    // It, or what it was compared with, is not what the plan takes it for.
    let bytes = bytes.filter(|_| server.withdrawn != Some(BrokenInvariant::Allocator));
    bytes
        .map(|bytes| gauge(server, &[], bytes as f64))
        .into_iter()
        .collect()
}

pub(super) fn maxmemory(server: &ExportedServer) -> Vec<Metric> {
    let bytes = member(server, Member::Maxmemory);
    bytes
        .map(|bytes| gauge(server, &[], bytes as f64))
        .into_iter()
        .collect()
}

/// One of the server's own counters.
pub(super) fn mirrored(server: &ExportedServer, of: Member) -> Vec<Metric> {
    let count = member(server, of);
    count
        .map(|count| counter(server, &[], count as f64))
        .into_iter()
        .collect()
}

fn member(server: &ExportedServer, member: Member) -> Option<u64> {
    let members = server.state.members();
    members
        .filter(|_| trusts_server_members(server))?
        .get(member)
}

/// Whether the members of `server` are where the plan says. All of them rest on the address of
/// `maxmemory`: the layout was recognised by it.
fn trusts_server_members(server: &ExportedServer) -> bool {
    server.withdrawn != Some(BrokenInvariant::Maxmemory)
}

/// CPU time by activity; of a plan that was withdrawn, evicting calls cannot be told from the rest.
pub(super) fn main_thread_cpu(server: &ExportedServer) -> Vec<Metric> {
    if server.withdrawn.is_some() {
        return Vec::new();
    }
    [("eviction", Activity::Eviction), ("other", Activity::Other)]
        .into_iter()
        .filter_map(|(name, activity)| {
            let seconds = server.state.cpu_ns(activity)? as f64 / 1e9;
            Some(counter(server, &[("activity", name)], seconds))
        })
        .collect()
}

pub(super) fn server_info(server: &ExportedServer) -> Vec<Metric> {
    let identity = &server.plan.identity;
    let labels = [
        ("pid", &*server.pid.to_string()),
        ("exe", &*server.exe.to_string_lossy()),
        // To Prometheus, an empty label is no label.
        ("build_id", identity.build_id.as_deref().unwrap_or("")),
        ("product", identity.product.unwrap_or("")),
        ("version", identity.version.as_deref().unwrap_or("")),
    ];
    vec![gauge(server, &labels, 1.0)]
}

pub(super) fn plan_info(server: &ExportedServer) -> Vec<Metric> {
    let method = |variable: Variable| {
        let name = variable_name(variable);
        let plan = trusted_function(server).and_then(|function| function.quantity(variable));
        let method = plan.map_or("none", |plan| plan.method.name());
        gauge(server, &[("variable", name), ("method", method)], 1.0)
    };
    VARIABLES.map(method).into()
}

/// The probe mode; none is on where the plan was withdrawn.
pub(super) fn mode(server: &ExportedServer) -> Vec<Metric> {
    ProbeMode::ALL
        .map(|mode| {
            let is_on = mode == server.mode && server.withdrawn.is_none();
            gauge(server, &[("mode", &mode.to_string())], zero_or_one(is_on))
        })
        .into()
}

pub(super) fn withdrawn(server: &ExportedServer) -> Vec<Metric> {
    BrokenInvariant::ALL
        .map(|broken| {
            let is_reason = zero_or_one(server.withdrawn == Some(broken));
            gauge(server, &[("reason", &broken.to_string())], is_reason)
        })
        .into()
}

fn zero_or_one(is_one: bool) -> f64 {
    f64::from(u8::from(is_one))
}

pub(super) fn overhead_ratio(server: &ExportedServer) -> Vec<Metric> {
    let ratio = server.overhead_ratio.map(|ratio| gauge(server, &[], ratio));
    ratio.into_iter().collect()
}

/// The hits of each probe of each traced function, and those of the sampling program.
pub(super) fn hits(server: &ExportedServer) -> Vec<Metric> {
    let state = &server.state;
    let mut hits = Vec::new();
    for function in &server.plan.functions {
        let FunctionKind { index, description } = function.kind;
        let count = |probe| {
            state
                .calls()
                .get(index)
                .map_or(0, |calls| calls.hits(probe))
        };
        if description.inner.is_some() {
            hits.push((description.probe("enter"), count(Probe::Enter)));
            hits.push((description.probe("return"), count(Probe::Return)));
        }
        // Without an inner site, calls are timed from the entry on.
        let inner = description.inner.unwrap_or("enter");
        hits.push((description.probe(inner), count(Probe::Inner)));
        hits.push((description.probe(description.exit), count(Probe::Exit)));
    }
    hits.push(("main_thread_sample".to_owned(), state.sample_hits()));
    hits.iter()
        .map(|(probe, hits)| counter(server, &[("probe", probe)], *hits as f64))
        .collect()
}

pub(super) fn faults(server: &ExportedServer) -> Vec<Metric> {
    let name = |fault| match fault {
        Fault::Recipe => "recipe",
        Fault::Member => "member",
        Fault::Allocator => "allocator",
        Fault::OtherProcess => "other_process",
        Fault::CpuTime => "cpu_time",
        Fault::Map => "map",
    };
    Fault::ALL
        .map(|fault| (name(fault), server.state.faults(fault)))
        .into_iter()
        .chain([("lost_exit", server.state.lost_exits())])
        .map(|(reason, faults)| counter(server, &[("reason", reason)], faults as f64))
        .collect()
}

/// 1 for each item that was not found.
pub(super) fn not_found(server: &ExportedServer) -> Vec<Metric> {
    let missing = server.plan.not_found.iter();
    // Several reasons may speak of one item.
    let items: BTreeSet<String> = missing.map(|missing| missing.item.to_string()).collect();
    items
        .iter()
        .map(|item| gauge(server, &[("item", item)], 1.0))
        .collect()
}

pub(super) fn checks(server: &ExportedServer) -> Vec<Metric> {
    checks_by(server, |check| server.state.checks(check).0)
}

pub(super) fn check_failures(server: &ExportedServer) -> Vec<Metric> {
    checks_by(server, |check| server.state.checks(check).1)
}

pub(super) fn allocator_moves(server: &ExportedServer) -> Vec<Metric> {
    if !has_goal(server) || server.withdrawn.is_some() {
        return Vec::new();
    }
    let moves = server.state.allocator_moved();
    vec![counter(server, &[], moves as f64)]
}

/// One series for each check, where the plan has a goal site to make them at.
fn checks_by(server: &ExportedServer, count: impl Fn(Check) -> u64) -> Vec<Metric> {
    if !has_goal(server) {
        return Vec::new();
    }
    [
        ("allocator", Check::Allocator),
        ("arithmetic", Check::Arithmetic),
        ("maxmemory", Check::Maxmemory),
    ]
    .map(|(name, check)| counter(server, &[("check", name)], count(check) as f64))
    .into()
}
