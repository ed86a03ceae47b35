//! The evidence on the pages of a server and of a record: where the main thread's time went, where the memory is, and
//! who: the peers whose requests wait, and those that do not read their answers.

use std::time::Duration;

use evictscope_model::answers::{EvidenceAnswer, PeerCounts, PeersSeen, ThenAndNow};
use evictscope_records::evidence::{grew_most, memory, time_spent, who};
use evictscope_records::text::{bytes, capital, seconds};
use evictscope_records::{Record, RecordedPeers};
use evictscope_telemetry::{MemoryParts, Moment, microseconds};
use maud::{Markup, html};

use super::text::{UNKNOWN, grouped, or_unknown, percent, precise_time_of_day, size, table};
use crate::exported::ExportedServer;

/// The time that is now, of what the main thread does.
const NOW: Duration = Duration::from_secs(10);
/// What a server's memory is compared with: what it was so long ago.
const AGO: Duration = Duration::from_secs(60);
/// The most rows of a look at peers: the agent keeps fewer, and a record may be made up.
const MOST: usize = 20;

/// Returns the evidence of a server, whose last ten minutes are these.
pub(crate) fn answer(server: &ExportedServer, moments: &[Moment]) -> EvidenceAnswer {
    let parts = server.memory_parts();
    EvidenceAnswer {
        server: server.label.clone(),
        time: lately(server, moments),
        memory: parts.map_or_else(Vec::new, |now| memory(a_minute_ago(moments).as_ref(), &now)),
        who: server.state.peers.last().map(|(_, seen)| who(seen)).unwrap_or_default(),
    }
}

/// Returns where its time went, in all that time and now.
fn lately(server: &ExportedServer, moments: &[Moment]) -> Vec<ThenAndNow> {
    let to_us = moments.last().map_or(0, Moment::unix_us);
    let now = between(moments, to_us.saturating_sub(microseconds(NOW)), to_us);
    let spans = server.commands().map(|log| log.between(Duration::ZERO, Duration::MAX, server.since_1970));
    time_spent([moments, now], spans.as_deref())
}

/// Returns what memory was made of a minute ago, or when that was first read.
fn a_minute_ago(moments: &[Moment]) -> Option<MemoryParts> {
    let last = moments.last()?.at;
    moments.iter().filter(|moment| moment.at + AGO >= last).find_map(|moment| moment.memory)
}

/// Returns the moments between two times, microseconds since 1970.
fn between(moments: &[Moment], from_us: u64, to_us: u64) -> &[Moment] {
    let begin = moments.partition_point(|moment| moment.unix_us() < from_us);
    let end = moments.partition_point(|moment| moment.unix_us() <= to_us);
    moments.get(begin..end).unwrap_or_default()
}

/// Shows where the time and the memory of a server went in its last ten minutes, and who its clients are.
pub fn of_server(server: &ExportedServer, moments: &[Moment]) -> Markup {
    let (time, then) = (lately(server, moments), a_minute_ago(moments));
    let log = server.commands();
    let caption = "Shares of the main thread's time: then is the last 10 minutes, now the last 10 seconds.";
    let of_memory = "Then is a minute ago, or when the server was found.";
    html! {
        (time_table(caption, ["Then", "Now"], &time, log.is_some(), log.and_then(|log| log.others())))
        @if let Some(now) = server.memory_parts() {
            h2 id="memory" { "Where the memory is" }
            @let rows = memory(then.as_ref(), &now);
            (memory_table(of_memory, ["Then", "Now"], &rows, &then.unwrap_or_default(), &now))
        }
        (who_of_server(server))
    }
}

/// Shows the same of a record, which is about the time from `from_us` to `to_us`.
pub fn of_record(record: &Record, (from_us, to_us): (u64, u64)) -> Markup {
    let moments = &record.moments;
    let spans = Some(&record.commands[..]).filter(|spans| !spans.is_empty());
    let time = time_spent([between(moments, 0, from_us), between(moments, from_us, to_us)], spans);
    let mut parts = moments.iter().filter_map(|moment| moment.memory);
    html! {
        (time_table("Shares of the main thread's time.", ["In the minute before", "In it"], &time, spans.is_some(), None))
        @if let Some(first) = parts.next() {
            @let highest = parts.fold(first, MemoryParts::highest);
            h2 id="memory" { "Where the memory was" }
            (memory_table("Each part by itself.", ["Before", "At most"], &memory(Some(&first), &highest), &first, &highest))
        }
        @if !record.peers.is_empty() {
            h2 id="who" { "Who" }
            @for RecordedPeers { unix_us, seen } in &record.peers { (look("Worst", *unix_us, seen)) }
            p.note { (ABOUT_PEERS) }
        }
    }
}

