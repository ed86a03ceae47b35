//! `/server/NAME`: one server, now and in its last minutes.

use std::time::Duration;

use evictscope_plan::Member;
use evictscope_records::{Listed, RecordId};
use evictscope_telemetry::{Burst, Cycle, ProbeMode, Timeline, microseconds};
use maud::{Markup, html};

use super::columns::{Columns, Span};
use super::frame::{Place, page};
use super::times::{UNKNOWN, date_and_time, duration, grouped, or_unknown, percent, size};
use super::{facts, felt, heat, links, panels};
use crate::exported::ExportedServer;

/// What is drawn of the last minutes.
const MINUTES: Duration = Duration::from_secs(600);
/// Most records, and most bursts, on the page.
const MOST: usize = 50;

/// What the page shows. All of it is a copy.
pub struct ServerView<'a> {
    /// The server's name in metrics.
    pub label: &'a str,
    /// What is known of it now; `None` where it is not watched any more.
    pub server: Option<&'a ExportedServer>,
    /// Its last ten minutes, where they are known.
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
                (evictions(server))
                h2 { "The last ten minutes" }
                (last_minutes(shown.timeline))
                (bursts(server, shown.records.unwrap_or_default()))
            },
            None => p {
                "It is not watched now: it has ended, or the agent has yet to attach to it. " a href="/" { "All servers" }
                " says which are. What is kept of it follows."
            },
        }
        h2 { "Its records" }
        (records(shown))
        @if let Some(server) = shown.server { (agents_work(server)) }
    };
    let title = format!("Server {}", shown.label);
    page(&title, Place::Agent { refresh }, &body)
}

/// Says in a line what the server is.
fn identity(server: &ExportedServer) -> Markup {
    html! {
        p.note {
            (facts::version(server)) ", pid " (server.pid)
            @if let Some(name) = &server.container_name { ", container " (name) }
        }
    }
}

/// Says what evictions do now, and what they are decided by.
fn evictions(server: &ExportedServer) -> Markup {
    let members = server.members();
    let phase = server.cycle().map(|cycle| cycle.phases.phase);
    let [memory, maxmemory, buffers, evicted] = [
        Member::UsedMemory,
        Member::Maxmemory,
        Member::StatClientsTypeMemory,
        Member::StatEvictedkeys,
    ]
    .map(|member| members.get(member));
    let longest = server.cycle().map(|_| server.state.longest.longest());
    let limit = |limit| match limit {
        0 => "no limit".to_owned(),
        limit => size(limit),
    };
    let facts = [
        ("Phase", or_unknown(phase, |phase| phase.to_string())),
        ("Evicted keys in all", or_unknown(evicted, grouped)),
        (
            "Longest evicting call of the last 5 minutes",
            or_unknown(longest, duration),
        ),
        ("Memory", or_unknown(memory, size)),
        ("maxmemory", or_unknown(maxmemory, limit)),
        (
            "maxmemory-policy",
            or_unknown(members.policy(), str::to_owned),
        ),
        ("Client buffers", or_unknown(buffers, size)),
    ];
    html! {
        dl {
            @for (name, value) in &facts { (facts::fact(name, value)) }
            div { dt { "Expiry" } dd { (expiry(server)) } }
        }
        @if server.cycle().is_some_and(Cycle::has_open_burst) {
            p { "A burst, or the reclaim after it, is under way." }
        }
    }
}

fn last_minutes(timeline: Option<&Timeline>) -> Markup {
    let Some(timeline) = timeline else {
        return html! { p { "Its evicting calls are not seen: what was not found, below, says why." } };
    };
    let moments = timeline.moments(Duration::ZERO, Duration::MAX);
    let Some(known) = Span::of(&moments) else {
        return html! { p { "Nothing was read yet. Reload this page in a moment." } };
    };
    let span = last(known, MINUTES);
    let columns = Columns::of(&moments, span);
    html! {
        p.note { (panels::resolution(&columns)) " The tinted time is that of evictions." }
        (panels::all(&moments, &columns))
        (heat::figures(timeline, span))
    }
}

/// Returns the end of a span that is no longer than this.
fn last(span: Span, longest: Duration) -> Span {
    let longest = microseconds(longest);
    Span::new(
        span.from_us.max(span.to_us.saturating_sub(longest)),
        span.to_us,
    )
}

