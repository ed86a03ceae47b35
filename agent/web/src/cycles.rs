//! The series of a server's expire cycles. A value that is not known has no series.

use evictscope_abi::{CycleStats, CycleType, bounds};
use evictscope_plan::{EXPIRE_CYCLE, Exit, Operand, TracedFunction};
use evictscope_telemetry::HistogramView;

use super::proto::{Series, Unit, Value, by};
use super::server::ExportedServer;

/// Returns the expire cycle in the plan, where its cycles are timed: they are probed whatever the mode, unless that
/// part of the plan was withdrawn.
pub(super) fn timed(server: &ExportedServer) -> Option<&TracedFunction> {
    let function = server.plan.function(EXPIRE_CYCLE.description)?;
    let is_timed = function.timed_span().is_some() && server.cycles_withdrawn.is_none();
    is_timed.then_some(function)
}

/// Returns the types of cycles that are told apart, by name. Where the plan does not know the type, all cycles are of
/// type `unknown`.
fn types<'a>(
    server: &'a ExportedServer,
    function: &TracedFunction,
) -> impl Iterator<Item = (&'static str, &'a CycleStats)> {
    let is_told = function
        .inner
        .as_ref()
        .is_some_and(|inner| inner.cycle_type.is_some());
    let all = [
        ("slow", CycleType::Slow, is_told),
        ("fast", CycleType::Fast, is_told),
        ("unknown", CycleType::Unknown, !is_told),
    ];
    let told = all.into_iter().filter(|(.., is_counted)| *is_counted);
    let cycles = &server.state.counted.expires.cycles;
    told.map(|(name, of_type, _)| (name, &cycles[of_type as usize]))
}

pub(super) fn durations(server: &ExportedServer) -> Vec<Series<'_>> {
    let Some(function) = timed(server) else {
        return Vec::new();
    };
    types(server, function)
        .map(|(name, totals)| {
            let durations = HistogramView::of(bounds::CYCLE_NS, &totals.duration);
            let value = Value::Histogram(durations, Unit::Seconds);
            Series::new(&[("type", name)], value)
        })
        .collect()
}

/// Returns a count of keys by type, where each end site has it: of a cycle that ends at another one it would lack.
fn keys<'a>(
    server: &'a ExportedServer,
    place: fn(&Exit) -> Option<&Operand>,
    count: fn(&CycleStats) -> u64,
) -> Vec<Series<'a>> {
    let is_known =
        |function: &&TracedFunction| function.exits.iter().all(|exit| place(exit).is_some());
    let counts = timed(server).filter(is_known).map(|function| {
        types(server, function).map(move |(name, totals)| (name, count(totals) as f64))
    });
    by("type", counts.into_iter().flatten())
}

pub(super) fn sampled(server: &ExportedServer) -> Vec<Series<'_>> {
    keys(
        server,
        |exit| exit.sampled.as_ref(),
        |totals| totals.sampled,
    )
}

pub(super) fn expired(server: &ExportedServer) -> Vec<Series<'_>> {
    keys(
        server,
        |exit| exit.expired.as_ref(),
        |totals| totals.expired,
    )
}

/// Returns how many cycles of each type have ended, where they are timed.
pub(super) fn counted(server: &ExportedServer) -> Vec<(&'static str, u64)> {
    let function = timed(server).into_iter();
    let types = function.flat_map(|function| types(server, function));
    types
        .map(|(name, totals)| (name, totals.duration.count()))
        .collect()
}
