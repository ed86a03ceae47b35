//! The slowest evicting calls of a record.

use evictscope_records::text::seconds;
use evictscope_telemetry::{CallResult, SlowCall};
use maud::{Markup, html};

use super::table::head;
use super::times::{or_unknown, precise_time_of_day, size};

/// How many are shown at first.
const SHOWN: usize = 10;

fn result_name(result: CallResult) -> &'static str {
    match result {
        CallResult::Ok => "within the limit",
        CallResult::Running => "stopped at its time limit",
        CallResult::Fail => "nothing could be evicted",
        CallResult::Unknown => "not known",
    }
}

/// Lists them; all after the first ten are folded away.
pub fn slowest(calls: &[SlowCall]) -> Markup {
    let (first, rest) = calls.split_at(calls.len().min(SHOWN));
    html! {
        @if !calls.is_empty() {
            h2 { "The slowest evicting calls" }
            div.scroll { (table_of(first)) }
        }
        @if !rest.is_empty() {
            details {
                summary { "The next " (rest.len()) }
                div.scroll { (table_of(rest)) }
            }
        }
    }
}

fn table_of(calls: &[SlowCall]) -> Markup {
    html! {
        table {
            caption { "The slowest first." }
            (head([("Ended", false), ("Took", true), ("Had to free", true), ("Ended because", false)]))
            tbody {
                @for call in calls {
                    tr {
                        td.time { (precise_time_of_day(call.unix_us)) }
                        td.number { (seconds(call.duration_ns as f64 / 1e9)) }
                        td.number { (or_unknown(call.goal, size)) }
                        td { (result_name(call.result)) }
                    }
                }
            }
        }
    }
}
