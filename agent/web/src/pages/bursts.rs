//! The last bursts of a server.

use evictscope_records::{Listed, RecordId};
use evictscope_telemetry::{Burst, microseconds};
use maud::{Markup, html};

use super::table::head;
use super::times::{date_and_time, duration, grouped, or_unknown, size};
use super::{facts, links};
use crate::published::exported::ExportedServer;

/// The most bursts on the page.
const MOST: usize = 50;

/// Lists finished bursts, the newest first, each with its record.
pub fn table(server: &ExportedServer, records: &[Listed]) -> Markup {
    let bursts: Vec<_> = server.bursts().rev().collect();
    html! {
        @if !bursts.is_empty() {
            h2 { "Its last bursts" }
            div.scroll {
                table {
                    (head([
                        ("Began", false), ("Lasted", true), ("Kind", false), ("Clients stalled for", true),
                        ("Most waiting", true), ("Evicted keys", true), ("Client buffers grew", true)
                    ]))
                    tbody {
                        @for (burst, record) in bursts.iter().take(MOST) {
                            (burst_row(burst, record.filter(|id| has(records, id))))
                        }
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
    let began = date_and_time(microseconds(burst.started));
    html! {
        tr {
            td.time {
                @match record {
                    Some(id) => a href=(links::record(id)) { (began) },
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
}

/// Returns whether a record is there by now, and still.
fn has(records: &[Listed], id: &RecordId) -> bool {
    let mut summaries = records.iter().filter_map(|listed| listed.summary.as_ref().ok());
    summaries.any(|summary| summary.id == *id)
}
