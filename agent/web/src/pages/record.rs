//! `/bursts/ID`, and the file that `evictscope report` writes: one record.

use std::time::Duration;

use evictscope_records::explain::{Explanation, Remedy};
use evictscope_records::text::seconds;
use evictscope_records::{Configuration, Occasion, Record};
use evictscope_telemetry::{Burst, CallResult, Phase, SlowCall, microseconds};
use maud::{Markup, html};

use super::columns::{Columns, Span};
use super::facts;
use super::frame::{Place, page};
use super::times::{
    date_and_time, duration, grouped, or_unknown, percent, precise_time_of_day, size,
};
use super::{functions, latency, links, panels};

/// Slow calls that are shown at first.
const SHOWN_CALLS: usize = 10;

/// Returns the page of a record with what it says in words.
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
        (numbers(record))
        (causes(explanation))
        (remedies(explanation))
        (charts(record))
        (slowest(&record.slowest))
        h2 { "Where the main thread spent its time" }
        @match &record.profile {
            Ok(profile) => (functions::of(profile)),
            Err(why) => p { "Not recorded: " (why.0) },
        }
        h2 { "The server" }
        (server(record))
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

/// Shows the numbers of the burst, or of the time where there is none.
fn numbers(record: &Record) -> Markup {
    let span = match record.occasion {
        // It is about a moment, and shows what was around it.
        Occasion::Asked => Span::of(&record.moments),
        Occasion::Burst | Occasion::Stall => None,
    };
    let (from_us, to_us) = span.map_or((record.began_us, record.ended_us), |span| {
        (span.from_us, span.to_us)
    });
    let longest_wait = longest_wait(record, from_us, to_us);
    let length = Duration::from_micros(to_us.saturating_sub(from_us));
    html! {
        @match &record.burst {
            Some(burst) => (of_burst(burst, longest_wait)),
            None => dl {
                (facts::fact("Longest wait", &or_unknown(longest_wait, duration)))
                (facts::fact("Began", &precise_time_of_day(from_us)))
                (facts::fact("Lasted", &duration(length)))
            },
        }
    }
}

/// Returns how long the request waited that waited longest between two times.
fn longest_wait(record: &Record, from_us: u64, to_us: u64) -> Option<Duration> {
    let within = from_us..=to_us;
    let moments = record.moments.iter();
    let waits = moments
        .filter(|moment| within.contains(&moment.unix_us))
        .filter_map(|moment| moment.longest_wait_us);
    waits.max().map(Duration::from_micros)
}

fn of_burst(burst: &Burst, longest_wait: Option<Duration>) -> Markup {
    let (kind, reason) = burst.kind();
    let growth = |from: Option<u64>, to: Option<u64>| {
        or_unknown(from.zip(to), |(from, to)| {
            format!("{} → {}", size(from), size(to))
        })
    };
    let (buffers, buffers_peak) = (burst.client_buffers_before, burst.client_buffers_peak);
    let facts = [
        ("Clients stalled for", or_unknown(burst.stalled, duration)),
        (
            "… by evictions",
            or_unknown(burst.stalled_by_evictions, duration),
        ),
        (
            "Clients waiting, at most",
            or_unknown(burst.clients_waiting_peak, grouped),
        ),
        ("Longest wait", or_unknown(longest_wait, duration)),
        ("Kind", facts::kind(&kind.to_string()).to_owned()),
        ("Lasted", duration(burst.duration)),
        ("Reclaim after it", duration(burst.reclaim)),
        (
            "Commands in it",
            or_unknown(burst.commands_per_second, super::times::rate),
        ),
        ("Client buffers, to the peak", growth(buffers, buffers_peak)),
        (
            "Memory, to the peak",
            growth(burst.memory_start, burst.memory_peak),
        ),
        (
            "Memory, after the last call",
            growth(burst.memory_end, burst.memory_after),
        ),
        ("Evicting calls", grouped(burst.evicting_calls)),
        ("Evicted keys", or_unknown(burst.evicted_keys, grouped)),
        ("Main thread on a CPU", or_unknown(burst.cpu_share, percent)),
        (
            "… waiting for a CPU",
            or_unknown(burst.waiting_share, percent),
        ),
        (
            "CPU time that evictions took",
            or_unknown(burst.eviction_cpu_share, percent),
        ),
    ];
    html! {
        dl { @for (name, value) in &facts { (facts::fact(name, value)) } }
        p.note { "Why of that kind: " (reason) "." }
        @if burst.observed.saturating_add(Duration::from_millis(100)) < burst.duration {
            p.note {
                "Evicting calls were observed for " (duration(burst.observed)) " of it: they are more than these."
            }
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
        @for Remedy { against, what, evidence, shown_by } in &explanation.remedies {
            h3 { (what) }
            ul {
                li { "Against: " (against) "." }
                @for evidence in evidence { li { (evidence) } }
                li { "Shown by: " (shown_by) }
            }
        }
    }
}

/// Draws a minute before it to half a minute after.
fn charts(record: &Record) -> Markup {
    let span =
        Span::of(&record.moments).unwrap_or_else(|| Span::new(record.began_us, record.ended_us));
    let mut columns = Columns::of(&record.moments, span);
    if let Some(burst) = &record.burst {
        mark(&mut columns, burst);
    }
    html! {
        h2 { "Before, during and after it" }
        p.note { (panels::resolution(&columns)) " The tinted time is that of the burst." }
        (panels::all(&record.moments, &columns))
        (latency::by_second(&record.latencies, span))
    }
}

/// Puts the exact bounds of the burst in place of what was known of its phases at each moment: that a call was the last
/// one is known a second later.
fn mark(columns: &mut Columns, burst: &Burst) {
    let (from, ended) = (
        microseconds(burst.started),
        microseconds(burst.started.saturating_add(burst.duration)),
    );
    let over = ended.saturating_add(microseconds(burst.reclaim));
    let width = columns.width_us();
    let begin = columns.span.from_us as f64;
    for (index, phase) in columns.phases.iter_mut().enumerate() {
        let middle = begin + (index as f64 + 0.5) * width;
        if (from as f64..=ended as f64).contains(&middle) {
            *phase = Some(Phase::Saturated);
        } else if (ended as f64..=over as f64).contains(&middle) {
            *phase = Some(Phase::Reclaim);
        }
    }
}

fn result_name(result: CallResult) -> &'static str {
    match result {
        CallResult::Ok => "within the limit",
        CallResult::Running => "stopped at its time limit",
        CallResult::Fail => "nothing could be evicted",
        CallResult::Unknown => "not known",
    }
}

