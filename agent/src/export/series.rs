//! The series of one server, for each family whose series need more than a line in the catalogue.
//! A value that is not known has no series.

use std::collections::BTreeSet;

use evictscope_abi::{Activity, Check, Fault, Member, Probe, ResultKind, VARIABLES, Variable};

use super::proto::{Series, Unit, Value, by, histogram, single};
use super::server::ExportedServer;
use crate::telemetry::{
    Accumulator, BrokenInvariant, BurstKind, BurstTotals, Cycle, HistogramTotals, Members, Phase,
    ProbeMode,
};
use evictscope_plan::{EVICTION_CALL, FunctionKind, TracedFunction, variable_name};

/// The kind of eviction calls, their durations, and their number by result.
type Calls<'a> = (&'static str, &'a HistogramTotals, &'a [Accumulator; 4]);

/// Returns the kinds of eviction calls that are counted for this server. Without a goal site,
/// evicting calls cannot be told from no-op calls; without done sites, their ends are not seen.
/// No-op calls that are not counted now have no series: a count that never moves would say that the
/// server makes no such calls.
fn counted_calls(server: &ExportedServer) -> Vec<Calls<'_>> {
    let Some(function) = trusted_function(server) else {
        return Vec::new();
    };
    let (state, totals) = (&server.state, server.state.eviction());
    let mut kinds: Vec<Calls<'_>> = Vec::new();
    if function.inner_span().is_some() {
        kinds.push(("evicting", &totals.inner, &state.evicting_results));
    }
    if server.mode == ProbeMode::EveryCall && function.every_call().is_some() {
        kinds.push(("noop", &totals.noop, &state.noop_results));
    }
    kinds
}

/// Returns the eviction call in the plan.
fn eviction_call(server: &ExportedServer) -> Option<&TracedFunction> {
    server.plan.function(EVICTION_CALL.description)
}

/// Returns the eviction call in the plan, unless the plan was withdrawn.
fn trusted_function(server: &ExportedServer) -> Option<&TracedFunction> {
    eviction_call(server).filter(|_| server.withdrawn.is_none())
}

/// Tells whether the plan has a goal site to make checks at.
fn has_goal(server: &ExportedServer) -> bool {
    eviction_call(server).is_some_and(|function| function.inner_span().is_some())
}

pub(super) fn call_durations(server: &ExportedServer) -> Vec<Series<'_>> {
    let mut series = Vec::new();
    for (kind, durations, _) in counted_calls(server) {
        let value = Value::Histogram(durations, Unit::Seconds);
        series.push(Series::new(&[("kind", kind)], value));
    }
    series
}

pub(super) fn calls(server: &ExportedServer) -> Vec<Series<'_>> {
    const RESULTS: [(&str, ResultKind); 4] = [
        ("ok", ResultKind::Ok),
        ("running", ResultKind::Running),
        ("fail", ResultKind::Fail),
        ("unknown", ResultKind::Unknown),
    ];
    let mut series = Vec::new();
    for (kind, _, results) in counted_calls(server) {
        for (name, result) in RESULTS {
            let count = results[result as usize].count() as f64;
            let labels = [("kind", kind), ("result", name)];
            series.push(Series::new(&labels, Value::Number(count)));
        }
    }
    series
}

/// Returns the histogram of a goal variable, if the plan knows the variable.
pub(super) fn variable<'a>(
    server: &'a ExportedServer,
    variable: Variable,
    totals: &'a HistogramTotals,
) -> Vec<Series<'a>> {
    let is_known = trusted_function(server).is_some_and(|function| {
        function.inner_span().is_some() && function.quantity(variable).is_some()
    });
    histogram(is_known.then_some(totals), Unit::Bytes)
}

pub(super) fn client_buffer_samples(server: &ExportedServer) -> Vec<Series<'_>> {
    let totals = server.state.client_buffers();
    histogram(totals.filter(|_| trusts_members(server)), Unit::Bytes)
}

