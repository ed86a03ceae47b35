//! `/bursts/ID`, and the file that `evictscope report` writes: one record.

use std::time::Duration;

use evictscope_records::explain::{Explanation, Proof, Remedy};
use evictscope_records::text::{capital, seconds};
use evictscope_records::{Occasion, Record, Summary};
use evictscope_telemetry::{Burst, Timeline};
use maud::{Markup, html};

use super::columns::Columns;
use super::drawing::Span;
use super::facts::{self, fact};
use super::frame::{Place, page};
use super::text::{date_and_time, duration, grouped, limit, or_unknown, percent, precise_time_of_day, rate, size};
use super::{calls, evidence, functions, heatmap, panels, text};

/// Returns the page of a record, with its explanation, and links to others.
pub fn record(record: &Record, explanation: &Explanation, place: Place, links: &[(&str, &Summary)]) -> String {
    let title = title(record);
    let body = html! {
        h1 { (title) }
        (summary(explanation))
        @if place != Place::File {
            p {
                a href=(text::server_link(&record.server.label)) { "Server " (record.server.label) } " · "
                a href=(text::record_json_link(&record.id)) { "This record as JSON" } " · "
                "as a file: " code { "evictscope report " (record.id) " -o report.html" }
                @for (which, other) in links {
                    " · " a href=(text::record_link(&other.id)) { (which) } ": " (capital(&other.occasion.to_string())) ", "
                    (date_and_time(other.began_us))
                }
            }
        }
        (numbers(record))
        (causes(explanation))
        (remedies(explanation))
        (evidence::of_record(record, times(record)))
        (charts(record))
        (calls::slowest(&record.slowest))
        @if let Ok(profile) = &record.profile {
            h2 { "Where the main thread spent its time" }
            (functions::of(profile))
        }
        h2 { "The server" }
        (about_server(record))
        (missing(record))
        h2 { "What it cost" }
        p {
            @match record.overhead_ratio {
                Some(ratio) => {
                    "The probes took at most " (percent(ratio)) " of the main thread; the budget is "
                    (percent(record.overhead_budget_ratio)) "."
                },
                None => {
                    "What the probes cost is not known; the budget is " (percent(record.overhead_budget_ratio))
                    " of the main thread."
                },
            }
            @if let Ok(profile) = &record.profile {
                " The profile took " (seconds(profile.spent_ns as f64 / 1e9)) " of it in all."
            }
        }
        p.note { "Record " (record.id) ", format " (record.format) ", written by evictscope " (record.agent) "." }
    };
    page(&title, place, &body)
}

fn title(record: &Record) -> String {
    let what = capital(&record.occasion.to_string());
    let when = date_and_time(record.began_us);
    format!("{what} on server {}, {when} UTC", record.server.label)
}

fn summary(explanation: &Explanation) -> Markup {
    html! {
        section.summary aria-label="In short" {
            p { strong { "What happened: " } (explanation.what) }
            p { strong { "Why: " } (explanation.why) }
            p { strong { "What would help: " } (explanation.help) }
        }
    }
}

fn causes(explanation: &Explanation) -> Markup {
    html! {
        @if !explanation.causes.is_empty() { h2 { "Why" } }
        @for cause in &explanation.causes {
            h3 { (cause.summary) }
            ul { @for evidence in &cause.evidence { li { (evidence) } } }
        }
    }
}

fn remedies(explanation: &Explanation) -> Markup {
    html! {
        @if !explanation.remedies.is_empty() { h2 { "What would help" } }
        @for Remedy { against, what, evidence, proof } in &explanation.remedies {
            h3 { (what) }
            ul {
                li { "Against: " (against) "." }
                @for evidence in evidence { li { (evidence) } }
                @match proof {
                    Proof::Lab(run) => li { "Shown by: " (run) },
                    Proof::Runbook(runbook) => li { "First aid, not tried in the lab: runbook " (runbook) },
                }
            }
        }
    }
}

/// Draws the time from a minute before it to half a minute after.
fn charts(record: &Record) -> Markup {
    let span = Span::of(&record.moments).unwrap_or_else(|| Span::new(record.began_us, record.ended_us));
    let mut columns = Columns::of(&record.moments, span);
    if let Some(burst) = &record.burst {
        columns.mark(burst);
    }
    html! {
        h2 { "Before, during and after it" }
        (panels::all(&record.moments, &columns))
        (calls::by_second(&record.latencies, span))
        @if record.moments.len() > 1 { (heatmap::figures(&Timeline::of(&record.moments), span)) }
    }
}

fn missing(record: &Record) -> Markup {
    let no_burst = match record.occasion {
        Occasion::Burst => None,
        Occasion::Stall => Some("No burst that had ended belongs to this stall, so there are no totals of one."),
        Occasion::Call | Occasion::Refused | Occasion::Buffers | Occasion::Lost | Occasion::Ended | Occasion::Asked => {
            Some("It is about a time and not about a burst, so there are no totals of one.")
        }
    };
    let why = record.profile.as_ref().err();
    html! {
        @if !record.not_found.is_empty() || why.is_some() || no_burst.is_some() {
            h2 { "What is missing" }
            ul {
                @for missing in &record.not_found { li { (missing) } }
                @if let Some(why) = why { li { "The profile: " (why.0) } }
                @if let Some(no_burst) = no_burst.filter(|_| record.burst.is_none()) { li { (no_burst) } }
            }
        }
    }
}