/// Lists finished bursts, the newest first, each with its record.
fn bursts(server: &ExportedServer, records: &[Listed]) -> Markup {
    let mut bursts: Vec<_> = server.cycle().into_iter().flat_map(Cycle::recent).collect();
    bursts.reverse();
    html! {
        @if !bursts.is_empty() {
            h2 { "Its last bursts" }
            div.scroll {
                table {
                    thead {
                        tr {
                            th scope="col" { "Began" } th.number scope="col" { "Lasted" } th scope="col" { "Kind" }
                            th.number scope="col" { "Clients stalled for" } th.number scope="col" { "Most waiting" }
                            th.number scope="col" { "Evicted keys" } th.number scope="col" { "Client buffers grew" }
                            th scope="col" { "Record" }
                        }
                    }
                    tbody {
                        @for burst in bursts.iter().take(MOST) { (burst_row(burst, record_of(burst, server, records))) }
                    }
                }
            }
            @if bursts.len() > MOST {
                p { (bursts.len() - MOST) " more: " a href=(links::about("/api/v1/bursts", &server.label)) { "all as JSON" } }
            }
        }
    }
}

fn burst_row(burst: &Burst, record: Option<&RecordId>) -> Markup {
    html! {
        tr {
            td.time { (date_and_time(microseconds(burst.started))) }
            td.number { (duration(burst.duration)) }
            td { (facts::kind(&burst.kind().0.to_string())) }
            td.number { (or_unknown(burst.stalled, duration)) }
            td.number { (or_unknown(burst.clients_waiting_peak, grouped)) }
            td.number { (or_unknown(burst.evicted_keys, grouped)) }
            td.number { (or_unknown(burst.client_buffer_growth(), size)) }
            td {
                @match record {
                    Some(id) => a href=(links::record(id)) { "What happened" },
                    None => "–",
                }
            }
        }
    }
}

/// Returns the name of the record that is about a burst.
fn record_of<'a>(
    burst: &Burst,
    server: &ExportedServer,
    records: &'a [Listed],
) -> Option<&'a RecordId> {
    let began_us = microseconds(burst.started);
    let mut summaries = records
        .iter()
        .filter_map(|listed| listed.summary.as_ref().ok());
    let record =
        summaries.find(|summary| summary.began_us == began_us && summary.server == server.label);
    record.map(|summary| &summary.id)
}

fn records(shown: &ServerView<'_>) -> Markup {
    html! {
        @match shown.records {
            Err(why) => p { "None are kept: " (why) },
            Ok([]) => p { "There is none. One is written after each burst that is not plain, and after each long stall." },
            Ok(records) => {
                div.scroll { (facts::records(&records[..records.len().min(MOST)], false)) }
                @if records.len() > MOST {
                    p { (records.len() - MOST) " more: " a href="/api/v1/records" { "all as JSON" } }
                }
            },
        }
        @if shown.records.is_ok() && shown.server.is_some() {
            p { "A record of now, of the last minute and the next half:" }
            pre { "curl -X POST 'http://HOST:PORT" (links::about("/api/v1/records", shown.label)) "'" }
        }
    }
}

/// Says what is watched and how, what was not found, and what it costs.
fn agents_work(server: &ExportedServer) -> Markup {
    let facts = [
        ("Executable", server.exe.display().to_string()),
        ("Started as", server.command.clone()),
    ];
    html! {
        h2 { "The agent's work" }
        dl {
            @for (name, value) in &facts { (facts::fact(name, value)) }
            @for (name, value) in facts::container(server) { (facts::fact(name, &value)) }
            div { dt { "Probe mode" } dd { (mode(server)) } }
        }
        @if server.plan.not_found.is_empty() {
            p { "Of this executable, all that evictscope looks for was found." }
        } @else {
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
            code { "go tool pprof 'http://HOST:PORT" (links::about("/debug/pprof/profile", &server.label)) "&seconds=30'" }
        }
    }
}