fn rows(caption: &str, [then, now]: [&str; 2], rows: &[ThenAndNow], text: fn(f64) -> String) -> Markup {
    let row = |ThenAndNow { name, then, now }: &ThenAndNow| {
        html! {
            td.text { (capital(name)) }
            @for value in [*then, *now] { td.number { (or_unknown(value, text)) } }
        }
    };
    table(Some("evidence"), Some(caption), &[("What", false), (then, true), (now, true)], rows.iter().map(row))
}

/// `others` is how many commands are not among those with counters.
fn time_table(
    caption: &str,
    headings: [&str; 2],
    time: &[ThenAndNow],
    has_commands: bool,
    others: Option<u64>,
) -> Markup {
    if time.is_empty() {
        return html! {};
    }
    html! {
        h2 id="time" { "Where the time went" }
        (rows(caption, headings, time, percent))
        p.note {
            @if has_commands {
                "Commands: by the server's own counters, which count one when it ends. The time of scripts and of EXEC \
                 includes that of the commands in them. All else is no command, or still runs."
            } @else { "Commands by name: " (UNKNOWN) "." }
            " Without a CPU: part of all above but the sleep."
            @if let Some(others) = others.filter(|others| *others > 0) {
                " " (grouped(others)) " commands have no counters there: those of modules."
            }
        }
    }
}

fn memory_table(
    caption: &str,
    headings: [&str; 2],
    memory: &[ThenAndNow],
    then: &MemoryParts,
    now: &MemoryParts,
) -> Markup {
    html! {
        @if let Some((part, by)) = grew_most(memory) {
            p { "Most grew: " strong { (part.name) } ", by " (bytes(by)) "." }
        }
        (rows(caption, headings, memory, bytes))
        p.note {
            "Keys and the rest are what no other part accounts for: values, functions, the tracking table, what is freed \
             lazily, and what only replies still hold. "
            @for (name, then, now) in [
                ("Keys", then.keys, now.keys),
                ("Keys with a TTL", then.expiring_keys, now.expiring_keys),
                ("Keys in the tracking table", then.tracked_keys, now.tracked_keys),
                ("Values to be freed lazily", then.being_freed, now.being_freed),
            ] {
                @if let Some(now) = now.filter(|now| *now > 0 || then > Some(0)) {
                    (name) ": " @if let Some(then) = then { (grouped(then)) " → " } (grouped(now)) ". "
                }
            }
            @if let Some(table) = now.tracking_table().filter(|bytes| *bytes > 0) {
                "By estimate, the tracking table takes " (size(table)) ". "
            }
        }
    }
}

fn who_of_server(server: &ExportedServer) -> Markup {
    let peers = &server.state.peers;
    let dated = |at: Duration| microseconds(server.since_1970 + at);
    let Some((now, seen)) = peers.last() else {
        return html! {
            @if server.state.known_waits().is_some() {
                h2 id="who" { "Who" }
                p {
                    "It is not known whose requests wait, and who does not read answers: " code { "peers" }
                    " is off, or the log says what this kernel lacks."
                }
            }
        };
    };
    let mut worst = peers.worst.between(Duration::ZERO, Duration::MAX);
    worst.retain(|(at, _)| *at != now);
    html! {
        h2 id="who" { "Who" }
        @if who(seen).is_empty() { p { "No request waits now, and every client reads its answers." } }
        @else { (look("Now", dated(now), seen)) }
        @for (at, seen) in &worst { (look("Worst of the last ten minutes", dated(*at), seen)) }
        @if !who(seen).is_empty() || !worst.is_empty() { p.note { (ABOUT_PEERS) } }
    }
}

const ABOUT_PEERS: &str =
    "These bytes are in the kernel. What the server holds for clients that do not read is in its client buffers.";

fn look(what: &str, unix_us: u64, seen: &PeersSeen) -> Markup {
    html! {
        p { (what) ", at " (precise_time_of_day(unix_us)) ":" }
        ul { @for sentence in who(seen) { li { (capital(&sentence)) "." } } }
        (table(None, None, &[
            ("Peer", false), ("Connections", true), ("Waiting requests", true), ("the first for", true),
            ("Not read by the server", true), ("Do not read", true), ("Answers not taken", true), ("for", true)
        ], seen.worst.iter().take(MOST).chain([&seen.all]).map(cells)))
    }
}

