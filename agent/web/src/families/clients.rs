//! The families about what clients feel, and what the main thread does meanwhile.
//!
//! Second observers: of waits and stalls, the latency that clients measure (not watched); of connections,
//! `connected_clients` of INFO, which has the cluster's and replicas' links apart (not watched); of CPU time,
//! `used_cpu_*` of INFO (not watched).

use evictscope_model::catalogue;
use evictscope_telemetry::{OVER, StallCause, Waits};

use super::family::{Family, by, single};
use crate::exported::ExportedServer;

/// Returns CPU time by activity. If the plan is withdrawn, evicting calls cannot be told from the rest.
pub fn main_thread(server: &ExportedServer) -> [Family<'_>; 3] {
    let thread = Some(&server.state.main_thread).filter(|thread| thread.is_known());
    let told = thread.filter(|_| server.withdrawn.is_none()).map(|thread| {
        [
            ("eviction", server.evicting_call().map(|_| thread.all_eviction_ns())),
            ("expire", server.expire_cycle().map(|_| thread.expire_ns)),
            ("other", Some(thread.all_other_ns())),
            ("spin", Some(thread.spin_ns).filter(|ns| *ns > 0)),
            ("unknown", Some(thread.unknown_ns).filter(|ns| *ns > 0)),
        ]
    });
    let seconds = told.into_iter().flatten();
    [
        by(&catalogue::MAIN_THREAD_CPU, seconds.filter_map(|(name, ns)| Some((name, ns? as f64 / 1e9)))),
        single(&catalogue::MAIN_THREAD_WAITING, thread.map(|thread| thread.waiting_ns as f64 / 1e9)),
        single(&catalogue::CPU_QUOTA_THROTTLED, thread.and_then(|thread| Some(thread.throttled?.as_secs_f64()))),
    ]
}

pub fn families(server: &ExportedServer) -> [Family<'_>; 9] {
    let waits = server.state.known_waits();
    let stalled =
        |cause| Some((cause, server.state.stalled(cause).filter(|_| server.tells_stalls_by(cause))?.as_secs_f64()));
    let waited = |waits: &Waits| OVER.map(|over| over.as_secs_f64()).into_iter().zip(waits.over);
    let waited = waits.into_iter().flat_map(waited);
    [
        by(&catalogue::STALLS, StallCause::ALL.into_iter().filter_map(stalled)),
        single(&catalogue::CLIENT_WAIT, waits.map(Waits::seconds)),
        by(&catalogue::REQUESTS_WAITED, waited.map(|(over, count)| (over, count as f64))),
        single(&catalogue::CLIENT_WAIT_LONGEST, waits.map(|waits| waits.longest().as_secs_f64())),
        single(&catalogue::CLIENTS_WAITING, waits.map(|waits| waits.waiting() as f64)),
        single(&catalogue::CLIENTS_CONNECTED, waits.map(|waits| waits.connected as f64)),
        single(&catalogue::CLIENTS_GAVE_UP, waits.map(|waits| waits.given_up as f64)),
        single(
            &catalogue::CLIENTS_NOT_SEEN,
            waits.and_then(|waits| Some(waits.not_seen as f64).filter(|count| *count > 0.0)),
        ),
        single(&catalogue::UNANSWERED, waits.map(|waits| waits.unanswered.as_secs_f64())),
    ]
}
