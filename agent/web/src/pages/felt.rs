//! What a server's clients felt: how long their requests waited, and what for.

use std::time::Duration;

use evictscope_telemetry::{OVER, Phase, StallCause, StallTime, Waits};
use maud::{Markup, html};

use super::facts::{self, fact};
use super::text::{UNKNOWN, duration, grouped, or_unknown, round};
use crate::exported::ExportedServer;

/// Shown if no look at a server's sockets has succeeded.
const NOT_KNOWN: &str = "How long clients wait is not known: no look at the server's sockets has succeeded. It takes Linux 6.1 or newer \
                         with BTF; the agent's log says what is missing.";

/// What is known about a server's clients, in words.
pub struct Felt {
    /// How many requests waited for longer than each of [`OVER`], the longest first.
    pub over: [String; OVER.len()],
    /// For how long clients were stalled in the last ten minutes, by cause.
    pub stalled_lately: String,
    /// Whether they were stalled then.
    pub is_stalled_lately: bool,
    /// The same by cause, since the agent found the server.
    pub stalled: String,
    /// The longest time that a request waited in the last five minutes.
    pub longest: String,
    /// How many of how many clients are waiting now, and for how long the first of them has been.
    pub waiting: String,
}

impl Felt {
    /// Returns what is known about a server; `None` if it is not known how long its clients wait.
    pub fn of(server: &ExportedServer) -> Option<Self> {
        let state = &server.state;
        let waits = state.known_waits()?;
        let lately = server.timeline().map(|timeline| by_cause(timeline.stall_times(Duration::ZERO)));
        let mut stalled = [Duration::ZERO; StallCause::ALL.len()];
        for cause in StallCause::ALL {
            // A withdrawn plan tells no cause.
            let is_told = server.tells_stalls_by(cause);
            let told = if is_told { cause } else { StallCause::Unknown };
            stalled[told as usize] += state.stalled(cause).unwrap_or_default();
        }
        let mut over = waits.over.map(grouped);
        over.reverse();
        Some(Self {
            over,
            is_stalled_lately: lately.is_some_and(|lately| lately.iter().any(|by| !by.is_zero())),
            stalled_lately: or_unknown(lately, causes),
            stalled: causes(stalled),
            longest: match waits.longest() {
                Duration::ZERO => "none".to_owned(),
                longest => duration(longest),
            },
            waiting: waiting(waits),
        })
    }
}

fn by_cause(stalls: impl Iterator<Item = StallTime>) -> [Duration; StallCause::ALL.len()] {
    let mut stalled = [Duration::ZERO; StallCause::ALL.len()];
    for stall in stalls {
        stalled[stall.by as usize] += Duration::from_micros(stall.length_us());
    }
    stalled
}

/// Writes a time by cause, the longest first.
fn causes(stalled: [Duration; StallCause::ALL.len()]) -> String {
    let mut by: Vec<_> = StallCause::ALL.into_iter().zip(stalled).collect();
    by.retain(|(_, stalled)| !stalled.is_zero());
    by.sort_by_key(|(_, stalled)| std::cmp::Reverse(*stalled));
    let part = |(cause, stalled): &(StallCause, Duration)| format!("{} {}", facts::cause(*cause), duration(*stalled));
    match &*by {
        [] => "not at all".to_owned(),
        [(cause, stalled)] => format!("{}: {}", duration(*stalled), facts::cause(*cause)),
        by => {
            let all: Vec<_> = by.iter().map(part).collect();
            format!("{}: {}", duration(stalled.iter().sum()), all.join(", "))
        }
    }
}

fn waiting(waits: &Waits) -> String {
    let connected = grouped(waits.connected);
    match (waits.waiting(), waits.connected) {
        (0, 0) => "none is connected".to_owned(),
        (0, _) => format!("none of {connected}"),
        (waiting, _) => format!("{} of {connected}, the first for {}", grouped(waiting), duration(waits.oldest_wait())),
    }
}

pub fn refused(server: &ExportedServer) -> Markup {
    // A call that fails before a read command refuses nothing.
    match (server.refused(), server.failed_calls()) {
        (Some(0), _) | (None, Some(0)) => html! { "none" },
        (Some(refused), _) => html! { span.bad { (grouped(refused)) } },
        (None, Some(_)) => html! { (UNKNOWN) ", but nothing could be evicted" },
        (None, None) => html! { (UNKNOWN) },
    }
}

