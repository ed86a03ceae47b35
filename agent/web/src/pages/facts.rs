//! What several pages say, in the same words.

use std::time::Duration;

use evictscope_records::{Listed, Occasion, Summary};
use evictscope_telemetry::StallCause;
use maud::{Markup, html};

use super::links;
use super::times::{date_and_time, duration, size};
use crate::exported::ExportedServer;

/// Shows a fact in a list of them.
pub fn fact(name: &str, value: &str) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

/// Returns where a server runs: its container, its pod and its control group, as far as it has them.
pub fn container(server: &ExportedServer) -> impl Iterator<Item = (&'static str, String)> {
    let container = &server.container;
    let cgroup = Some(container.cgroup.clone()).filter(|path| !path.is_empty());
    let facts = [
        ("Container", server.container_name.clone()),
        ("Container id", container.id.clone()),
        ("Pod uid", container.pod_uid.clone()),
        ("Control group", cgroup),
    ];
    facts
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
}

/// Returns the product and its version, as far as they are known.
pub fn version(server: &ExportedServer) -> String {
    let identity = &server.plan.identity;
    let product = identity.product.unwrap_or("product not known");
    match &identity.version {
        Some(version) => format!("{product} {version}"),
        None => product.to_owned(),
    }
}

/// Returns what a record is about.
pub fn occasion(occasion: Occasion) -> &'static str {
    match occasion {
        Occasion::Burst => "Burst",
        Occasion::Stall => "Stall",
        Occasion::Asked => "Record that was asked for",
    }
}

/// Returns a burst's kind in words.
pub fn kind(name: &str) -> &str {
    match name {
        "self_amplifying" => "self-amplifying",
        other => other,
    }
}

/// Names what took a main thread's time while clients waited.
pub fn cause(cause: StallCause) -> &'static str {
    match cause {
        StallCause::Eviction => "evictions",
        StallCause::Expire => "expiry",
        StallCause::Commands => "commands",
        StallCause::Cpu => "waiting for a CPU",
        StallCause::Blocked => "blocked",
        StallCause::Unknown => "cause not known",
    }
}

/// Lists records, and what else is in their directory.
pub fn records(listed: &[Listed], with_server: bool) -> Markup {
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "Began" }
                    @if with_server { th scope="col" { "Server" } }
                    th scope="col" { "What" } th.number scope="col" { "Lasted" } th scope="col" { "Record" }
                }
            }
            tbody {
                @for listed in listed {
                    tr {
                        @match &listed.summary {
                            Ok(summary) => (row(summary, listed.bytes, with_server)),
                            Err(why) => (damaged(listed, why, with_server)),
                        }
                    }
                }
            }
        }
    }
}

fn row(summary: &Summary, bytes: u64, with_server: bool) -> Markup {
    let lasted = Duration::from_micros(summary.ended_us.saturating_sub(summary.began_us));
    html! {
        td.time { (date_and_time(summary.began_us)) }
        @if with_server { td.text { a href=(links::server(&summary.server)) { (summary.server) } } }
        td {
            (occasion(summary.occasion))
            @if let Some(name) = &summary.kind { ", " (kind(name)) }
        }
        td.number { (duration(lasted)) }
        td { a href=(links::record(&summary.id)) { "What happened" } " (" (size(bytes)) ")" }
    }
}

fn damaged(listed: &Listed, why: &str, with_server: bool) -> Markup {
    let name = listed.path.file_name().unwrap_or_default().display();
    html! {
        td { "–" }
        @if with_server { td { "–" } }
        td.text colspan="3" { span.bad { "Cannot be read: " } (name) ": " (why) }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use evictscope_records::fixture::burst_record;
    use evictscope_records::{Listed, Summary};

    use super::records;

    #[test]
    fn records_are_listed_with_those_that_cannot_be_read() {
        let record = burst_record();
        let whole = Listed {
            path: PathBuf::new(),
            bytes: 2_048,
            summary: Ok(Summary {
                id: record.id,
                occasion: record.occasion,
                server: "/run/<b>".to_owned(),
                began_us: record.began_us,
                ended_us: record.ended_us,
                kind: Some("self_amplifying".to_owned()),
            }),
        };
        let damaged = Listed {
            path: PathBuf::from("/var/lib/evictscope/records/<script>"),
            bytes: 1,
            summary: Err("it is <cut> off".to_owned()),
        };
        let listed = records(&[whole, damaged], true).into_string();
        for text in [
            "2023-11-14 22:13:20",
            "href=\"/server/%2Frun%2F%3Cb%3E\">/run/&lt;b&gt;</a>",
            "Burst, self-amplifying",
            "12.0 s",
            "<a href=\"/bursts/20231114T221320.000Z-6379-101\">What happened</a> (2.0 KiB)",
            "Cannot be read: </span>&lt;script&gt;: it is &lt;cut&gt; off",
        ] {
            assert!(listed.contains(text), "{text} in {listed}");
        }
    }
}
