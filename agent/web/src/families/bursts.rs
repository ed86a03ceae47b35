//! The families about phases and bursts. Second observer: the server's own counter of evicted keys, which phases follow
//! while calls are not observed; else only the end-to-end tests compare with it.

use evictscope_model::Member;
use evictscope_telemetry::{BurstKind, Cycle, Phase};

use super::family::{Family, Unit, by, histogram, number, single};
use crate::published::exported::ExportedServer;

pub fn phases(server: &ExportedServer) -> [Family<'_>; 2] {
    let each = |value: fn(&Cycle, Phase) -> f64| {
        let values = move |cycle| Phase::ALL.map(|phase| (phase, value(cycle, phase)));
        server.cycle().into_iter().flat_map(values)
    };
    [
        by(
            "evictscope_phase",
            "1 for the phase of the eviction cycle that the server is in, 0 for the others.",
            "phase",
            each(|cycle, phase| number(cycle.phases.phase == phase)),
        ),
        by(
            "evictscope_phase_seconds_total",
            "Time spent in each phase since the process was found. Time that cannot be assigned \
             to a phase yet is missing until it can.",
            "phase",
            each(|cycle, phase| cycle.phases.time(phase).as_secs_f64()),
        ),
    ]
}

pub fn families(server: &ExportedServer) -> Vec<Family<'_>> {
    let cycle = server.cycle();
    let totals = cycle.map(|cycle| &cycle.totals);
    // What depends on a member is known only if that member was read.
    let totals_with = |member| totals.filter(|_| server.members().get(member).is_some());
    let with_memory = totals_with(Member::UsedMemory);
    let with_buffers = totals_with(Member::StatClientsTypeMemory);
    let finished = totals.map(|totals| BurstKind::ALL.map(|kind| (kind, totals.finished[kind as usize] as f64)));
    let last_start = totals.and_then(|totals| Some(server.since_1970 + totals.last_start?));
    vec![
        by(
            "evictscope_bursts_total",
            "Finished bursts: one visit to saturated, and the reclaim that follows it. \
             self_amplifying: it stalled clients and fed on itself: evictions took the CPU time that the main thread lacked, \
             more and more requests waited, and client buffers grew. stalling: its evictions stalled clients. plain: they \
             stalled none. unknown: what decides is not known.",
            "kind",
            finished.into_iter().flatten(),
        ),
        single(
            "evictscope_burst_open",
            "1 while a burst is under way, up to the end of its reclaim.",
            cycle.map(|cycle| number(cycle.has_open_burst())),
        ),
        histogram(
            "evictscope_burst_duration_seconds",
            "From the first to the last evicting call of each finished burst of 0.5 s or more.",
            totals.map(|totals| totals.duration.view()),
            Unit::Seconds,
        ),
        histogram(
            "evictscope_reclaim_duration_seconds",
            "From the last evicting call of each burst of 0.5 s or more until memory had made \
             four fifths of its whole fall, and stayed there.",
            with_memory.map(|totals| totals.reclaim.view()),
            Unit::Seconds,
        ),
        single(
            "evictscope_burst_client_buffer_growth_bytes_total",
            "From the client buffers at the start of each finished burst of 0.5 s or more to the highest \
             until the end of its reclaim, added up.",
            with_buffers.map(|totals| totals.client_buffer_growth as f64),
        ),
        single(
            "evictscope_burst_reclaimed_bytes_total",
            "By how much memory fell after the last evicting call of each finished burst of 0.5 s or \
             more, added up.",
            with_memory.map(|totals| totals.reclaimed as f64),
        ),
        single(
            "evictscope_last_burst_start_timestamp_seconds",
            "When the last burst began, finished or not: seconds since 1970.",
            last_start.map(|start| start.as_secs_f64()),
        ),
    ]
}
