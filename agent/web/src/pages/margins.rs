//! What would happen to a server at its limit, before it gets there.

use std::time::Duration;

use evictscope_model::Member;
use evictscope_telemetry::CostOrigin;
use maud::{Markup, html};

use super::times::{grouped, percent, round};
use crate::published::exported::ExportedServer;

/// A main thread that is busy for more of its time has little to spare.
const CALM: f64 = 0.8;

/// Says when memory reaches its limit, and whether the server would evict calmly there. Says nothing if the server has
/// no limit, evicts, or has not been known for long enough.
pub fn words(server: &ExportedServer) -> Markup {
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
            "If memory grows as in the last " (round(growth.over)) ", it reaches its limit in " (time(Some(likely)))
            " (" (time(earliest)) " to " (time(latest)) "). "
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
                    @if let Some(waits) = server.state.known_waits() { ". Clients: " (grouped(waits.connected())) }
                    "."
                },
            }
        }
    }
}

/// Returns the time until something that may never happen, as text.
fn time(seconds: Option<f64>) -> String {
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.map_or_else(|| "never".to_owned(), round)
}
