//! The families about expire cycles.
//!
//! Second observers, watched: the server's own time in cycles and its counter of expired keys (`expire_time`,
//! `expire_counter`).

use evictscope_abi::{CycleStats, bounds};
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
        Family::new(
            "evictscope_expire_cycle_duration_seconds",
            "Wall time of expire cycles, activeExpireCycle(), from behind the early returns on. slow: made by \
             the cron, fast: before the event loop sleeps; _fields: Valkey's jobs for fields of hashes.",
            durations,
        ),
        by(
            "evictscope_expire_cycle_keys_sampled_total",
            "Keys with a time to live that expire cycles looked at.",
            "type",
            counted(server, SAMPLED, server.cycles_of_keys()),
        ),
        by(
            "evictscope_expire_cycle_keys_expired_total",
            "Keys of those that had expired, which they deleted. Keys that expire when a command asks for them \
             are only in evictscope_expired_keys_total.",
            "type",
            counted(server, EXPIRED, server.cycles_of_keys()),
        ),
        by(
            "evictscope_expire_cycle_hashes_sampled_total",
            "Hashes that have fields with a time to live, which Valkey's jobs for such fields looked at.",
            "type",
            counted(server, SAMPLED, server.cycles_of_fields()),
        ),
        by(
            "evictscope_expire_cycle_hashes_expired_total",
            "Hashes of those that had fields which had expired.",
            "type",
            counted(server, EXPIRED, server.cycles_of_fields()),
        ),
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
    single(
        "evictscope_expired_held_ratio",
        "Share of the keys with a time to live that have expired and are still held, of some 400 that were looked at from \
         outside. No series where fewer than 100 keys have one.",
        server.state.expired_held(),
    )
}

fn estimated(server: &ExportedServer) -> Family<'static> {
    single(
        "evictscope_expire_stale_ratio",
        "The server's own estimate, a moving average over expire cycles, of the share of keys with a time \
         to live that have expired and are still held: expired_stale_perc of INFO, as a ratio.",
        server.members().stale_ratio(),
    )
}