pub(super) fn client_buffers(server: &ExportedServer) -> Vec<Series<'_>> {
    let classes = server.state.members.and_then(|members| {
        let buffers = members.client_buffers()?;
        Some([
            ("normal", buffers.normal as f64),
            ("replica", buffers.replica as f64),
            ("pubsub", buffers.pubsub as f64),
            ("primary", buffers.primary as f64),
        ])
    });
    let trusted = classes.filter(|_| trusts_members(server));
    by("class", trusted.into_iter().flatten())
}

pub(super) fn client_buffers_peak(server: &ExportedServer) -> Vec<Series<'_>> {
    let peak = server.state.client_buffers_peak();
    let trusted = peak.filter(|_| trusts_members(server));
    single(trusted.map(|bytes| bytes as f64))
}

pub(super) fn used_memory(server: &ExportedServer) -> Vec<Series<'_>> {
    let bytes = server.state.members.as_ref().and_then(Members::used_memory);
    // A failed check of the allocator says that this counter may be the wrong one.
    let bytes = bytes.filter(|_| server.withdrawn != Some(BrokenInvariant::Allocator));
    single(bytes.map(|bytes| bytes as f64))
}

/// Returns the series of one member of `server`.
pub(super) fn member(server: &ExportedServer, member: Member) -> Vec<Series<'_>> {
    let members = server.state.members.filter(|_| trusts_members(server));
    let value = members.and_then(|members| members.get(member));
    single(value.map(|value| value as f64))
}

/// Tells whether the members of `server` are where the plan says. All of them rest on the address of
/// `maxmemory`, by which the layout was recognised.
fn trusts_members(server: &ExportedServer) -> bool {
    server.withdrawn != Some(BrokenInvariant::Maxmemory)
}

/// Returns CPU time by activity. With a withdrawn plan, evicting calls cannot be told from the rest.
pub(super) fn main_thread_cpu(server: &ExportedServer) -> Vec<Series<'_>> {
    let activities = [("eviction", Activity::Eviction), ("other", Activity::Other)];
    let seconds = activities.into_iter().filter_map(|(name, activity)| {
        let nanoseconds = server.state.cpu_ns(activity)?;
        Some((name, nanoseconds as f64 / 1e9))
    });
    by("activity", seconds.filter(|_| server.withdrawn.is_none()))
}

/// Returns a series for each phase, unless phases are not known or the plan was withdrawn.
pub(super) fn by_phase(
    server: &ExportedServer,
    value: fn(&Cycle, Phase) -> f64,
) -> Vec<Series<'_>> {
    let phases = |cycle| Phase::ALL.map(|phase| (phase, value(cycle, phase)));
    by("phase", server.cycle().into_iter().flat_map(phases))
}

pub(super) fn bursts(server: &ExportedServer) -> Vec<Series<'_>> {
    let finished = |cycle: &Cycle| {
        BurstKind::ALL.map(|kind| (kind, cycle.totals.finished[kind as usize] as f64))
    };
    by("kind", server.cycle().into_iter().flat_map(finished))
}

/// Returns one of the histograms over finished bursts.
pub(super) fn burst_histogram(
    server: &ExportedServer,
    totals: fn(&BurstTotals) -> &HistogramTotals,
    unit: Unit,
) -> Vec<Series<'_>> {
    histogram(server.cycle().map(|cycle| totals(&cycle.totals)), unit)
}

pub(super) fn last_burst_start(server: &ExportedServer) -> Vec<Series<'_>> {
    let start = server.cycle().and_then(|cycle| cycle.totals.last_start);
    single(start.map(|start| start.as_secs_f64()))
}

pub(super) fn server_info(server: &ExportedServer) -> Vec<Series<'_>> {
    let identity = &server.plan.identity;
    let labels = [
        ("pid", &*server.pid.to_string()),
        ("exe", &*server.exe.to_string_lossy()),
        // To Prometheus, an empty label is no label.
        ("build_id", identity.build_id.as_deref().unwrap_or("")),
        ("product", identity.product.unwrap_or("")),
        ("version", identity.version.as_deref().unwrap_or("")),
    ];
    vec![Series::new(&labels, Value::Number(1.0))]
}

