//! The series of one server, for each family whose series need more than a line in the catalogue.
//! A value that is not known has no series.

use std::collections::BTreeSet;

use evictscope_abi::{Fault, Probe, ResultKind, VARIABLES, Variable, bounds};
use evictscope_plan::{
    EVICTION_CALL, EXPIRE_CYCLE, FunctionKind, Item, Member, NotFound, TracedFunction,
    variable_name,
};
use evictscope_telemetry::{
    BurstKind, BurstTotals, Cycle, HistogramView, OVER, Phase, ProbeMode, StallCause, Waits,
};

use super::cycles;
use super::proto::{Series, Unit, Value, by, histogram, single};
use super::server::ExportedServer;

/// The kind of eviction calls, their durations, and their number by result.
type Calls<'a> = (&'static str, HistogramView<'a>, &'a [u64; 4]);

/// Returns the kinds of eviction calls that are counted for this server. Without a goal site,
/// evicting calls cannot be told from no-op calls; without done sites, their ends are seen only where
/// every call is probed. Calls that are not counted now have no series: a count that never moves would say
/// that the server makes no such calls.
fn counted_calls(server: &ExportedServer) -> Vec<Calls<'_>> {
    let Some(function) = trusted_function(server) else {
        return Vec::new();
    };
    let (calls, evictions) = (server.state.eviction(), &server.state.counted.evictions);
    let mut kinds: Vec<Calls<'_>> = Vec::new();
    if counts_evicting(server, function) {
        let durations = HistogramView::of(bounds::INNER_NS, &calls.inner);
        kinds.push(("evicting", durations, &evictions.evicting_results));
    }
    if probes_every(server, function) {
        let durations = HistogramView::of(bounds::NOOP_NS, &calls.noop);
        kinds.push(("noop", durations, &evictions.noop_results));
    }
    kinds
}

/// Tells whether every call is probed now.
fn probes_every(server: &ExportedServer, function: &TracedFunction) -> bool {
    server.mode == ProbeMode::EveryCall && function.every_call().is_some()
}

/// Tells whether evicting calls are counted now.
fn counts_evicting(server: &ExportedServer, function: &TracedFunction) -> bool {
    let is_timed = probes_every(server, function) || function.timed_span().is_some();
    function.inner.is_some() && is_timed
}

/// Tells whether it is known how much time evicting calls take.
fn times_evicting(server: &ExportedServer) -> bool {
    trusted_function(server).is_some_and(|function| counts_evicting(server, function))
}

/// Returns the eviction call in the plan.
fn eviction_call(server: &ExportedServer) -> Option<&TracedFunction> {
    server.plan.function(EVICTION_CALL.description)
}

/// Returns the eviction call in the plan, unless the plan was withdrawn.
fn trusted_function(server: &ExportedServer) -> Option<&TracedFunction> {
    eviction_call(server).filter(|_| server.withdrawn.is_none())
}

pub(super) fn call_durations(server: &ExportedServer) -> Vec<Series<'_>> {
    let mut series = Vec::new();
    for (kind, durations, _) in counted_calls(server) {
        let value = Value::Histogram(durations, Unit::Seconds);
        series.push(Series::new(&[("kind", kind)], value));
    }
    series
}

/// Returns for how long each kind of call that is counted was observed.
pub(super) fn observed(server: &ExportedServer) -> Vec<Series<'_>> {
    let observed = server.state.observed;
    let seconds = counted_calls(server).into_iter().map(move |(kind, ..)| {
        let time = match kind {
            "noop" => observed.noop,
            _ => observed.evicting,
        };
        (kind, time.as_secs_f64())
    });
    by("kind", seconds)
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
        // Others than these are not to be expected.
        let usual = if kind == "noop" { 1 } else { 3 };
        for (index, (name, result)) in RESULTS.into_iter().enumerate() {
            let count = results[result as usize] as f64;
            if index >= usual && count == 0.0 {
                continue;
            }
            let labels = [("kind", kind), ("result", name)];
            series.push(Series::new(&labels, Value::Number(count)));
        }
    }
    series
}

/// Returns how many evicting calls found nothing to evict; `None` where their results are not known.
pub(super) fn failed_calls(server: &ExportedServer) -> Option<u64> {
    let function = trusted_function(server)?;
    let is_told = |missing: &NotFound| match missing.item {
        Item::Result(kind) => kind.description != EVICTION_CALL.description,
        _ => true,
    };
    let are_told = server.plan.not_found.iter().all(is_told);
    let results = &server.state.counted.evictions.evicting_results;
    let failed = results[ResultKind::Fail as usize];
    (are_told && counts_evicting(server, function)).then_some(failed)
}

/// Tells whether a variable is noted at evicting calls.
fn notes(server: &ExportedServer, variable: Variable) -> bool {
    trusted_function(server).is_some_and(|function| {
        counts_evicting(server, function) && function.quantity(variable).is_some()
    })
}

