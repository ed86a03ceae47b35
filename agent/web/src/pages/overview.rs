//! `/`: all servers, those that are not watched, and the last records.

use std::sync::Arc;

use evictscope_plan::Member;
use evictscope_records::Listed;
use evictscope_telemetry::ProbeMode;
use maud::{Markup, html};

use super::frame::{Place, page};
use super::times::{UNKNOWN, or_unknown, size};
use super::{facts, links};
use crate::server::ExportedServer;
use crate::unwatched::Unwatched;
use crate::version;

/// Most records on the page; all of them are at `/api/v1/records`.
const RECORDS: usize = 25;

/// What the page shows.
pub struct Overview<'a> {
    /// The servers that are watched; `None` until the first scan is done.
    pub servers: Option<&'a [Arc<ExportedServer>]>,
    /// Those that run here and are not.
    pub unwatched: &'a [Unwatched],
    /// The records, the newest first, or why there are none.
    pub records: Result<&'a [Listed], &'a str>,
}

/// Returns the page. All text is escaped: names and paths come from processes that anybody may have started.
pub fn overview(shown: &Overview<'_>, refresh: Option<u32>) -> String {
    let body = html! {
        h1 { "evictscope " (version::NUMBER) }
        p { "What evictions do to the Redis servers of this host." }
        h2 { "Servers" }
        @match shown.servers {
            None => p { "Looking for servers. Reload this page in a moment." },
            Some([]) => p { "No server is watched at present." },
            Some(servers) => (table(servers)),
        }
        @if !shown.unwatched.is_empty() {
            h2 { "Not watched" }
            ul {
                @for server in shown.unwatched {
                    li { (server.server) " (pid " (server.pid) "): " (server.why) }
                }
            }
        }
        h2 { "Records" }
        @match shown.records {
            Ok([]) => p { "There is none yet. One is written after each burst that is not plain, and after each long stall." },
            Ok(records) => {
                div.scroll { (facts::records(&records[..records.len().min(RECORDS)], true)) }
                @if records.len() > RECORDS {
                    p { (records.len() - RECORDS) " more: " a href="/api/v1/records" { "all of them as JSON" } }
                }
            },
            Err(why) => p { "None are kept: " (why) },
        }
        p.note {
            "The same for programs: " a href="/metrics" { "/metrics" } ", " a href="/api/v1/bursts" { "/api/v1/bursts" } ", "
            a href="/api/v1/records" { "/api/v1/records" } ", " a href="/-/healthy" { "/-/healthy" } ", "
            a href="/-/ready" { "/-/ready" } "."
        }
    };
    page("Servers", Place::Agent { refresh }, &body)
}

fn table(servers: &[Arc<ExportedServer>]) -> Markup {
    html! {
        div.scroll {
            table {
                thead {
                    tr {
                        th scope="col" { "Server" } th scope="col" { "Phase" } th scope="col" { "Memory" }
                        th scope="col" { "Pid" } th scope="col" { "Executable" } th scope="col" { "Version" }
                        th scope="col" { "Probe mode" } th scope="col" { "Not found" }
                    }
                }
                tbody { @for server in servers { (row(server)) } }
            }
        }
    }
}

fn row(server: &ExportedServer) -> Markup {
    let plan = &server.plan;
    html! {
        tr {
            th.text scope="row" {
                a href=(links::server(&server.label)) { (server.label) }
                @if let Some(name) = &server.container_name { br; (name) }
            }
            td {
                @match server.cycle() {
                    Some(cycle) => (cycle.phases.phase),
                    None => (UNKNOWN),
                }
            }
            td.time { (memory(server)) }
            td { (server.pid) }
            td.text { (server.exe.display()) }
            td {
                (plan.identity.product.unwrap_or("unknown")) " "
                (plan.identity.version.as_deref().unwrap_or(""))
            }
            td.words { (mode(server)) }
            td {
                @match plan.not_found.len() {
                    0 => "–",
                    count => { a href={ (links::server(&server.label)) "#not-found" } { (count) } }
                }
            }
        }
    }
}

/// Says how much of its limit a server uses.
fn memory(server: &ExportedServer) -> String {
    let members = server.members();
    match [Member::UsedMemory, Member::Maxmemory].map(|member| members.get(member)) {
        [None, None] => UNKNOWN.to_owned(),
        [used, Some(0)] => format!("{}, no limit", or_unknown(used, size)),
        [used, limit] => format!("{} of {}", or_unknown(used, size), or_unknown(limit, size)),
    }
}

/// Says in which mode a server is probed, or why it is not.
pub(super) fn mode(server: &ExportedServer) -> Markup {
    html! {
        @match server.withdrawn {
            Some(broken) => { "withdrawn: " (broken.meaning()) },
            None => {
                (server.mode)
                @if server.mode == ProbeMode::Sampled {
                    br; "evicting calls are observed for a part of the time"
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use evictscope_telemetry::ProbeMode;

    use super::{Overview, overview};
    use std::sync::Arc;

    use crate::fixture::{new_server, partial_server, unwatched};
    use crate::{ExportedServer, Unwatched};

    fn page(servers: Option<&[Arc<ExportedServer>]>, unwatched: &[Unwatched]) -> String {
        let shown = Overview {
            servers,
            unwatched,
            records: Err("--keep-records is <0>"),
        };
        overview(&shown, None)
    }

    #[test]
    fn the_page_says_what_is_watched() {
        assert!(page(None, &[]).contains("Looking for servers"));
        assert!(page(Some(&[]), &[]).contains("No server is watched"));
        let page = page(Some(&[Arc::new(new_server())]), &[]);
        assert!(!page.contains("Not watched"));
        for text in [
            "<a href=\"/server/6379\">6379</a>",
            "<td class=\"text\">/usr/bin/redis-check-rdb</td>",
            "<td>redis 7.0.15</td>",
            "<td class=\"words\">evicting-only</td>",
        ] {
            assert!(page.contains(text), "{text} in {page}");
        }
    }

    #[test]
    fn a_sampled_server_is_explained() {
        let mut server = new_server();
        let explained = "sampled<br>evicting calls are observed for a part of the time";
        assert!(!page(Some(&[Arc::new(server.clone())]), &[]).contains(explained));
        server.mode = ProbeMode::Sampled;
        assert!(page(Some(&[Arc::new(server)]), &[]).contains(explained));
    }

    #[test]
    fn all_text_is_escaped() {
        let page = page(Some(&[Arc::new(partial_server())]), &[unwatched()]);
        for text in [
            "href=\"/server/%2Frun%2F%22%3Cb%3E%22.sock\">/run/&quot;&lt;b&gt;&quot;.sock</a>",
            "/opt/&lt;redis&gt; &amp; co/redis-server (deleted)",
            "<li>6380 (pid 43): Redis &lt;5&gt; is too old</li>",
            "None are kept: --keep-records is &lt;0&gt;",
        ] {
            assert!(page.contains(text), "{text} in {page}");
        }
        assert!(!page.contains("<b>"));
    }
}
