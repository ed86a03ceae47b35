//! `/`: all servers, those that are not watched, and the last records.

use std::sync::Arc;

use evictscope_model::Member;
use evictscope_model::answers::UnwatchedServer;
use evictscope_records::Listed;
use maud::{Markup, html};

use super::felt::{self, Felt};
use super::frame::{Place, page};
use super::text::{UNKNOWN, grouped, or_unknown, size};
use super::{facts, text};
use crate::exported::ExportedServer;
use crate::version;

/// The most records on the page; all of them are at `/api/v1/records`.
const RECORDS: usize = 25;

/// Returns the page of the servers that are watched (`None` until the first scan is done), those that are not, and the
/// records, the newest first, or why there are none. All text is escaped: names and paths come from processes that
/// anybody may have started.
pub fn overview(
    servers: Option<&[Arc<ExportedServer>]>,
    unwatched: &[UnwatchedServer],
    records: Result<&[Listed], &str>,
    refresh: Option<u32>,
) -> String {
    let body = html! {
        h1 { "evictscope " (version::NUMBER) }
        p { "What clients of this host's Redis servers feel, and what evictions have to do with it." }
        h2 { "Servers" }
        @match servers {
            None => p { "Looking for servers. Reload this page in a moment." },
            Some([]) => p { "No server is watched at present." },
            Some(servers) => (watched(servers)),
        }
        @if !unwatched.is_empty() {
            h2 { "Not watched" }
            ul {
                @for server in unwatched {
                    li { (server.server) " (pid " (server.pid) "): " (server.why) }
                }
            }
        }
        h2 { "Records" }
        (facts::records(records, true, RECORDS))
        p.note {
            "The same for programs: " a href="/metrics" { "/metrics" } ", " a href="/api/v1/bursts" { "/api/v1/bursts" } ", "
            a href="/api/v1/records" { "/api/v1/records" } ", " a href="/-/healthy" { "/-/healthy" } ", "
            a href="/-/ready" { "/-/ready" } "."
        }
    };
    page("Servers", Place::Agent { refresh }, &body)
}

fn watched(servers: &[Arc<ExportedServer>]) -> Markup {
    html! {
        (text::table(Some("servers"), None, &[
            ("Server", false), ("Waited > 1 s", true), ("> 0.1\u{a0}s", true), ("Stalled", false),
            ("Longest wait", true), ("Commands refused", false), ("Waiting now", false), ("Phase", false),
            ("Evicted keys", true), ("Memory", false), ("Missing", false)
        ], servers.iter().map(|server| row(server))))
        p.note {
            "Stalled: in the last ten minutes, and in all where that is more. Longest wait: of the last five minutes. Requests that waited, stalls in \
             all and refused commands are counted since the agent found the server."
        }
    }
}

fn row(server: &ExportedServer) -> Markup {
    let evicted = server.members().get(Member::StatEvictedkeys);
    html! {
        th scope="row" {
            a href=(text::server_link(&server.label)) { (server.label) }
            @if let Some(container) = &server.container_name {
                br; (container.name)
                @if let Some(pod) = &container.pod { " of " (pod.namespace) "/" (pod.name) }
            }
        }
        (impact(server))
        td { (or_unknown(server.cycle(), |cycle| cycle.phases.phase.to_string())) }
        td.number { (or_unknown(evicted, grouped)) }
        td { (memory(server)) }
        td { (missing(server)) }
    }
}

/// Shows what clients felt, in the six cells after the server's name.
fn impact(server: &ExportedServer) -> Markup {
    let felt = Felt::of(server);
    let refused = felt::refused(server);
    html! {
        @match &felt {
            Some(felt) => {
                @for over in &felt.over { td.number { (over) } }
                td.words {
                    @if felt.is_stalled_lately { span.bad { (felt.stalled_lately) } } @else { (felt.stalled_lately) }
                    @if felt.stalled != felt.stalled_lately { br; span.note { "in all " (felt.stalled) } }
                }
                td.number { (felt.longest) }
            },
            None => td colspan="4" { "How long its clients wait is not known." },
        }
        td { (refused) }
        td { (felt.map_or_else(|| UNKNOWN.to_owned(), |felt| felt.waiting)) }
    }
}

/// Says what is not seen of a server, with a link to the reasons.
fn missing(server: &ExportedServer) -> Markup {
    html! {
        @match (server.withdrawn, server.plan.not_found.len()) {
            (Some(broken), _) => { "probes are off: " (broken.meaning()) },
            (None, 0) => "–",
            (None, count) => { a href={ (text::server_link(&server.label)) "#not-found" } { (count) " not found" } },
        }
    }
}

fn memory(server: &ExportedServer) -> String {
    let members = server.members();
    match [Member::UsedMemory, Member::Maxmemory].map(|member| members.get(member)) {
        [None, None] => UNKNOWN.to_owned(),
        [used, Some(0)] => format!("{}, no limit", or_unknown(used, size)),
        [used, limit] if members.limit_applies() == Some(false) => {
            let (used, limit) = (or_unknown(used, size), or_unknown(limit, size));
            format!("{used}; the limit of {limit} does not apply")
        }
        [used, limit] => format!("{} of {}", or_unknown(used, size), or_unknown(limit, size)),
    }
}
