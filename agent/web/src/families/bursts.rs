//! The families about phases and bursts. Second observer: the server's own counter of evicted keys, which phases follow
//! while calls are not observed; else only the end-to-end tests compare with it.

use evictscope_model::{Member, catalogue};
use evictscope_telemetry::{BurstKind, Cycle, Phase};

use super::family::{Family, Unit, by, histogram, number, single};
use crate::published::exported::ExportedServer;

pub fn phases(server: &ExportedServer) -> [Family<'_>; 2] {
    let each = |value: fn(&Cycle, Phase) -> f64| {
        let values = move |cycle| Phase::ALL.map(|phase| (phase, value(cycle, phase)));
        server.cycle().into_iter().flat_map(values)
    };
    [
        by(&catalogue::PHASE, each(|cycle, phase| number(cycle.phases.phase == phase))),
        by(&catalogue::PHASE_SECONDS, each(|cycle, phase| cycle.phases.time(phase).as_secs_f64())),
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
        by(&catalogue::BURSTS, finished.into_iter().flatten()),
        single(&catalogue::BURST_OPEN, cycle.map(|cycle| number(cycle.has_open_burst()))),
        histogram(&catalogue::BURST_DURATION, totals.map(|totals| totals.duration.view()), Unit::Seconds),
        histogram(&catalogue::RECLAIM_DURATION, with_memory.map(|totals| totals.reclaim.view()), Unit::Seconds),
        single(&catalogue::BURST_CLIENT_BUFFER_GROWTH, with_buffers.map(|totals| totals.client_buffer_growth as f64)),
        single(&catalogue::BURST_RECLAIMED, with_memory.map(|totals| totals.reclaimed as f64)),
        single(&catalogue::LAST_BURST_START, last_start.map(|start| start.as_secs_f64())),
    ]
}