pub fn section(server: &ExportedServer) -> Markup {
    html! {
        h2 { "What clients felt" }
        @match Felt::of(server) {
            None => {
                dl { (fact("Commands refused", refused(server))) }
                p { (NOT_KNOWN) }
            },
            Some(felt) => (known(server, &felt)),
        }
    }
}

fn known(server: &ExportedServer, felt: &Felt) -> Markup {
    let [second, tenth] = &felt.over;
    html! {
        dl {
            (fact("Commands refused", refused(server)))
            (fact("Requests that waited over 1 s", second))
            (fact("… over 0.1 s", tenth))
            (fact("Stalled in the last 10 minutes", &felt.stalled_lately))
            (fact("Stalled in all", &felt.stalled))
            (fact("Longest wait of the last 5 minutes", &felt.longest))
            (fact("Clients waiting now", &felt.waiting))
        }
        p.note {
            "Commands that may take memory are refused while no key can be evicted. Clients are stalled while a request has \
             waited for 0.1 s, or what " code { "--stall-threshold" } " says. Numbers \
             without a period count from when the agent found the server"
            @if let Some(watched) = watched(server) { ", " (round(watched)) " ago" }
            "."
        }
    }
}

/// Returns for how long the server has been watched; `None` if its phases are not known.
fn watched(server: &ExportedServer) -> Option<Duration> {
    let phases = &server.cycle()?.phases;
    Some(Phase::ALL.iter().map(|phase| phases.time(*phase)).sum())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evictscope_abi::ResultKind;
    use evictscope_telemetry::{BrokenInvariant, Observed, Snapshot, SocketLook, ThreadTimes, Unread};

    use super::{Felt, refused};
    use crate::ExportedServer;
    use crate::fixture::{new_server, partial_server, stalled_server};

    #[test]
    fn causes_that_a_withdrawn_plan_told_are_not_known() {
        let mut server = stalled_server();
        // All of the thread's time since the request came was spent in an evicting call.
        let mut snapshot = Snapshot {
            at: Duration::from_secs(4),
            times: Some(ThreadTimes { cpu_ns: 9_000_000_000, waiting_ns: 0 }),
            look: Some(SocketLook {
                at: Duration::from_secs(4),
                unread: vec![Unread {
                    socket: 9,
                    read_to: 7,
                    answered_to: 0,
                    bytes: 14,
                    came: Some(Duration::from_millis(3_500)),
                }],
                ..SocketLook::default()
            }),
            observed: Observed { evicting: Duration::from_secs(1), noop: Duration::ZERO },
            // It has rested since the stall before.
            rests: vec![Duration::from_millis(3_001)],
            ..Snapshot::default()
        };
        snapshot.counted.calls[0].inner.record(0, 6_000_000_000);
        server.state.apply(&snapshot);
        let stalled = |server: &ExportedServer| Felt::of(server).map(|felt| felt.stalled);
        let known = Some("2.3 s: commands 1.9 s, evictions 400 ms".to_owned());
        assert_eq!(stalled(&server), known);
        server.withdrawn = Some(BrokenInvariant::Arithmetic);
        let unknown = Some("2.3 s: commands 1.9 s, cause not known 400 ms".to_owned());
        assert_eq!(stalled(&server), unknown);
    }

    #[test]
    fn refused_commands_are_said_where_they_are_known() {
        let said = |server: &ExportedServer| refused(server).into_string();
        let mut server = new_server();
        assert_eq!(said(&server), "none");
        let mut snapshot = Snapshot::default();
        snapshot.counted.evictions.evicting_results[ResultKind::Fail as usize] = 1_234;
        server.state.apply(&snapshot);
        assert_eq!(said(&server), "not known, but nothing could be evicted");
        for (refusals, text) in [(5, "none"), (7, "<span class=\"bad\">2</span>")] {
            snapshot.refusals = Some(refusals);
            server.state.apply(&snapshot);
            assert_eq!(said(&server), text);
        }
        assert_eq!(said(&partial_server()), "not known");
    }
}