/// Shows the numbers of the burst, or of the time if there is no burst.
pub fn numbers(record: &Record) -> Markup {
    let (from_us, to_us) = times(record);
    let longest_wait = longest_wait(record, from_us, to_us);
    let length = Duration::from_micros(to_us.saturating_sub(from_us));
    html! {
        @match &record.burst {
            Some(burst) => (of_burst(burst, longest_wait)),
            None => dl {
                (fact("Longest wait", or_unknown(longest_wait, duration)))
                (fact("Began", precise_time_of_day(from_us)))
                (fact("Lasted", duration(length)))
            },
        }
    }
}

/// Returns from when to when what the record is about went on, microseconds since 1970.
fn times(record: &Record) -> (u64, u64) {
    // These are about a moment, and show the time around it.
    let is_asked = matches!(record.occasion, Occasion::Asked | Occasion::Ended);
    let span = Span::of(&record.moments).filter(|_| is_asked);
    span.map_or((record.began_us, record.ended_us), |span| (span.from_us, span.to_us))
}

fn longest_wait(record: &Record, from_us: u64, to_us: u64) -> Option<Duration> {
    let within = from_us..=to_us;
    let moments = record.moments.iter();
    moments.filter(|moment| within.contains(&moment.unix_us())).filter_map(|moment| moment.longest_wait).max()
}

fn of_burst(burst: &Burst, longest_wait: Option<Duration>) -> Markup {
    let (kind, reason) = burst.kind();
    let growth = |from: Option<u64>, to: Option<u64>| {
        or_unknown(from.zip(to), |(from, to)| format!("{} → {}", size(from), size(to)))
    };
    html! {
        dl {
            (fact("Clients stalled for", or_unknown(burst.stalled, duration)))
            (fact("… by evictions", or_unknown(burst.stalled_by_evictions, duration)))
            (fact("Clients waiting, at most", or_unknown(burst.clients_waiting_peak, grouped)))
            (fact("Longest wait", or_unknown(longest_wait, duration)))
            (fact("Kind", facts::kind(&kind.to_string())))
            (fact("Lasted", duration(burst.duration)))
            (fact("Reclaim after it", duration(burst.reclaim)))
            (fact("Commands in it", or_unknown(burst.commands_per_second, rate)))
            (fact("Client buffers, to the peak", growth(burst.client_buffers_before, burst.client_buffers_peak)))
            (fact("Memory, to the peak", growth(burst.memory_start, burst.memory_peak)))
            (fact("Memory, after the last call", growth(burst.memory_end, burst.memory_after)))
            (fact("Evicting calls", grouped(burst.evicting_calls)))
            (fact("Evicted keys", or_unknown(burst.evicted_keys, grouped)))
            (fact("Main thread on a CPU", or_unknown(burst.cpu_share, percent)))
            (fact("… waiting for a CPU", or_unknown(burst.waiting_share, percent)))
            (fact("CPU time that evictions took", or_unknown(burst.eviction_cpu_share, percent)))
        }
        p.note { "Why of that kind: " (reason) "." }
        @if burst.observed.saturating_add(Duration::from_millis(100)) < burst.duration {
            p.note {
                "Evicting calls were observed for " (duration(burst.observed)) " of it: they are more than these."
            }
        }
    }
}

pub fn about_server(record: &Record) -> Markup {
    let server = &record.server;
    let configuration = &record.configuration;
    let text = |text: &Option<String>| or_unknown(text.clone(), |text| text);
    let yes_or_no = |is: Option<bool>| or_unknown(is, |is| if is { "yes" } else { "no" }.to_owned());
    let number = |number: Option<u32>| or_unknown(number, |number| number.to_string());
    html! {
        dl {
            (fact("Server", &server.label))
            (fact("Pid", server.pid))
            (fact("Started as", &server.command))
            (fact("Executable", &server.exe))
            (fact("Product", text(&server.product)))
            (fact("Version", text(&server.version)))
            (fact("Build id", text(&server.build_id)))
            (fact("maxmemory", or_unknown(configuration.maxmemory, limit)))
            (fact("maxmemory-policy", text(&configuration.maxmemory_policy)))
            (fact("hz", number(configuration.hz)))
            (fact("active-expire-effort", number(configuration.active_expire_effort)))
            (fact("maxmemory-samples", number(configuration.maxmemory_samples)))
            (fact("maxmemory-eviction-tenacity", number(configuration.maxmemory_eviction_tenacity)))
            (fact("lazyfree-lazy-eviction", yes_or_no(configuration.lazyfree_lazy_eviction)))
            (fact("databases", number(configuration.databases)))
        }
    }
}
