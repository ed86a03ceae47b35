//! The families about what clients feel, and what the main thread does meanwhile.
//!
//! Second observers: of waits and stalls, the latency that clients measure (not watched); of connections,
//! `connected_clients` of INFO, which has the cluster's and replicas' links apart (not watched); of CPU time,
//! `used_cpu_*` of INFO (not watched).

use evictscope_telemetry::{OVER, StallCause, Waits};

use super::family::{Family, by, single};
use crate::published::exported::ExportedServer;

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
        by(
            "evictscope_main_thread_cpu_seconds_total",
            "CPU time of the main thread since the process was found: inside evicting calls, inside expire \
             cycles, elsewhere, and spinning for io-threads. Where a server has io-threads and no account of its own of active time, \
             it is unknown what was work. While evicting calls are not observed, in the probe mode sampled, their share of it \
             is taken to be that of the last seconds in which they were.",
            "activity",
            seconds.filter_map(|(name, ns)| Some((name, ns? as f64 / 1e9))),
        ),
        single(
            "evictscope_main_thread_waiting_seconds_total",
            "Time since the process was found in which the main thread was ready to run and had no CPU.",
            thread.map(|thread| thread.waiting_ns as f64 / 1e9),
        ),
        single(
            "evictscope_cpu_quota_throttled_seconds_total",
            "Time since the process was found in which a CPU quota of its control groups was used up, of all CPUs together.",
            thread.and_then(|thread| Some(thread.throttled?.as_secs_f64())),
        ),
    ]
}

pub fn families(server: &ExportedServer) -> [Family<'_>; 9] {
    let waits = server.state.known_waits();
    let stalled = |cause| {
        let stalled = server.state.stalled(cause);
        let told = stalled.filter(|_| server.tells_stalls_by(cause))?;
        Some((cause, told.as_secs_f64()))
    };
    let waited = |waits: &Waits| OVER.map(|over| over.as_secs_f64()).into_iter().zip(waits.over());
    let waited = waits.into_iter().flat_map(waited);
    [
        by(
            "evictscope_stall_seconds_total",
            "Time in which some client was stalled: a request had waited for 0.1 s or longer (--stall-threshold). \
             cause: what took most of the main thread's time since that request came. Counted as it happens.",
            "cause",
            StallCause::ALL.into_iter().filter_map(stalled),
        ),
        single(
            "evictscope_client_wait_seconds_total",
            "Connections times the time that their requests waited. Divided by commands: the mean wait of a command.",
            waits.map(Waits::seconds),
        ),
        by(
            "evictscope_requests_waited_total",
            "Times that a request waited for longer than over, in seconds.",
            "over",
            waited.map(|(over, count)| (over, count as f64)),
        ),
        single(
            "evictscope_client_wait_longest_seconds",
            "The longest time that a request waited, in the last 5 minutes.",
            waits.map(|waits| waits.longest().as_secs_f64()),
        ),
        single(
            "evictscope_clients_waiting",
            "Connections in which requests waited, at the last look.",
            waits.map(|waits| waits.waiting() as f64),
        ),
        single(
            "evictscope_clients_connected",
            "Connections of clients, accepted or not, at the last look.",
            waits.map(|waits| waits.connected() as f64),
        ),
        single(
            "evictscope_clients_gave_up_total",
            "Connections that their client closed while a request of theirs waited.",
            waits.map(|waits| waits.given_up() as f64),
        ),
        single(
            "evictscope_clients_not_seen",
            "Connections whose requests cannot be seen, at the last look: by SMC, or by MPTCP before Linux 6.13. No series \
             where there are none.",
            waits.and_then(|waits| Some(waits.not_seen() as f64).filter(|count| *count > 0.0)),
        ),
        single(
            "evictscope_unanswered_seconds",
            "For how long nobody has been answered although requests wait, at the last look. Clients that are blocked on \
             purpose do not wait.",
            waits.map(|waits| waits.unanswered().as_secs_f64()),
        ),
    ]
}