pub(super) fn plan_info(server: &ExportedServer) -> Vec<Series<'_>> {
    let info = |variable: Variable| {
        let plan = trusted_function(server).and_then(|function| function.quantity(variable));
        let method = plan.map_or("none", |plan| plan.method.name());
        let labels = [("variable", variable_name(variable)), ("method", method)];
        Series::new(&labels, Value::Number(1.0))
    };
    VARIABLES.map(info).into()
}

/// Returns 1 for the probe mode that the server is in; for no mode if the plan was withdrawn.
pub(super) fn mode(server: &ExportedServer) -> Vec<Series<'_>> {
    let is_on = |mode| mode == server.mode && server.withdrawn.is_none();
    by(
        "mode",
        ProbeMode::ALL.map(|mode| (mode, number(is_on(mode)))),
    )
}

pub(super) fn withdrawn(server: &ExportedServer) -> Vec<Series<'_>> {
    let is_reason = |broken| (broken, number(server.withdrawn == Some(broken)));
    by("reason", BrokenInvariant::ALL.map(is_reason))
}

/// Returns 1 for true and 0 for false.
pub(super) fn number(value: bool) -> f64 {
    f64::from(u8::from(value))
}

/// Returns the hits of each probe of each traced function, and those of the sampling program.
pub(super) fn hits(server: &ExportedServer) -> Vec<Series<'_>> {
    let state = &server.state;
    let mut hits = Vec::new();
    for function in &server.plan.functions {
        let FunctionKind { index, description } = function.kind;
        let calls = state.calls.get(index);
        let mut push = |name, probe| {
            let count = calls.map_or(0, |calls| calls.hits[probe as usize].count());
            hits.push((description.probe(name), count as f64));
        };
        if description.inner.is_some() {
            push("enter", Probe::Enter);
            push("return", Probe::Return);
        }
        // Without an inner site, calls are timed from the entry on.
        push(description.inner.unwrap_or("enter"), Probe::Inner);
        push(description.exit, Probe::Exit);
    }
    let samples = state.sample_hits.count() as f64;
    hits.push(("main_thread_sample".to_owned(), samples));
    by("probe", hits)
}

pub(super) fn faults(server: &ExportedServer) -> Vec<Series<'_>> {
    let names = [
        ("recipe", Fault::Recipe),
        ("member", Fault::Member),
        ("allocator", Fault::Allocator),
        ("other_process", Fault::OtherProcess),
        ("cpu_time", Fault::CpuTime),
        ("map", Fault::Map),
    ];
    let faults = &server.state.faults;
    let counted = names.map(|(name, fault)| (name, faults[fault as usize].count() as f64));
    let lost_exits = ("lost_exit", server.state.lost_exits() as f64);
    by("reason", counted.into_iter().chain([lost_exits]))
}

/// Returns 1 for each item that was not found; several reasons may speak of the same item.
pub(super) fn not_found(server: &ExportedServer) -> Vec<Series<'_>> {
    let missing = server.plan.not_found.iter();
    let items: BTreeSet<String> = missing.map(|missing| missing.item.to_string()).collect();
    by("item", items.into_iter().map(|item| (item, 1.0)))
}

/// Returns a series for each check, if the plan has a goal site to make checks at.
pub(super) fn checks<'a>(
    server: &'a ExportedServer,
    counts: &'a [Accumulator; 3],
) -> Vec<Series<'a>> {
    let names = [
        ("allocator", Check::Allocator),
        ("arithmetic", Check::Arithmetic),
        ("maxmemory", Check::Maxmemory),
    ];
    let series = names.map(|(name, check)| (name, counts[check as usize].count() as f64));
    by("check", series.into_iter().filter(|_| has_goal(server)))
}

pub(super) fn allocator_moves(server: &ExportedServer) -> Vec<Series<'_>> {
    let is_counted = has_goal(server) && server.withdrawn.is_none();
    single(is_counted.then(|| server.state.allocator_moved.count() as f64))
}
