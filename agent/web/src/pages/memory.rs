//! Where a server's memory is: its parts, now and then.

use std::cmp::Reverse;
use std::time::Duration;

use evictscope_records::Record;
use evictscope_telemetry::{MemoryPart, MemoryParts, Timeline};
use maud::{Markup, html};

use super::text::{grouped, head, or_unknown, round, size};
use crate::exported::ExportedServer;

/// What a server's memory is compared with: what it was so long ago.
const AGO: Duration = Duration::from_secs(60);

/// Less growth is not worth a sentence, bytes.
const MUCH: u64 = 1 << 20;

/// What the tracking table takes for each key, and for each client that may have it, bytes. Tried with 100,000 keys and
/// one to three clients of Redis 6.2 to 8.2 and Valkey 9.1: 0.8 to 1.3 times what was then seen.
const OF_TRACKED: [u64; 2] = [50, 60];

/// Shows what the memory of a server is made of, and was a minute ago.
pub fn of_server(server: &ExportedServer, timeline: Option<&Timeline>) -> Markup {
    let Some(now) = server.memory_parts() else { return html! {} };
    let mut moments =
        timeline.map_or_else(Vec::new, |timeline| timeline.moments(Duration::ZERO, Duration::MAX, server.since_1970));
    moments.retain(|moment| moment.memory.is_some());
    let last = moments.last().map(|last| last.at).unwrap_or_default();
    let before = moments.iter().find(|moment| moment.at + AGO >= last);
    let ago = format!("{} ago", round(before.map_or(AGO, |before| last.saturating_sub(before.at))));
    html! {
        h2 id="memory" { "Where the memory is" }
        (table([&ago, "Now"], &before.and_then(|before| before.memory).unwrap_or_default(), &now))
    }
}

/// Shows what the memory was made of when a record begins, which is before what it is about, and at most in it.
pub fn of_record(record: &Record) -> Markup {
    let mut known = record.moments.iter().filter_map(|moment| moment.memory);
    let Some(first) = known.next() else { return html! {} };
    html! {
        h2 id="memory" { "Where the memory was" }
        (table(["Before", "At most"], &first, &known.fold(first, MemoryParts::highest)))
    }
}

/// Returns the table of all parts that are or were known to be there, the largest first.
fn table([then_name, now_name]: [&str; 2], then: &MemoryParts, now: &MemoryParts) -> Markup {
    let is_there = |part: &MemoryPart| now.get(*part) != Some(0) || then.get(*part) > Some(0);
    let mut parts: Vec<_> = MemoryPart::ALL.into_iter().filter(is_there).collect();
    parts.sort_by_key(|part| Reverse(now.get(*part)));
    let then_of = |part| Some(then).filter(|then| then.used > 0)?.get(part);
    let growth = |part: &MemoryPart| Some((*part, now.get(*part)?.checked_sub(then_of(*part)?)?));
    let grew_most = parts.iter().filter_map(growth).max_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| *bytes >= MUCH);
    html! {
        @if let Some((part, bytes)) = grew_most {
            p { "Most grew: " strong { (title(part)) } ", by " (size(bytes)) "." }
        }
        div.scroll {
            table {
                (head([("Part", false), (then_name, true), (now_name, true), ("Grew by", true)]))
                tbody {
                    @for part in parts {
                        tr {
                            td { (title(part)) }
                            td.number { (or_unknown(then_of(part), size)) }
                            td.number { (or_unknown(now.get(part), size)) }
                            td.number { (grown(then_of(part), now.get(part))) }
                        }
                    }
                    tr {
                        td { strong { "used_memory" } }
                        td.number { (or_unknown(Some(then.used).filter(|used| *used > 0), size)) }
                        td.number { (size(now.used)) }
                        td.number { (grown(Some(then.used).filter(|used| *used > 0), Some(now.used))) }
                    }
                }
            }
        }
        p.note {
            "Keys and values are what remains without the other parts: functions, the tracking table, values that are "
            "freed lazily and those that only replies still hold are among them. "
            @for (name, then, now) in [
                ("Keys", then.keys, now.keys),
                ("Keys in the tracking table", then.tracked_keys, now.tracked_keys),
                ("Values to be freed lazily", then.being_freed, now.being_freed),
            ] {
                @if let Some(now) = now.filter(|now| *now > 0 || then > Some(0)) {
                    (name) ": " @if let Some(then) = then { (grouped(then)) " → " } (grouped(now)) ". "
                }
            }
            @if let (Some(keys @ 1..), Some(clients)) = (now.tracked_keys, now.tracked_items) {
                @let [for_keys, for_clients] = [keys, clients].map(|count| count.min(u64::from(u32::MAX)));
                "By estimate, the tracking table takes " (size(for_keys * OF_TRACKED[0] + for_clients * OF_TRACKED[1])) ". "
            }
        }
    }
}

/// Says by how much a part grew, if it did.
fn grown(then: Option<u64>, now: Option<u64>) -> String {
    then.zip(now)
        .and_then(|(then, now)| now.checked_sub(then))
        .filter(|grown| *grown > 0)
        .map_or_else(String::new, size)
}

fn title(part: MemoryPart) -> &'static str {
    match part {
        MemoryPart::Startup => "the server itself, as it started",
        MemoryPart::ClientsNormal => "buffers of clients",
        MemoryPart::ClientsPubsub => "buffers of subscribers",
        MemoryPart::ClientsPrimary => "buffers of the link to the primary",
        MemoryPart::Replicas => "buffers of replicas",
        MemoryPart::Backlog => "replication backlog",
        MemoryPart::AofBuffer => "AOF buffer",
        MemoryPart::ClusterLinks => "links of the cluster",
        MemoryPart::Scripts => "scripts of EVAL",
        MemoryPart::Tables => "hash tables of keys",
        MemoryPart::Rest => "keys and values, and what is not accounted for",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evictscope_records::fixture::burst_record;
    use evictscope_telemetry::{MemoryPart, MemoryParts, Moment};

    use super::of_record;

    #[test]
    fn a_record_shows_what_each_part_was_before_and_at_most() {
        let mut record = burst_record();
        assert_eq!(of_record(&record).into_string(), "", "older agents did not read it");
        record.moments = [(0, 10), (1, 90), (2, 40)]
            .into_iter()
            .map(|(second, scripts)| Moment {
                at: Duration::from_secs(second),
                memory: Some(MemoryParts::new(100 << 20, [(MemoryPart::Scripts, Some(scripts << 20))])),
                ..Moment::default()
            })
            .collect();
        let page = of_record(&record).into_string().replace("<td class=\"number\">", "<td>");
        for row in [
            "Most grew: <strong>scripts of EVAL</strong>, by 80.0 MiB.",
            "scripts of EVAL</td><td>10.0 MiB</td><td>90.0 MiB</td><td>80.0 MiB</td>",
            "keys and values, and what is not accounted for</td><td>90.0 MiB</td><td>90.0 MiB</td><td></td>",
            "buffers of replicas</td><td>not known</td><td>not known</td><td></td>",
        ] {
            assert!(page.contains(row), "{page}");
        }
    }
}
