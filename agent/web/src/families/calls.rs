//! The families about eviction calls, and what they tell about memory.
//!
//! Second observers: of calls, the server's counter of evicted keys (watched: `unhit`) and of commands (in tests); of
//! the goal variables, the allocator's counter, `maxmemory` and their sum (watched at each call); of durations, gdb and
//! the lab (in tests); of refused commands, the server's count of errors of all kinds, which are never fewer (watched:
//! `refused`).

use evictscope_abi::{ResultKind, Variable, bounds};
use evictscope_model::catalogue;
use evictscope_telemetry::HistogramView;

use super::family::{Family, Series, Unit, by, histogram, single};
use crate::published::exported::ExportedServer;

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
    let evicting = Kind {
        name: "evicting",
        durations: HistogramView::of(bounds::INNER_NS, &calls.inner),
        by_result: &evictions.evicting_results,
        usual: 3,
        observed: state.observed.evicting.as_secs_f64(),
    };
    let noop = Kind {
        name: "noop",
        durations: HistogramView::of(bounds::NOOP_NS, &calls.noop),
        by_result: &evictions.noop_results,
        usual: 1,
        observed: state.observed.noop.as_secs_f64(),
    };
    let evicting = server.evicting_call().map(|_| evicting);
    let noop = server.probes_every_call().then_some(noop);
    evicting.into_iter().chain(noop).collect()
}

impl<'a> Kind<'a> {
    fn durations(&self) -> Series<'a> {
        Series::histogram(&[("kind", self.name)], self.durations, Unit::Seconds)
    }

    fn results(&self) -> impl Iterator<Item = Series<'static>> {
        let of_each = RESULTS.iter().enumerate();
        of_each.filter_map(|(index, (name, result))| {
            let count = self.by_result[*result as usize] as f64;
            let labels = [("kind", self.name), ("result", *name)];
            (index < self.usual || count > 0.0).then(|| Series::number(&labels, count))
        })
    }
}

pub fn families(server: &ExportedServer) -> Vec<Family<'_>> {
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
        histogram(&catalogue::MEM_TOFREE, notes(Variable::MemTofree).then(|| state.mem_tofree.view()), Unit::Bytes),
    ]
}
