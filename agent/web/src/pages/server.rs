//! `/server/NAME`: one server, now and in its last minutes.

use std::time::Duration;

use evictscope_plan::Member;
use evictscope_records::{Listed, RecordId};
use evictscope_telemetry::{Burst, Timeline, microseconds};
use maud::{Markup, html};

use super::columns::{Columns, Span};
use super::frame::{Place, page};
use super::overview::mode;
use super::times::{UNKNOWN, date_and_time, duration, grouped, or_unknown, percent, size};
use super::{facts, heat, links, panels};
use crate::cycles;
use crate::server::ExportedServer;

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
                (now(server))
                h2 { "The last ten minutes" }
                (last_minutes(shown.timeline))
                h2 { "Its last bursts" }
                (bursts(server, shown.records.unwrap_or_default()))
            },
            None => p {
                "It is not watched now: it has ended, or the agent has yet to attach to it. " a href="/" { "All servers" }
                " says which are. What is kept of it follows."
            },
        }
        h2 { "Its records" }
        (records(shown))
        @if let Some(server) = shown.server { (what_is_known(server)) }
    };
    let title = format!("Server {}", shown.label);
    page(&title, Place::Agent { refresh }, &body)
}

/// Says what the server is, and how it is.
fn now(server: &ExportedServer) -> Markup {
    let members = server.members();
    let identity = &server.plan.identity;
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
        ("Memory", or_unknown(memory, size)),
        ("maxmemory", or_unknown(maxmemory, limit)),
        (
            "maxmemory-policy",
            or_unknown(members.policy(), str::to_owned),
        ),
        ("Client buffers", or_unknown(buffers, size)),
        (
            "Longest evicting call of the last 5 minutes",
            or_unknown(longest, duration),
        ),
        ("Evicted keys in all", or_unknown(evicted, grouped)),
        ("Pid", server.pid.to_string()),
        ("Started as", server.command.clone()),
        ("Executable", server.exe.display().to_string()),
        (
            "Version",
            format!(
                "{} {}",
                identity.product.unwrap_or("unknown"),
                identity.version.as_deref().unwrap_or("")
            ),
        ),
    ];
    html! {
        dl {
            @for (name, value) in &facts { (facts::fact(name, value)) }
            @for (name, value) in facts::container(server) { (facts::fact(name, &value)) }
            div { dt { "Expiry" } dd { (expiry(server)) } }
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
    let columns = Columns::of(
        &moments,
        span,
        panels::LEAST_COLUMN_US,
        panels::MOST_COLUMNS,
    );
    html! {
        p.note { (panels::resolution(&columns)) " The tinted time is that of evictions." }
        (panels::all(&columns))
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
    let Some(cycle) = server.cycle() else {
        return html! { p { "Its bursts are not seen." } };
    };
    let mut bursts: Vec<_> = cycle.recent().collect();
    bursts.reverse();
    html! {
        @if cycle.has_open_burst() { p { "A burst, or the reclaim after it, is under way." } }
        @if bursts.is_empty() {
            p { "None has ended since the agent found the server." }
        } @else {
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

/// Lists what was not found, and what it costs to watch the server.
fn what_is_known(server: &ExportedServer) -> Markup {
    html! {
        h2 id="not-found" { "What was not found" }
        @if server.plan.not_found.is_empty() {
            p { "Nothing: all that evictscope looks for was found in this executable." }
        } @else {
            ul { @for missing in &server.plan.not_found { li { (missing.item) ": " (missing.reason) } } }
            p { code { "evictscope inspect " (server.pid) } " says what each of them costs, and what would help." }
        }
        h2 { "What it costs" }
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
        p { "Probe mode: " (mode(server)) "." }
        p {
            "Where the main thread spends its time: "
            code { "go tool pprof 'http://HOST:PORT" (links::about("/debug/pprof/profile", &server.label)) "&seconds=30'" }
        }
    }
}

/// Says what is known of expiry: how many cycles there were, and which share of the keys is stale.
fn expiry(server: &ExportedServer) -> Markup {
    let counted = cycles::counted(server);
    let members = server.members();
    html! {
        @match server.cycles_withdrawn {
            Some(broken) => { "withdrawn: " (broken.meaning()) br; },
            None => @for (of_type, count) in &counted { (of_type) " cycles: " (count) br; },
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
    use evictscope_telemetry::{BrokenInvariant, Burst};

    use super::{ServerView, server};
    use crate::ExportedServer;
    use crate::fixture::{busy_server, partial_server};

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
