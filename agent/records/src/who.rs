//! Says who it is: the peers whose requests wait, and those that do not read their answers.

use evictscope_model::answers::{PeerCounts, PeersSeen};

use crate::text::{seconds, size};

/// The most sentences of each kind.
const MOST: usize = 3;
/// Who has at least this share of the waiting requests is named.
const SHARE: f64 = 0.25;

/// Returns what a look says of peers, each as a sentence without its full stop; none if nothing is outstanding.
pub fn who(seen: &PeersSeen) -> Vec<String> {
    let silent = seen.worst.iter().filter(|peer| peer.not_reading > 0).take(MOST).map(not_reading);
    let waiting = seen.all.waiting;
    let named = |peer: &&PeerCounts| peer.waiting > 0 && peer.waiting as f64 >= SHARE * waiting as f64;
    let mut most: Vec<_> = seen.worst.iter().filter(named).take(MOST).collect();
    if most.is_empty() {
        most.extend(seen.worst.iter().max_by_key(|peer| peer.waiting).filter(|peer| peer.waiting > 0));
    }
    silent.chain(most.into_iter().map(|peer| waits(peer, waiting))).collect()
}

fn not_reading(peer: &PeerCounts) -> String {
    let (bytes, longest) = (size(peer.untaken_bytes), seconds(peer.longest_untaken_seconds));
    let name = &peer.peer;
    match peer.not_reading {
        1 => format!("1 connection of {name} does not read: {bytes}, for {longest}"),
        many => format!("{many} connections of {name} do not read: {bytes}, for up to {longest}"),
    }
}

fn waits(peer: &PeerCounts, all: u64) -> String {
    let (name, longest) = (&peer.peer, seconds(peer.longest_wait_seconds));
    match (peer.waiting, all) {
        (_, 1) => format!("the request that waits comes from {name}, for {longest}"),
        (1, all) => format!("1 of {all} waiting requests comes from {name}, for {longest}"),
        (waiting, all) => format!("{waiting} of {all} waiting requests come from {name}, the first for {longest}"),
    }
}

#[cfg(test)]
mod tests {
    use evictscope_model::answers::{PeerCounts, PeersSeen};

    use super::who;

    fn peer(peer: &str, waiting: u64, not_reading: u64) -> PeerCounts {
        PeerCounts {
            peer: peer.to_owned(),
            waiting,
            not_reading,
            longest_wait_seconds: 0.4,
            longest_untaken_seconds: 12.0,
            untaken_bytes: not_reading * (1 << 20),
            ..PeerCounts::default()
        }
    }

    #[test]
    fn the_worst_are_named() {
        let look = |waiting, worst: &[PeerCounts]| {
            let all = PeerCounts { waiting, ..PeerCounts::default() };
            who(&PeersSeen { all, worst: worst.to_vec() })
        };
        assert_eq!(look(0, &[]), [""; 0]);
        let both = [peer("10.0.4.0/24", 480, 0), peer("10.0.3.7", 4, 20), peer("pid 77", 0, 1)];
        let expected = [
            "20 connections of 10.0.3.7 do not read: 20.0 MiB, for up to 12.0 s",
            "1 connection of pid 77 does not read: 1.0 MiB, for 12.0 s",
            "480 of 512 waiting requests come from 10.0.4.0/24, the first for 400 ms",
        ];
        assert_eq!(look(512, &both), expected);
        assert_eq!(look(1, &[peer("::1", 1, 0)]), ["the request that waits comes from ::1, for 400 ms"]);
        let spread: Vec<_> = (1..=8).map(|host| peer(&format!("10.0.{host}.1"), host / 8 + 1, 0)).collect();
        assert_eq!(look(9, &spread), ["2 of 9 waiting requests come from 10.0.8.1, the first for 400 ms"]);
    }
}
