//! The families about expire cycles.
//!
//! Second observers, watched: the server's own time in cycles and its counter of expired keys (`expire_time`,
//! `expire_counter`).

use evictscope_abi::{CycleStats, bounds};
use evictscope_model::catalogue;
use evictscope_plan::{CycleEndPlan, Operand};
use evictscope_telemetry::HistogramView;

use super::family::{Family, Series, Unit, by, single};
use crate::published::exported::ExportedServer;

pub fn families(server: &ExportedServer) -> Vec<Family<'_>> {
    let durations = server.cycles().map(|(name, totals)| {
        let durations = HistogramView::of(bounds::CYCLE_NS, &totals.duration);
        Series::histogram(&[("type", name)], durations, Unit::Seconds)
    });
    vec![
        Family::new(&catalogue::EXPIRE_CYCLE_DURATION, durations),
        by(&catalogue::EXPIRE_CYCLE_KEYS_SAMPLED, counted(server, SAMPLED, server.cycles_of_keys())),
        by(&catalogue::EXPIRE_CYCLE_KEYS_EXPIRED, counted(server, EXPIRED, server.cycles_of_keys())),
        by(&catalogue::EXPIRE_CYCLE_HASHES_SAMPLED, counted(server, SAMPLED, server.cycles_of_fields())),
        by(&catalogue::EXPIRE_CYCLE_HASHES_EXPIRED, counted(server, EXPIRED, server.cycles_of_fields())),
    ]
}

/// A count of keys or hashes in expire cycles.
struct Count {
    /// Where an end site has it.
    place: fn(&CycleEndPlan) -> Option<&Operand>,
    /// What was counted.
    of: fn(&CycleStats) -> u64,
}

/// How many keys or hashes were looked at.
const SAMPLED: Count = Count { place: |end| end.sampled.as_ref(), of: |totals| totals.sampled };
/// How many of those had expired.
const EXPIRED: Count = Count { place: |end| end.expired.as_ref(), of: |totals| totals.expired };

/// Returns a count by type, if every end site has it: otherwise it would miss the cycles that end at the others.
fn counted<'s>(
    server: &ExportedServer,
    Count { place, of }: Count,
    cycles: impl Iterator<Item = (&'static str, &'s CycleStats)>,
) -> impl Iterator<Item = (&'static str, f64)> {
    let plan = server.expire_cycle().and_then(|function| function.plan.expire());
    let are_known = plan.is_some_and(|plan| plan.ends.iter().all(|end| place(end).is_some()));
    let counts = cycles.filter(move |_| are_known);
    counts.map(move |(name, totals)| (name, of(totals) as f64))
}

/// Second observers: of the sample, the server's own estimate, which a client that scans all the time starves; of that,
/// the sample. A test compares both with the keys that remain.
pub fn stale(server: &ExportedServer) -> [Family<'static>; 2] {
    [held(server), estimated(server)]
}

fn held(server: &ExportedServer) -> Family<'static> {
    single(&catalogue::EXPIRED_HELD, server.state.expired_held())
}

fn estimated(server: &ExportedServer) -> Family<'static> {
    single(&catalogue::EXPIRE_STALE, server.members().stale_ratio())
}
