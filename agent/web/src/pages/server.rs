//! `/server/NAME`: one server, now and in its last minutes.

use std::time::Duration;

use evictscope_model::Member;
use evictscope_records::{Listed, RecordId};
use evictscope_telemetry::{
    Burst, Candidate, CostOrigin, Cycle, Moment, ProbeMode, Timeline, found_share, microseconds,
};
use maud::{Markup, html};

use super::columns::Columns;
use super::drawing::Span;
use super::facts::{self, fact};
use super::frame::{Place, page};
use super::text::{UNKNOWN, date_and_time, duration, grouped, limit, or_unknown, percent, round, size, table};
use super::{evidence, felt, panels, text};
use crate::exported::ExportedServer;

const MINUTES: Duration = Duration::from_secs(600);
const MOST_RECORDS: usize = 50;

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

pub fn server(shown: &ServerView<'_>, refresh: Option<u32>) -> String {
    let moments = (shown.server.zip(shown.timeline))
        .map_or_else(Vec::new, |(server, timeline)| timeline.moments(Duration::ZERO, Duration::MAX, server.since_1970));
    let body = html! {
        h1 { "Redis server " (shown.label) }
        @match shown.server {
            Some(server) => {
                (identity(server))
                (felt::section(server))
                (evidence::of_server(server, &moments))
                h2 { "Evictions" }
                (evictions(server, shown.timeline))
                h2 { "The last ten minutes" }
                (last_minutes(shown.timeline.map(|_| &moments[..])))
                (bursts(server, shown.records.unwrap_or_default()))
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
            (bursts(ended, shown.records.unwrap_or_default()))
        }
        h2 { "Its records" }
        (records(shown))
        @if let Some(server) = shown.server { (work(server)) }
    };
    page(&format!("Server {}", shown.label), Place::Agent { refresh }, &body)
}

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
        (margins(server))
    }
}

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

fn last_minutes(moments: Option<&[Moment]>) -> Markup {
    let Some(moments) = moments else {
        return html! { p { "Its evicting calls are not seen: what was not found, below, says why." } };
    };
    let Some(known) = Span::of(moments) else {
        return html! { p { "Nothing was read yet. Reload this page in a moment." } };
    };
    let from_us = known.to_us.saturating_sub(microseconds(MINUTES));
    let columns = Columns::of(moments, Span::new(known.from_us.max(from_us), known.to_us));
    panels::all(moments, &columns)
}

fn records(shown: &ServerView<'_>) -> Markup {
    html! {
        (facts::records(shown.records, false, MOST_RECORDS))
        @if shown.records.is_ok() && shown.server.is_some() {
            form method="post" action={ (text::server_link(shown.label)) "/record" } {
                button { "Record now" } " of the last minute and the next half minute: it opens after that."
            }
        }
    }
}

/// A main thread that is busy for more of its time has little to spare.
const CALM: f64 = 0.8;

/// Says when memory reaches its limit, and whether the server would evict calmly there. Says nothing if the server has
/// no limit, evicts, or has not been known for long enough.
pub fn margins(server: &ExportedServer) -> Markup {
    let members = server.members();
    let has_limit = members.get(Member::Maxmemory) > Some(0);
    if has_limit && members.limit_applies() == Some(false) {
        let why = match members.ignores_limit() {
            Some(true) => "replica-ignore-maxmemory",
            _ => "the server loads, or evictions are paused",
        };
        return html! { p { "Its limit does not apply: " (why) "." } };
    }
    let Some((margins, growth)) =
        server.forecasts().filter(|_| has_limit).and_then(|known| Some((known, known.growth()?)))
    else {
        return html! {};
    };
    let [earliest, Some(likely), latest] = server.reaches_limit_in() else {
        return html! { p { "Memory did not grow in the last " (round(growth.over)) "." } };
    };
    if likely == 0.0 {
        return html! { p { "Memory is at its limit." } };
    }
    html! {
        p {
            "If memory grows as in the last " (round(growth.over)) ", it reaches its limit in " (in_time(Some(likely)))
            " (" (in_time(earliest)) " to " (in_time(latest)) "). "
            @match (margins.busy(), margins.evictions_would_add()) {
                (None, _) => "How busy its main thread is there is not known: it may spin for its io-threads.",
                (_, None) => "What evictions would cost there is not known: few keys were evicted here, and the size of its keys is not known.",
                (Some(busy), Some(added)) => {
                    @let load = busy + added.share;
                    @if load < CALM { "There it would evict calmly: the main thread is " }
                    @else if load < 1.0 { "There it would have little CPU time to spare: the main thread is " }
                    @else { strong { "There it would stall its clients" } ": the main thread is " }
                    (percent(busy)) " busy, and evictions would add " (percent(added.share))
                    @if added.measured == CostOrigin::InTheLab { ", by what evicting keys of that size took in the lab" }
                    @if let Some(waits) = server.state.known_waits() { ". Clients: " (grouped(waits.connected)) }
                    "."
                },
            }
        }
    }
}