pub(super) fn mem_tofree(server: &ExportedServer) -> Vec<Series<'_>> {
    let is_noted = notes(server, Variable::MemTofree);
    histogram(
        is_noted.then(|| server.state.mem_tofree.view()),
        Unit::Bytes,
    )
}

/// Returns `overhead` of the last evicting call; nothing before the first one.
pub(super) fn not_counted_memory(server: &ExportedServer) -> Vec<Series<'_>> {
    let overhead = server.state.counted.evictions.last.overhead.get();
    let noted = overhead.filter(|_| notes(server, Variable::Overhead));
    single(noted.map(|bytes| bytes as f64))
}

/// Returns for how long evicting calls waited for a CPU, where they are counted and the kernel tells.
pub(super) fn cpu_wait(server: &ExportedServer) -> Vec<Series<'_>> {
    let state = &server.state;
    // Both rest on what the kernel says of its own structures, and on what it counts of each thread.
    let is_told = state.waits.is_known() && state.main_thread.is_known();
    let is_counted = times_evicting(server);
    let waited = state.eviction().cpu_wait_ns as f64 / 1e9;
    single((is_told && is_counted).then_some(waited))
}

/// Returns how long the longest evicting call of late took, where they are counted.
pub(super) fn longest_call(server: &ExportedServer) -> Vec<Series<'_>> {
    let is_counted = times_evicting(server);
    let longest = server.state.longest.longest();
    single(is_counted.then_some(longest.as_secs_f64()))
}

pub(super) fn client_buffer_samples(server: &ExportedServer) -> Vec<Series<'_>> {
    let totals = server.state.client_buffers();
    histogram(totals.filter(|_| server.trusts_members()), Unit::Bytes)
}

pub(super) fn client_buffers(server: &ExportedServer) -> Vec<Series<'_>> {
    let classes = server.members().client_buffers().map(|buffers| {
        [
            ("normal", buffers.normal as f64),
            ("replica", buffers.replica as f64),
            ("pubsub", buffers.pubsub as f64),
            ("primary", buffers.primary as f64),
        ]
    });
    by("class", classes.into_iter().flatten())
}

pub(super) fn client_buffers_peak(server: &ExportedServer) -> Vec<Series<'_>> {
    let peak = server.state.client_buffers_peak();
    let trusted = peak.filter(|_| server.trusts_members());
    single(trusted.map(|bytes| bytes as f64))
}

/// Returns the series of a metric that is a member as it is.
pub(super) fn member(server: &ExportedServer, member: Member) -> Vec<Series<'_>> {
    single(server.members().get(member).map(|value| value as f64))
}

pub(super) fn policy_info(server: &ExportedServer) -> Vec<Series<'_>> {
    let policy = server.members().policy();
    by("policy", policy.map(|policy| (policy, 1.0)))
}

/// Returns CPU time by activity. With a withdrawn plan, evicting calls cannot be told from the rest.
pub(super) fn main_thread_cpu(server: &ExportedServer) -> Vec<Series<'_>> {
    let thread = Some(&server.state.main_thread).filter(|thread| thread.is_known());
    let seconds = thread.filter(|_| server.withdrawn.is_none()).map(|thread| {
        let expire = cycles::timed(server).map(|_| ("expire", thread.expire_ns()));
        let eviction = ("eviction", thread.all_eviction_ns());
        [
            Some(eviction).filter(|_| times_evicting(server)),
            expire,
            Some(("other", thread.all_other_ns())),
        ]
    });
    let seconds = seconds.into_iter().flatten().flatten();
    by(
        "activity",
        seconds.map(|(name, ns)| (name, ns as f64 / 1e9)),
    )
}

pub(super) fn main_thread_waiting(server: &ExportedServer) -> Vec<Series<'_>> {
    let thread = Some(&server.state.main_thread).filter(|thread| thread.is_known());
    single(thread.map(|thread| thread.waiting_ns as f64 / 1e9))
}

/// Returns a series for each phase, unless phases are not known or the plan was withdrawn.
pub(super) fn by_phase(
    server: &ExportedServer,
    value: fn(&Cycle, Phase) -> f64,
) -> Vec<Series<'_>> {
    let phases = |cycle| Phase::ALL.map(|phase| (phase, value(cycle, phase)));
    by("phase", server.cycle().into_iter().flat_map(phases))
}

/// Tells whether it is known of stalls that this caused them: of evictions and expire cycles where these are timed.
pub(super) fn is_told(server: &ExportedServer, cause: StallCause) -> bool {
    match cause {
        StallCause::Eviction => times_evicting(server),
        StallCause::Expire => cycles::timed(server).is_some(),
        _ => true,
    }
}

/// Returns for how long clients were stalled by each cause that is told.
pub(super) fn stalls(server: &ExportedServer) -> Vec<Series<'_>> {
    let stalled = |cause| {
        let stalled = server.state.stalled(cause);
        let stalled = stalled.filter(|_| is_told(server, cause))?;
        Some((cause, stalled.as_secs_f64()))
    };
    by("cause", StallCause::ALL.into_iter().filter_map(stalled))
}

