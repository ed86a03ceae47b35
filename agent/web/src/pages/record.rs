//! `/bursts/ID`, and the file that `evictscope report` writes: one record.

use evictscope_records::explain::{Explanation, Proof, Remedy};
use evictscope_records::text::seconds;
use evictscope_records::{Occasion, Record};
use evictscope_telemetry::Timeline;
use maud::{Markup, html};

use super::columns::Columns;
use super::frame::{Place, page};
use super::span::Span;
use super::times::{date_and_time, percent};
use super::{facts, functions, heat, latency, links, numbers, panels, slow_calls};

/// Returns the page of a record, with its explanation.
pub fn record(record: &Record, explanation: &Explanation, place: Place) -> String {
    let title = title(record);
    let body = html! {
        h1 { (title) }
        (summary(explanation))
        @if place != Place::File {
            p {
                a href=(links::server(&record.server.label)) { "Server " (record.server.label) } " · "
                a href=(links::record_json(&record.id)) { "This record as JSON" } " · "
                "as a file: " code { "evictscope report " (record.id) " -o report.html" }
            }
        }
        (numbers::of(record))
        (causes(explanation))
        (remedies(explanation))
        (charts(record))
        (slow_calls::slowest(&record.slowest))
        @if let Ok(profile) = &record.profile {
            h2 { "Where the main thread spent its time" }
            (functions::of(profile))
        }
        h2 { "The server" }
        (numbers::server(record))
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
    let what = facts::occasion(record.occasion);
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
        p.note { (panels::resolution(&columns)) " The tinted time is that of evictions." }
        (panels::all(&record.moments, &columns))
        (latency::by_second(&record.latencies, span))
        @if record.moments.len() > 1 { (heat::figures(&Timeline::of(&record.moments), span)) }
    }
}

/// Lists what the record lacks, and why.
fn missing(record: &Record) -> Markup {
    let no_burst = match record.occasion {
        Occasion::Burst => None,
        Occasion::Stall => Some("No burst that had ended belongs to this stall, so there are no totals of one."),
        Occasion::Call | Occasion::Refused | Occasion::Buffers | Occasion::Ended | Occasion::Asked => {
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
