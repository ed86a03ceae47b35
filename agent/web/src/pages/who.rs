//! Who: the peers whose requests wait, and those that do not read their answers, now and when that was worst.

use std::time::Duration;

use evictscope_model::answers::{PeerCounts, PeersSeen};
use evictscope_records::text::{capital, seconds};
use evictscope_records::{RecordedPeers, who};
use evictscope_telemetry::microseconds;
use maud::{Markup, html};

use super::text::{grouped, head, precise_time_of_day, size};
use crate::exported::ExportedServer;

/// The most rows of a look: the agent keeps fewer, and a record may be made up.
const MOST: usize = 20;

/// Shows the peers of a server.
pub fn section(server: &ExportedServer) -> Markup {
    let peers = &server.state.peers;
    let dated = |at: Duration| microseconds(server.since_1970 + at);
    let Some((now, seen)) = peers.last() else {
        return html! {
            @if server.state.known_waits().is_some() {
                h2 { "Who" }
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
        h2 { "Who" }
        @if who(seen).is_empty() { p { "No request waits now, and every client reads its answers." } }
        @else { (look("Now", dated(now), seen)) }
        @for (at, seen) in &worst { (look("Worst of the last ten minutes", dated(*at), seen)) }
        @if !who(seen).is_empty() || !worst.is_empty() { (note()) }
    }
}

/// Shows the peers of a record; nothing if none had anything outstanding for long.
pub fn of_record(peers: &[RecordedPeers]) -> Markup {
    html! {
        @if !peers.is_empty() { h2 { "Who" } }
        @for RecordedPeers { unix_us, seen } in peers { (look("Worst", *unix_us, seen)) }
        @if !peers.is_empty() { (note()) }
    }
}

fn note() -> Markup {
    html! {
        p.note {
            "These bytes are in the kernel. What the server holds for clients that do not read is in its client buffers."
        }
    }
}

/// Shows what was seen at one look.
fn look(what: &str, unix_us: u64, seen: &PeersSeen) -> Markup {
    html! {
        p { (what) ", at " (precise_time_of_day(unix_us)) ":" }
        ul { @for sentence in who(seen) { li { (capital(&sentence)) "." } } }
        div.scroll {
            table {
                (head([
                    ("Peer", false), ("Connections", true), ("Waiting requests", true), ("the first for", true),
                    ("Not read by the server", true), ("Do not read", true), ("Answers not taken", true), ("for", true)
                ]))
                tbody { @for peer in seen.worst.iter().take(MOST).chain([&seen.all]) { (row(peer)) } }
            }
        }
    }
}

fn row(peer: &PeerCounts) -> Markup {
    let time = |count: u64, longest: f64| if count == 0 { "–".to_owned() } else { seconds(longest) };
    html! {
        tr {
            td { (peer.peer) @if peer.addresses > 1 { " (" (grouped(peer.addresses)) " addresses)" } }
            td.number { (grouped(peer.connections)) }
            td.number { (grouped(peer.waiting)) }
            td.number { (time(peer.waiting, peer.longest_wait_seconds)) }
            td.number { (size(peer.unread_bytes)) }
            td.number { (grouped(peer.not_reading)) }
            td.number { (size(peer.untaken_bytes)) }
            td.number { (time(peer.untaken_bytes, peer.longest_untaken_seconds)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evictscope_model::answers::{PeerCounts, PeersSeen};
    use evictscope_records::RecordedPeers;
    use evictscope_telemetry::{ActivePeer, PeerAddress, SeenPeers, Snapshot, SocketLook};

    use super::{of_record, section};
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
            section(&server).into_string()
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
        assert!(section(&busy_server()).into_string().contains("<code>peers</code> is off"));
        assert_eq!(section(&new_server()).into_string(), "", "it was not looked at");
    }

    #[test]
    fn a_made_up_record_is_shown_as_text() {
        let peer = PeerCounts { peer: "<script>".to_owned(), waiting: u64::MAX, ..PeerCounts::default() };
        let seen = PeersSeen { all: peer.clone(), worst: vec![peer; 1_000] };
        let page = of_record(&[RecordedPeers { unix_us: u64::MAX, seen }]).into_string();
        assert!(!page.contains("<script>") && page.matches("<tr>").count() == 22, "{page}");
    }
}