/// Returns what is known of its clients' waits.
pub(super) fn wait(server: &ExportedServer, value: fn(&Waits) -> f64) -> Vec<Series<'_>> {
    let waits = server.state.known_waits();
    single(waits.map(value))
}

/// Returns how often requests waited, by the seconds that they waited for at least.
pub(super) fn requests_waited(server: &ExportedServer) -> Vec<Series<'_>> {
    let waits = server.state.known_waits();
    let counts = waits
        .into_iter()
        .flat_map(|waits| OVER.iter().zip(waits.over()));
    by(
        "over",
        counts.map(|(over, count)| (over.as_secs_f64(), count as f64)),
    )
}

pub(super) fn bursts(server: &ExportedServer) -> Vec<Series<'_>> {
    let finished = |cycle: &Cycle| {
        BurstKind::ALL.map(|kind| (kind, cycle.totals.finished[kind as usize] as f64))
    };
    by("kind", server.cycle().into_iter().flat_map(finished))
}

/// Returns the histogram of reclaims, where memory is known.
pub(super) fn reclaims(server: &ExportedServer) -> Vec<Series<'_>> {
    let cycle = cycle_with(server, Member::UsedMemory);
    histogram(
        cycle.map(|cycle| cycle.totals.reclaim.view()),
        Unit::Seconds,
    )
}

/// Returns a sum over finished bursts, where the member that it comes from is known.
pub(super) fn of_bursts(
    server: &ExportedServer,
    sum: fn(&BurstTotals) -> u64,
    member: Member,
) -> Vec<Series<'_>> {
    single(cycle_with(server, member).map(|cycle| sum(&cycle.totals) as f64))
}

/// Returns phases and bursts, where a member was read.
fn cycle_with(server: &ExportedServer, member: Member) -> Option<&Cycle> {
    let is_known = server.members().get(member).is_some();
    server.cycle().filter(|_| is_known)
}

pub(super) fn last_burst_start(server: &ExportedServer) -> Vec<Series<'_>> {
    let start = server.cycle().and_then(|cycle| cycle.totals.last_start);
    single(start.map(|start| start.as_secs_f64()))
}

pub(super) fn server_info(server: &ExportedServer) -> Vec<Series<'_>> {
    let (identity, container) = (&server.plan.identity, &server.container);
    let labels = [
        ("pid", &*server.pid.to_string()),
        ("exe", &server.command),
        ("file", &*server.exe.to_string_lossy()),
        // To Prometheus, an empty label is no label.
        ("build_id", identity.build_id.as_deref().unwrap_or("")),
        ("product", identity.product.unwrap_or("")),
        ("version", identity.version.as_deref().unwrap_or("")),
        ("container_id", container.id.as_deref().unwrap_or("")),
        (
            "container_name",
            server.container_name.as_deref().unwrap_or(""),
        ),
        ("pod_uid", container.pod_uid.as_deref().unwrap_or("")),
        ("cgroup", &container.cgroup),
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
    let withdrawn = server.withdrawn.into_iter().chain(server.cycles_withdrawn);
    by("reason", withdrawn.map(|broken| (broken, 1.0)))
}

/// Returns 1 for true and 0 for false.
pub(super) fn number(value: bool) -> f64 {
    f64::from(u8::from(value))
}

/// Returns the hits of each probe of each traced function.
pub(super) fn hits(server: &ExportedServer) -> Vec<Series<'_>> {
    let state = &server.state;
    let mut hits = Vec::new();
    for function in &server.plan.functions {
        let FunctionKind { index, description } = function.kind;
        let calls = state.counted.calls.get(index);
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
    by("probe", hits)
}

/// Returns what went wrong, as far as something did.
pub(super) fn faults(server: &ExportedServer) -> Vec<Series<'_>> {
    let names = [
        ("recipe", Fault::Recipe),
        ("member", Fault::Member),
        ("allocator", Fault::Allocator),
        ("other_process", Fault::OtherProcess),
        ("map", Fault::Map),
    ];
    let faults = &server.state.counted.faults;
    let counted = names.map(|(name, fault)| (name, faults[fault as usize] as f64));
    let lost_exits = ("lost_exit", server.state.lost_exits() as f64);
    let all = counted.into_iter().chain([lost_exits]);
    by("reason", all.filter(|(_, count)| *count > 0.0))
}

/// Returns 1 for each item that was not found; several reasons may speak of the same item.
pub(super) fn not_found(server: &ExportedServer) -> Vec<Series<'_>> {
    let missing = server.plan.not_found.iter();
    let items: BTreeSet<String> = missing.map(|missing| missing.item.to_string()).collect();
    by("item", items.into_iter().map(|item| (item, 1.0)))
}