fn cells(peer: &PeerCounts) -> Markup {
    let time = |count: u64, longest: f64| if count == 0 { "–".to_owned() } else { seconds(longest) };
    let numbers = [
        grouped(peer.connections),
        grouped(peer.waiting),
        time(peer.waiting, peer.longest_wait_seconds),
        size(peer.unread_bytes),
        grouped(peer.not_reading),
        size(peer.untaken_bytes),
        time(peer.untaken_bytes, peer.longest_untaken_seconds),
    ];
    html! {
        td { (peer.peer) @if peer.addresses > 1 { " (" (grouped(peer.addresses)) " addresses)" } }
        @for number in numbers { td.number { (number) } }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evictscope_model::answers::{PeerCounts, PeersSeen};
    use evictscope_records::RecordedPeers;
    use evictscope_records::fixture::burst_record;
    use evictscope_telemetry::{
        ActivePeer, MemoryPart, MemoryParts, Moment, PeerAddress, SeenPeers, Snapshot, SocketLook,
    };

    use super::{of_record, who_of_server};
    use crate::fixture::{busy_server, new_server};

    #[test]
    fn who_does_not_read_is_named_now_and_after() {
        let mut server = new_server();
        let mut look = |second, untaken| {
            let at = Duration::from_secs(second);
            let address = PeerAddress::Ip([10, 0, 3, 7].into());
            let left = Some(Duration::from_secs(3));
            let active = ActivePeer { socket: 1, address, unread: 0, untaken, taken_to: 5, left };
            let peers = SeenPeers { connections: [(address, 20)].into(), active: vec![active] };
            let look = SocketLook { at, connected: 20, peers: Some(peers), ..SocketLook::default() };
            server.state.apply(&Snapshot { at, look: Some(look), ..Snapshot::default() });
            who_of_server(&server).into_string()
        };
        let sentence = "<li>1 connection of 10.0.3.7 does not read: 3.0 MiB, for 2.0 s.</li>";
        let now = look(5, 3 << 20);
        assert!(now.contains("Now, at 22:13:25.000") && now.contains(sentence), "{now}");
        let after = look(6, 0);
        assert!(after.contains("No request waits now"), "{after}");
        assert!(
            after.contains("Worst of the last ten minutes, at 22:13:25.000") && after.contains(sentence),
            "{after}"
        );
        assert!(who_of_server(&busy_server()).into_string().contains("<code>peers</code> is off"));
        assert_eq!(who_of_server(&new_server()).into_string(), "", "it was not looked at");
    }

    #[test]
    fn a_made_up_record_is_shown_as_text() {
        let peer = PeerCounts { peer: "<script>".to_owned(), waiting: u64::MAX, ..PeerCounts::default() };
        let seen = PeersSeen { all: peer.clone(), worst: vec![peer; 1_000] };
        let mut record = burst_record();
        record.moments.clear();
        record.peers = vec![RecordedPeers { unix_us: u64::MAX, seen }];
        let page = of_record(&record, (0, 1)).into_string();
        assert!(!page.contains("<script>") && page.matches("<tr>").count() == 22, "{page}");
    }

    #[test]
    fn a_record_shows_what_each_part_was_before_and_at_most() {
        let mut record = burst_record();
        let page = |record: &_| of_record(record, (0, 1)).into_string().replace("<td class=\"number\">", "<td>");
        assert_eq!(page(&record), "", "older agents did not read it");
        record.moments = [(0, 10), (1, 90), (2, 40)]
            .into_iter()
            .map(|(second, scripts)| Moment {
                at: Duration::from_secs(second),
                memory: Some(MemoryParts::new(100 << 20, [(MemoryPart::Scripts, Some(scripts << 20))])),
                ..Moment::default()
            })
            .collect();
        let page = page(&record);
        for row in [
            "Most grew: <strong>scripts</strong>, by 80.0 MiB.",
            "Scripts</td><td>10.0 MiB</td><td>90.0 MiB</td>",
            "Keys and the rest</td><td>90.0 MiB</td><td>90.0 MiB</td>",
            "Replicas' buffers</td><td>not known</td><td>not known</td>",
        ] {
            assert!(page.contains(row), "{page}");
        }
    }
}
