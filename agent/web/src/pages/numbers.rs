//! The numbers of a record: of its burst, or of its time, and of the server.

use std::time::Duration;

use evictscope_records::{Occasion, Record};
use evictscope_telemetry::Burst;
use maud::{Markup, html};

use super::facts::{self, fact};
use super::span::Span;
use super::times::{duration, grouped, limit, or_unknown, percent, precise_time_of_day, rate, size};

/// Shows the numbers of the burst, or of the time if there is no burst.
pub fn of(record: &Record) -> Markup {
    // These are about a moment, and show the time around it.
    let is_asked = matches!(record.occasion, Occasion::Asked | Occasion::Ended);
    let span = Span::of(&record.moments).filter(|_| is_asked);
    let (from_us, to_us) = span.map_or((record.began_us, record.ended_us), |span| (span.from_us, span.to_us));
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

/// Returns the longest wait of a request between two times.
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

/// Shows which server the record is about, and its configuration.
pub fn server(record: &Record) -> Markup {
    let server = &record.server;
    let configuration = &record.configuration;
    let text = |text: &Option<String>| or_unknown(text.clone(), |text| text);
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
        }
    }
}
