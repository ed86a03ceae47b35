//! The families about eviction calls and what they tell about memory, about phases and bursts, and about expire cycles.
//!
//! Second observers: of calls, the server's counter of evicted keys (watched: `unhit`) and of commands (in tests); of
//! the goal variables, the allocator's counter, `maxmemory` and their sum (watched at each call); of durations, gdb and
//! the lab (in tests); of refused commands, the server's count of errors of all kinds, which are never fewer (watched:
//! `refused`); of phases and bursts, the server's own counter of evicted keys, which phases follow while calls are not
//! observed (else only the end-to-end tests compare with it); of expire cycles, the server's own time in cycles and its
//! counter of expired keys (watched: `expire_time`, `expire_counter`).

use evictscope_abi::{CycleStats, ResultKind, Variable, bounds};
use evictscope_model::{Member, catalogue};
use evictscope_plan::{CycleEndPlan, Operand};
use evictscope_telemetry::{BurstKind, Cycle, HistogramView, Phase};

use super::family::{BYTES, Family, SECONDS, Series, by, histogram, number, single};
use crate::exported::{ExportedServer, OF_KEYS};

const RESULTS: [(&str, ResultKind); 4] = [
    ("ok", ResultKind::Ok),
    ("running", ResultKind::Running),
    ("fail", ResultKind::Fail),
    ("unknown", ResultKind::Unknown),
];

/// A kind of eviction call that is counted. Other kinds have no series: a count that never moves would say that the
/// server makes no such calls.
struct Kind<'a> {
    name: &'static str,
    durations: HistogramView<'a>,
    by_result: &'a [u64; 4],
    /// How many results it normally has: the first ones of [`RESULTS`].
    usual: usize,
    observed: f64,
}

fn counted(server: &ExportedServer) -> Vec<Kind<'_>> {
    let state = &server.state;
    let (calls, evictions) = (state.eviction(), &state.counted.evictions);
    let evicting = server.evicting_call().map(|_| Kind {
        name: "evicting",
        durations: HistogramView::of(bounds::INNER_NS, &calls.inner),
        by_result: &evictions.evicting_results,
        usual: 3,
        observed: state.observed.evicting.as_secs_f64(),
    });
    let noop = server.probes_every_call().then(|| Kind {
        name: "noop",
        durations: HistogramView::of(bounds::NOOP_NS, &calls.noop),
        by_result: &evictions.noop_results,
        usual: 1,
        observed: state.observed.noop.as_secs_f64(),
    });
    evicting.into_iter().chain(noop).collect()
}

impl<'a> Kind<'a> {
    fn durations(&self) -> Series<'a> {
        Series::histogram(&[("kind", self.name)], self.durations, SECONDS)
    }

    fn results(&self) -> impl Iterator<Item = Series<'static>> {
        RESULTS.iter().enumerate().filter_map(|(index, (name, result))| {
            let count = self.by_result[*result as usize] as f64;
            let labels = [("kind", self.name), ("result", *name)];
            (index < self.usual || count > 0.0).then(|| Series::number(&labels, count))
        })
    }
}

pub fn calls(server: &ExportedServer) -> Vec<Family<'_>> {
    let state = &server.state;
    let counted = counted(server);
    let evicting = server.evicting_call();
    let notes = |variable| evicting.is_some_and(|function| function.quantity(variable).is_some());
    // Depends on what the kernel says about its own structures, and on what it counts for each thread.
    let tells_waits = state.waits.is_known() && state.main_thread.is_known();
    let waited = evicting.filter(|_| tells_waits);
    vec![
        Family::new(&catalogue::EVICTION_CALL_DURATION, counted.iter().map(Kind::durations)),
        Family::new(&catalogue::EVICTION_CALLS, counted.iter().flat_map(Kind::results)),
        single(&catalogue::REFUSED_COMMANDS, server.refused().map(|refused| refused as f64)),
        single(&catalogue::EVICTION_CALL_LONGEST, evicting.map(|_| state.longest.longest().as_secs_f64())),
        single(&catalogue::EVICTION_CALL_CPU_WAIT, waited.map(|_| state.eviction().cpu_wait_ns as f64 / 1e9)),
        by(&catalogue::OBSERVED, counted.iter().map(|kind| (kind.name, kind.observed))),
        histogram(&catalogue::MEM_TOFREE, notes(Variable::MemTofree).then(|| state.mem_tofree()), BYTES),
    ]
}

pub fn phases(server: &ExportedServer) -> [Family<'_>; 2] {
    let each = |value: fn(&Cycle, Phase) -> f64| {
        server.cycle().into_iter().flat_map(move |cycle| Phase::ALL.map(|phase| (phase, value(cycle, phase))))
    };
    [
        by(&catalogue::PHASE, each(|cycle, phase| number(cycle.phases.phase == phase))),
        by(&catalogue::PHASE_SECONDS, each(|cycle, phase| cycle.phases.time(phase).as_secs_f64())),
    ]
}

pub fn bursts(server: &ExportedServer) -> Vec<Family<'_>> {
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
        histogram(&catalogue::BURST_DURATION, totals.map(|totals| totals.duration.view()), SECONDS),
        histogram(&catalogue::RECLAIM_DURATION, with_memory.map(|totals| totals.reclaim.view()), SECONDS),
        single(&catalogue::BURST_CLIENT_BUFFER_GROWTH, with_buffers.map(|totals| totals.client_buffer_growth as f64)),
        single(&catalogue::BURST_RECLAIMED, with_memory.map(|totals| totals.reclaimed as f64)),
        single(&catalogue::LAST_BURST_START, last_start.map(|start| start.as_secs_f64())),
    ]
}

pub fn cycles(server: &ExportedServer) -> Vec<Family<'_>> {
    let durations = server.cycles().map(|(name, totals)| {
        let durations = HistogramView::of(bounds::CYCLE_NS, &totals.duration);
        Series::histogram(&[("type", name)], durations, SECONDS)
    });
    vec![
        Family::new(&catalogue::EXPIRE_CYCLE_DURATION, durations),
        by(&catalogue::EXPIRE_CYCLE_KEYS_SAMPLED, counted_cycles(server, SAMPLED, server.cycles().take(OF_KEYS))),
        by(&catalogue::EXPIRE_CYCLE_KEYS_EXPIRED, counted_cycles(server, EXPIRED, server.cycles().take(OF_KEYS))),
        by(&catalogue::EXPIRE_CYCLE_HASHES_SAMPLED, counted_cycles(server, SAMPLED, server.cycles().skip(OF_KEYS))),
        by(&catalogue::EXPIRE_CYCLE_HASHES_EXPIRED, counted_cycles(server, EXPIRED, server.cycles().skip(OF_KEYS))),
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
fn counted_cycles<'s>(
    server: &ExportedServer,
    Count { place, of }: Count,
    cycles: impl Iterator<Item = (&'static str, &'s CycleStats)>,
) -> impl Iterator<Item = (&'static str, f64)> {
    let plan = server.expire_cycle().and_then(|function| function.plan.expire());
    let are_known = plan.is_some_and(|plan| plan.ends.iter().all(|end| place(end).is_some()));
    cycles.filter(move |_| are_known).map(move |(name, totals)| (name, of(totals) as f64))
}

/// Second observers: of the sample, the server's own estimate, which a client that scans all the time starves; of that,
/// the sample. A test compares both with the keys that remain.
pub fn stale(server: &ExportedServer) -> [Family<'static>; 2] {
    [
        single(&catalogue::EXPIRED_HELD, server.state.expired_held()),
        single(&catalogue::EXPIRE_STALE, server.members().stale_ratio()),
    ]
}