/// Returns the time until something that may never happen, as text.
fn in_time(seconds: Option<f64>) -> String {
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).map_or_else(|| "never".to_owned(), round)
}

const MOST_BURSTS: usize = 50;

pub fn bursts(server: &ExportedServer, records: &[Listed]) -> Markup {
    let bursts: Vec<_> = server.bursts().rev().collect();
    let rows = bursts.iter().take(MOST_BURSTS);
    let rows = rows.map(|(burst, record)| burst_row(burst, record.filter(|id| has(records, id))));
    html! {
        @if !bursts.is_empty() {
            h2 { "Its last bursts" }
            (table(None, None, &[
                ("Began", false), ("Lasted", true), ("Kind", false), ("Clients stalled for", true),
                ("Most waiting", true), ("Evicted keys", true), ("Client buffers grew", true)
            ], rows))
            @if bursts.len() > MOST_BURSTS {
                p { (bursts.len() - MOST_BURSTS) " more: " a href=(text::query_link("/api/v1/bursts", &server.label)) { "all as JSON" } }
            }
        }
    }
}

fn burst_row(burst: &Burst, record: Option<&RecordId>) -> Markup {
    let began = date_and_time(microseconds(burst.started));
    html! {
        td.time {
            @match record {
                Some(id) => a href=(text::record_link(id)) { (began) },
                None => (began),
            }
        }
        td.number { (duration(burst.duration)) }
        td { (facts::kind(&burst.kind().0.to_string())) }
        td.number { (or_unknown(burst.stalled, duration)) }
        td.number { (or_unknown(burst.clients_waiting_peak, grouped)) }
        td.number { (or_unknown(burst.evicted_keys, grouped)) }
        td.number { (or_unknown(burst.client_buffer_growth(), size)) }
    }
}

/// Returns whether a record is there by now, and still.
fn has(records: &[Listed], id: &RecordId) -> bool {
    records.iter().filter_map(|listed| listed.summary.as_ref().ok()).any(|summary| summary.id == *id)
}

/// Says what is watched and how, what was not found, and what it costs.
pub fn work(server: &ExportedServer) -> Markup {
    html! {
        h2 { "The agent's work" }
        dl {
            (fact("Executable", maud::display(server.exe.display())))
            (fact("Started as", &server.command))
            @for (name, value) in container(server) { (fact(name, value)) }
            (fact("Probe mode", mode(server)))
        }
        @if server.plan.not_found.is_empty() && server.withdrawn.is_none() {
            p { "Everything that evictscope looks for was found in this executable." }
        }
        @if !server.plan.not_found.is_empty() {
            h3 id="not-found" { "What was not found" }
            ul { @for missing in &server.plan.not_found { li { (missing.item) ": " (missing.reason) } } }
            p { code { "evictscope inspect " (server.pid) } " says what each of them costs, and what would help." }
        }
        p {
            @match server.overhead_ratio {
                Some(ratio) => {
                    "In the last ten seconds, the probes took " (percent(ratio)) " of the main thread; the budget is "
                    (percent(server.overhead_budget_ratio)) "."
                },
                None => {
                    "Cost in the last ten seconds: " (UNKNOWN) "; the budget is " (percent(server.overhead_budget_ratio))
                    " of the main thread."
                },
            }
        }
        p {
            "Where the main thread spends its time: "
            code { "go tool pprof 'http://HOST:PORT" (text::query_link("/debug/pprof/profile", &server.label)) "&seconds=30'" }
        }
    }
}

fn mode(server: &ExportedServer) -> Markup {
    html! {
        @match server.withdrawn {
            Some(broken) => { "withdrawn: " (broken.meaning()) },
            None => {
                (server.mode)
                @if server.is_obstructed {
                    br; "some of its probes cannot be placed now: the log says why"
                }
                @if server.mode == ProbeMode::Sampled {
                    br; "evicting calls are observed part of the time"
                }
            },
        }
    }
}

/// Returns where a server runs: its container, its pod and its control group, as far as it has them.
fn container(server: &ExportedServer) -> impl Iterator<Item = (&'static str, &String)> {
    let container = &server.container;
    let named = server.container_name.as_ref();
    let pod = named.and_then(|named| named.pod.as_ref());
    let cgroup = Some(&container.cgroup).filter(|path| !path.is_empty());
    let facts = [
        ("Container", named.map(|named| &named.name)),
        ("Container id", container.id.as_ref()),
        ("Namespace", pod.map(|pod| &pod.namespace)),
        ("Pod", pod.map(|pod| &pod.name)),
        ("Pod uid", container.pod_uid.as_ref()),
        ("Control group", cgroup),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?)))
}