/// Says in which mode a server is probed, or why it is not.
fn mode(server: &ExportedServer) -> Markup {
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

/// Says what is known of expiry: how many cycles there were, and which share of the keys is stale.
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
        @if let Some(ratio) = members.stale_ratio() {
            (format!("{:.0} %", ratio * 100.0)) " of keys stale"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use evictscope_records::fixture::burst_record;
    use evictscope_records::{Listed, Summary};
    use evictscope_telemetry::{BrokenInvariant, Burst, ProbeMode};

    use super::{ServerView, server};
    use crate::ExportedServer;
    use crate::fixture::{busy_server, new_server, partial_server};

    fn view<'a>(label: &'a str) -> ServerView<'a> {
        ServerView {
            label,
            server: None,
            timeline: None,
            records: Ok(&[]),
        }
    }

    #[test]
    fn a_server_with_everything() {
        let exported = busy_server();
        let began = exported
            .cycle()
            .into_iter()
            .flat_map(|cycle| cycle.recent());
        let began = began
            .map(|burst: &Burst| evictscope_telemetry::microseconds(burst.started))
            .next();
        let record = burst_record();
        let records = [Listed {
            path: PathBuf::new(),
            bytes: 1_000,
            summary: Ok(Summary {
                id: record.id,
                occasion: record.occasion,
                server: "6379".to_owned(),
                began_us: began.unwrap_or_default(),
                ended_us: record.ended_us,
                kind: None,
            }),
        }];
        let timeline = exported.timeline().map(|timeline| timeline.clone());
        let page = server(
            &ServerView {
                server: Some(&exported),
                timeline: timeline.as_ref(),
                records: Ok(&records),
                ..view("6379")
            },
            Some(10),
        );
        for text in [
            "<h1>Redis server 6379</h1>",
            "<dt>Phase</dt><dd>not_saturated</dd>",
            "<strong>Memory</strong>",
            "Within each second: evicting calls",
            "self-amplifying",
            "<td><a href=\"/bursts/20231114T221320.000Z-6379-101\">What happened</a></td>",
            "all that evictscope looks for was found",
            "the budget is 1.0 %",
            "content=\"10\"",
        ] {
            assert!(page.contains(text), "{text} in {page}");
        }
        // What clients felt comes first, and what the agent does last.
        let order = [
            "redis 7.0.15, pid 100, container redis",
            "<h2>What clients felt</h2>",
            "<h2>Evictions</h2>",
            "<strong>Stalls</strong>",
            "<strong>Phase</strong>",
            "<strong>Clients waiting</strong>",
            "<strong>Longest wait</strong>",
            "<strong>Memory</strong>",
            "<h2>Its last bursts</h2>",
            "<h2>Its records</h2>",
            "<h2>The agent's work</h2>",
            "<dd>/usr/bin/redis-check-rdb</dd>",
            "<dt>Probe mode</dt><dd>every-call</dd>",
        ];
        let at = |text: &str| {
            page.find(text)
                .unwrap_or_else(|| unreachable!("{text} in {page}"))
        };
        assert!(order.map(at).is_sorted(), "{:?}", order.map(at));
    }

    #[test]
    fn there_is_no_heading_without_anything_below_it() {
        let exported = new_server();
        let page = server(
            &ServerView {
                server: Some(&exported),
                ..view("6379")
            },
            None,
        );
        for heading in ["Its last bursts", "What was not found"] {
            assert!(!page.contains(heading), "{heading} in {page}");
        }
    }

    #[test]
    fn a_sampled_server_is_explained() {
        let mut exported = new_server();
        let page = |exported: &ExportedServer| {
            let view = ServerView {
                server: Some(exported),
                ..view("6379")
            };
            server(&view, None)
        };
        let explained = "sampled<br>evicting calls are observed for a part of the time";
        assert!(!page(&exported).contains(explained));
        exported.mode = ProbeMode::Sampled;
        assert!(page(&exported).contains(explained));
    }

    #[test]
    fn the_page_says_what_expiry_does() {
        let page = |exported: &ExportedServer| {
            let view = ServerView {
                server: Some(exported),
                ..view("6379")
            };
            server(&view, None)
        };
        let whole = page(&busy_server());
        let said = "slow cycles: 3<br>fast cycles: 1<br>ended at their time limit: 2<br>25 % of keys stale";
        assert!(whole.contains(said), "{whole}");
        let withdrawn = page(&ExportedServer {
            cycles_withdrawn: Some(BrokenInvariant::CycleTime),
            ..busy_server()
        });
        let said = "withdrawn: expire cycles do not take as long as the server says";
        assert!(withdrawn.contains(said), "{withdrawn}");
        assert!(!withdrawn.contains("slow cycles"), "{withdrawn}");
    }

    #[test]
    fn a_server_that_has_ended_keeps_its_records() {
        let page = server(&view("/tmp/<script>"), None);
        for text in ["It is not watched now", "There is none."] {
            assert!(page.contains(text), "{text} in {page}");
        }
        assert!(!page.contains("<script"), "{page}");
    }

    #[test]
    fn all_text_is_escaped() {
        let exported = partial_server();
        let page = server(
            &ServerView {
                server: Some(&exported),
                records: Err("<b>"),
                ..view(&exported.label)
            },
            None,
        );
        for text in [
            "<h1>Redis server /run/&quot;&lt;b&gt;&quot;.sock</h1>",
            "<li>eviction_goal: no place where &lt;all&gt; of it is in reach</li>",
            "/opt/&lt;redis&gt; &amp; co/redis-server (deleted)",
            "None are kept: &lt;b&gt;",
        ] {
            assert!(page.contains(text), "{text} in {page}");
        }
        assert!(!page.contains("<b>"));
    }
}