fn slowest(calls: &[SlowCall]) -> Markup {
    let (first, rest) = calls.split_at(calls.len().min(SHOWN_CALLS));
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
            thead {
                tr {
                    th scope="col" { "Ended" } th.number scope="col" { "Took" }
                    th.number scope="col" { "Had to free" } th scope="col" { "Ended because" }
                }
            }
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

fn server(record: &Record) -> Markup {
    let server = &record.server;
    let Configuration {
        maxmemory,
        maxmemory_policy,
        hz,
        active_expire_effort,
    } = &record.configuration;
    let limit = |limit| match limit {
        0 => "no limit".to_owned(),
        limit => size(limit),
    };
    let text = |text: &Option<String>| or_unknown(text.clone(), |text| text);
    let facts = [
        ("Server", server.label.clone()),
        ("Pid", server.pid.to_string()),
        ("Started as", server.command.clone()),
        ("Executable", server.exe.clone()),
        ("Product", text(&server.product)),
        ("Version", text(&server.version)),
        ("Build id", text(&server.build_id)),
        ("maxmemory", or_unknown(*maxmemory, limit)),
        ("maxmemory-policy", text(maxmemory_policy)),
        ("hz", or_unknown(*hz, |hz| hz.to_string())),
        (
            "active-expire-effort",
            or_unknown(*active_expire_effort, |effort| effort.to_string()),
        ),
    ];
    html! { dl { @for (name, value) in &facts { (facts::fact(name, value)) } } }
}

/// Lists what the record lacks, and why.
fn missing(record: &Record) -> Markup {
    let no_burst = match record.occasion {
        Occasion::Burst => None,
        Occasion::Stall => {
            Some("No burst that had ended belongs to this stall, so there are no totals of one.")
        }
        Occasion::Asked => Some("It was asked for, so it is about a time and not about a burst."),
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

#[cfg(test)]
mod tests {
    use evictscope_records::explain::{Cause, CauseKind, Explanation, Remedy};
    use evictscope_records::fixture::burst_record;
    use evictscope_records::{NoProfile, Occasion, Record};

    use super::record as page;
    use crate::pages::frame::Place;

    const HOSTILE: &str = "/tmp/\"a' b\"/<script>alert(1)</script>";

    fn explanation(text: &str) -> Explanation {
        Explanation {
            what: format!("A burst of 7.0 s {text}."),
            why: format!("Client buffers took 30 MiB {text}."),
            help: format!("Raise maxmemory {text}."),
            causes: vec![Cause {
                kind: CauseKind::ClientBuffers,
                summary: format!("Client buffers took it {text}"),
                evidence: vec![format!("They grew {text}.")],
            }],
            remedies: vec![Remedy {
                against: CauseKind::ClientBuffers,
                what: format!("Raise maxmemory by 64 MiB {text}"),
                evidence: vec![format!("64 MiB {text}.")],
                shown_by: "`cargo xtask lab remedy`",
            }],
        }
    }

    const AGENT: Place = Place::Kept;

    #[test]
    fn the_three_sentences_come_first() {
        let page = page(&burst_record(), &explanation(""), AGENT);
        let at = |text: &str| {
            page.find(text)
                .unwrap_or_else(|| unreachable!("{text} in {page}"))
        };
        let order = [
            "What happened: </strong>A burst of 7.0 s",
            "Why: </strong>Client buffers took 30 MiB",
            "What would help: </strong>Raise maxmemory",
            "<dt>Longest wait</dt><dd>400 ms</dd>",
            "<dt>Kind</dt><dd>self-amplifying</dd>",
            "8,000/s",
            "20.0 MiB → 50.0 MiB",
            "<h3>Client buffers took it </h3>",
            "Shown by: `cargo xtask lab remedy`",
            "<strong>Stalls</strong>",
            "evictions 5.6 s</span>",
            "<strong>Phase</strong>",
            "<strong>Clients waiting</strong>",
            "<strong>Main thread</strong>",
            "Duration of evicting calls",
            "900 µs",
            "stopped at its time limit",
            "270 samples (60 %) are in evicting calls",
            "allkeys-lru",
            "at most 0.4 % of the main thread; the budget is 1.0 %",
        ];
        assert!(order.map(at).is_sorted(), "{:?}", order.map(at));
    }

    #[test]
    fn a_file_leads_nowhere_and_needs_nothing() {
        let page = page(&burst_record(), &explanation(""), Place::File);
        for outside in ["href=", "src=\"h", "src=\"/", "<script", "<link", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn all_text_of_others_is_escaped() {
        let mut record = burst_record();
        let server = &mut record.server;
        for text in [
            &mut server.label,
            &mut server.command,
            &mut server.exe,
            &mut record.agent,
        ] {
            *text = HOSTILE.to_owned();
        }
        for text in [
            &mut server.product,
            &mut server.version,
            &mut server.build_id,
        ] {
            *text = Some(HOSTILE.to_owned());
        }
        record.configuration.maxmemory_policy = Some(HOSTILE.to_owned());
        record.not_found = vec![HOSTILE.to_owned()];
        let mut other = record.clone();
        other.profile = Err(NoProfile(HOSTILE.to_owned()));
        if let Ok(profile) = &mut record.profile {
            profile.functions.fill(HOSTILE.to_owned());
        }
        for record in [record, other] {
            let page = page(&record, &explanation(HOSTILE), AGENT);
            assert!(!page.contains("<script"), "{page}");
            assert!(!page.contains("\"a' b\""), "{page}");
            let link = "href=\"/server/%2Ftmp%2F%22a%27%20b%22%2F%3Cscript%3Ealert%281%29%3C%2Fscript%3E\"";
            assert!(page.contains(link), "{page}");
        }
    }

    #[test]
    fn a_record_that_was_asked_for_is_as_long_as_what_it_shows() {
        let record = burst_record();
        let asked = Record {
            occasion: Occasion::Asked,
            burst: None,
            ended_us: record.began_us,
            ..record
        };
        let page = page(&asked, &explanation(""), AGENT);
        for text in [
            "<dt>Longest wait</dt><dd>400 ms</dd>",
            "<dt>Began</dt><dd>22:12:20.000</dd>",
            "<dt>Lasted</dt><dd>101.9 s</dd>",
        ] {
            assert!(page.contains(text), "{text} in {page}");
        }
    }

    #[test]
    fn a_record_of_nothing_is_a_page_too() {
        let record = Record {
            burst: None,
            moments: Vec::new(),
            slowest: Vec::new(),
            latencies: Vec::new(),
            profile: Err(NoProfile("perf_event_paranoid is 3".to_owned())),
            began_us: u64::MAX,
            ended_us: 0,
            overhead_ratio: None,
            ..burst_record()
        };
        let page = page(&record, &explanation(""), AGENT);
        for text in [
            "Not recorded: perf_event_paranoid is 3",
            "No evicting call was observed",
            "Not known in this time.",
            "What the probes cost is not known",
            "What clients waited is not known in this time.",
            "<dt>Longest wait</dt><dd>not known</dd>",
        ] {
            assert!(page.contains(text), "{text} in {page}");
        }
        assert!(!page.contains("The slowest evicting calls"), "{page}");
    }
}
