//! `/server/NAME`: one server, now and in its last minutes.

use std::time::Duration;

use evictscope_model::Member;
use evictscope_records::Listed;
use evictscope_telemetry::{Candidate, Cycle, Timeline, found_share, microseconds};
use maud::{Markup, html};

use super::columns::Columns;
use super::facts::{self, fact};
use super::frame::{Place, page};
use super::span::Span;
use super::times::{date_and_time, duration, grouped, limit, or_unknown, percent, round, size};
use super::{bursts, felt, links, margins, panels, work};
use crate::published::exported::ExportedServer;

/// How much of the last minutes is drawn.
const MINUTES: Duration = Duration::from_secs(600);
/// The most records on the page.
const MOST: usize = 50;

/// What the page shows. All of it is a copy.
pub struct ServerView<'a> {
    /// The server's name in metrics.
    pub label: &'a str,
    /// What is known about it now; `None` if it is not watched.
    pub server: Option<&'a ExportedServer>,
    /// What was last known about an ended server of this name.
    pub ended: Option<&'a ExportedServer>,
    /// Its last ten minutes, if they are known.
    pub timeline: Option<&'a Timeline>,
    /// Its records, the newest first, or why there are none.
    pub records: Result<&'a [Listed], &'a str>,
}

/// Returns the page.
pub fn server(shown: &ServerView<'_>, refresh: Option<u32>) -> String {
    let body = html! {
        h1 { "Redis server " (shown.label) }
        @match shown.server {
            Some(server) => {
                (identity(server))
                (felt::section(server))
                h2 { "Evictions" }
                (evictions(server, shown.timeline))
                h2 { "The last ten minutes" }
                (last_minutes(shown.timeline, server.since_1970))
                (bursts::table(server, shown.records.unwrap_or_default()))
            },
            None => p {
                "It is not watched now: it has ended, or the agent has yet to attach to it. " a href="/" { "All servers" }
                " says which are. What is kept of it follows."
            },
        }
        @if let (None, Some(ended)) = (shown.server, shown.ended) {
            @if let Some((at, ending)) = ended.ended {
                p {
                    "It " (ending) ", on " (date_and_time(microseconds(ended.since_1970 + at))) " UTC: " (ending.why()) "."
                }
            }
            (bursts::table(ended, shown.records.unwrap_or_default()))
        }
        h2 { "Its records" }
        (records(shown))
        @if let Some(server) = shown.server { (work::section(server)) }
    };
    let title = format!("Server {}", shown.label);
    page(&title, Place::Agent { refresh }, &body)
}

/// Says in a line what the server is.
fn identity(server: &ExportedServer) -> Markup {
    html! {
        p.note {
            (facts::version(server)) ", pid " (server.pid)
            @if let Some(container) = &server.container_name {
                ", container " (container.name)
                @if let Some(pod) = &container.pod { " of pod " (pod.namespace) "/" (pod.name) }
            }
        }
    }
}

/// Says what evictions do now, and what decides them.
fn evictions(server: &ExportedServer, timeline: Option<&Timeline>) -> Markup {
    let members = server.members();
    let phase = server.cycle().map(|cycle| cycle.phases.phase);
    let longest = (server.evicting_call()).map(|_| server.state.longest.longest());
    let found = timeline.and_then(|timeline| found_share(timeline.samples(server.since_1970)));
    let member = |member, text: fn(u64) -> String| or_unknown(members.get(member), text);
    html! {
        dl {
            (fact("Phase", or_unknown(phase, |phase| phase.to_string())))
            (fact("Evicted keys in all", member(Member::StatEvictedkeys, grouped)))
            (fact("Longest evicting call of the last 5 minutes", or_unknown(longest, duration)))
            (fact("Memory", member(Member::UsedMemory, size)))
            (fact("maxmemory", member(Member::Maxmemory, limit)))
            (fact("maxmemory-policy", or_unknown(members.policy(), str::to_owned)))
            @if let Some(candidate) = server.candidate() { (fact("In its eviction pool", best(candidate))) }
            (fact("Lookups that found their key, of the last ten minutes", or_unknown(found, percent)))
            (fact("Client buffers", member(Member::StatClientsTypeMemory, size)))
            (fact("Expiry", expiry(server)))
        }
        @if server.cycle().is_some_and(Cycle::has_open_burst) {
            p { "A burst, or the reclaim after it, is under way." }
        }
        (margins::words(server))
    }
}

/// Says what is known about the best key to evict.
fn best(candidate: Candidate) -> String {
    match candidate {
        Candidate::Idle(idle) => format!("a key not used for {}", round(idle)),
        Candidate::Ttl(ttl) => format!("a key with {} to live", round(ttl)),
    }
}

/// Says what is known about expiry: how many cycles there were, and what share of the keys is stale.
fn expiry(server: &ExportedServer) -> Markup {
    let members = server.members();
    html! {
        @match server.cycles_withdrawn {
            Some(broken) => { "withdrawn: " (broken.meaning()) br; },
            None => @for (of_type, cycles) in server.cycles() { (of_type) " cycles: " (cycles.duration.count()) br; },
        }
        @if let Some(hits) = members.get(Member::StatExpiredTimeCapReachedCount) {
            "ended at their time limit: " (hits) br;
        }
        @if let Some(held) = server.state.expired_held() {
            (percent(held)) " of keys with a TTL have expired and are held, by a sample" br;
        }
        @if let Some(ratio) = members.stale_ratio() {
            (percent(ratio)) " by the server's own estimate"
        }
    }
}

fn last_minutes(timeline: Option<&Timeline>, since_1970: Duration) -> Markup {
    let Some(timeline) = timeline else {
        return html! { p { "Its evicting calls are not seen: what was not found, below, says why." } };
    };
    let moments = timeline.moments(Duration::ZERO, Duration::MAX, since_1970);
    let Some(known) = Span::of(&moments) else {
        return html! { p { "Nothing was read yet. Reload this page in a moment." } };
    };
    let from_us = known.to_us.saturating_sub(microseconds(MINUTES));
    let span = Span::new(known.from_us.max(from_us), known.to_us);
    let columns = Columns::of(&moments, span);
    html! {
        p.note { (panels::resolution(&columns)) " The tinted time is that of evictions." }
        (panels::all(&moments, &columns))
    }
}

fn records(shown: &ServerView<'_>) -> Markup {
    html! {
        (facts::records(shown.records, false, MOST))
        @if shown.records.is_ok() && shown.server.is_some() {
            form method="post" action={ (links::server(shown.label)) "/record" } {
                button { "Record now" } " of the last minute and the next half minute: it opens after that."
            }
        }
    }
}
