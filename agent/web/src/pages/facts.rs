//! What several pages say, in the same words.

use std::time::Duration;

use evictscope_records::text::capital;
use evictscope_records::{Listed, Summary};
use evictscope_telemetry::StallCause;
use maud::{Markup, Render, html};

use super::text;
use super::text::{date_and_time, duration, size};
use crate::exported::ExportedServer;

pub fn fact(name: &str, value: impl Render) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

pub fn version(server: &ExportedServer) -> String {
    let identity = &server.plan.identity;
    let product = identity.product.unwrap_or("product not known");
    if let Some(version) = &identity.version { format!("{product} {version}") } else { product.to_owned() }
}

/// Returns a burst's kind, or how a server ended, in words.
pub fn kind(name: &str) -> String {
    name.replace('_', "-")
}

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

/// Lists the newest records of all servers, or of one, and what else is in their directory; or says why there are none.
pub fn records(records: Result<&[Listed], &str>, of_all: bool, most: usize) -> Markup {
    html! {
        @match records {
            Err(why) => p { "None are kept: " (why) },
            Ok([]) => p {
                "There are none" @if of_all { " yet" }
                ". One is written for each burst that is not plain, for long stalls, slow eviction calls, refused commands, swollen client buffers and \
                 lost keys."
            },
            Ok(records) => {
                (list(&records[..records.len().min(most)], of_all))
                @if records.len() > most {
                    p {
                        (records.len() - most) " more: "
                        a href="/api/v1/records" { "all " @if of_all { "of them " } "as JSON" }
                    }
                }
            },
        }
    }
}

fn list(listed: &[Listed], with_server: bool) -> Markup {
    let columns = [("Began", false), ("Server", false), ("What", false), ("Lasted", true), ("Size", true)];
    let shown = columns.into_iter().filter(|(name, _)| with_server || *name != "Server");
    let row = |listed: &Listed| match &listed.summary {
        Ok(summary) => row(summary, listed.bytes, with_server),
        Err(why) => damaged(listed, why, with_server),
    };
    text::table(None, None, &Vec::from_iter(shown), listed.iter().map(row))
}

fn row(summary: &Summary, bytes: u64, with_server: bool) -> Markup {
    let lasted = Duration::from_micros(summary.ended_us.saturating_sub(summary.began_us));
    html! {
        td.time { a href=(text::record_link(&summary.id)) { (date_and_time(summary.began_us)) } }
        @if with_server { td.text { a href=(text::server_link(&summary.server)) { (summary.server) } } }
        td {
            (capital(&summary.occasion.to_string()))
            @if let Some(name) = &summary.kind { ", " (kind(name)) }
        }
        td.number { (duration(lasted)) }
        td.number { (size(bytes)) }
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
