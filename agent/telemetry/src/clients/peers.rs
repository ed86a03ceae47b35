//! Who: the peers whose requests wait, and those that do not take their answers.
//!
//! A look at a server's sockets says who is at the other end of each connection, what the server has not read of it,
//! and what the kernel holds because the peer has not taken it. Counted by address, or by network where many addresses
//! of one share it, a few peers are enough to say who it is.
//!
//! `ss -tn` contradicts these numbers: it has the addresses, and Send-Q.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use evictscope_model::answers::{PeerCounts, PeersSeen};

use super::waits::{OVER, Waits};
use crate::{ActivePeer, PeerAddress, SeenPeers};

/// How many peers are kept of a look.
const MOST: usize = 8;
/// If this many addresses of a network have something outstanding, they are one peer.
const MANY: usize = 4;
/// Who has taken nothing for this long does not read.
const NOT_READING: Duration = Duration::from_secs(1);
/// Fewer bytes that were not taken, for a shorter time, are just under way.
const LITTLE: u64 = 64 << 10;
/// A wait that is worth keeping after it has ended.
const LONG_WAIT: Duration = OVER[0];
/// For how long the worst looks are kept.
const KEPT: Duration = Duration::from_secs(600);
/// Of how long a time one look of each kind is kept.
const SPAN: Duration = Duration::from_secs(5);

/// A look, and when it was made, monotonic.
type DatedLook = (Duration, Arc<PeersSeen>);

/// What is known about the peers of one server.
#[derive(Clone, Debug, Default)]
pub struct Peers {
    last: Option<DatedLook>,
    /// The connections whose answers were not all taken at the last look: how far they were, and since when.
    untaken: HashMap<u64, (u32, Duration)>,
    pub worst: WorstPeers,
}

impl Peers {
    /// Takes in who was seen at a look, after `waits` has.
    pub(crate) fn take_in(&mut self, at: Duration, seen: Option<&SeenPeers>, waits: &Waits) {
        let Some(seen) = seen else {
            *self = Self { worst: std::mem::take(&mut self.worst), ..Self::default() };
            return;
        };
        let before = std::mem::take(&mut self.untaken);
        let last = self.last.take().map_or(Duration::ZERO, |(last, _)| last);
        let mut all = PeerCounts { peer: "all".to_owned(), connections: waits.connected, ..PeerCounts::default() };
        let mut by_address: BTreeMap<PeerAddress, PeerCounts> = BTreeMap::new();
        for active in &seen.active {
            let ActivePeer { socket, taken_to, .. } = *active;
            let mut counts = PeerCounts::default();
            if let Some(since) = waits.since(socket) {
                counts.waiting = 1;
                counts.longest_wait_seconds = at.saturating_sub(since).as_secs_f64();
                counts.unread_bytes = active.unread.into();
            }
            if active.untaken > 0 {
                // If it has taken some, that was after the look before.
                let since = active.left.unwrap_or(at).max(last).min(at);
                let stays = before.get(&socket).filter(|known| known.0 == taken_to);
                let since = stays.map_or(since, |known| known.1);
                self.untaken.insert(socket, (taken_to, since));
                let age = at.saturating_sub(since);
                counts.untaken_bytes = active.untaken.into();
                counts.longest_untaken_seconds = age.as_secs_f64();
                counts.not_reading = (age >= NOT_READING).into();
            }
            add(&mut all, &counts);
            add(by_address.entry(active.address).or_default(), &counts);
        }
        by_address.retain(|_, of| of.waiting + of.not_reading > 0 || of.untaken_bytes >= LITTLE);
        let mut worst = by_peer(by_address, &seen.connections);
        let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
        let weight = |of: &PeerCounts| share(of.waiting, all.waiting) + share(of.untaken_bytes, all.untaken_bytes);
        worst.sort_by(|one, other| weight(other).total_cmp(&weight(one)));
        worst.truncate(MOST);
        let look = Arc::new(PeersSeen { all, worst });
        self.worst.take_in(&(at, look.clone()));
        self.last = Some((at, look));
    }

    /// Returns who had something outstanding at the last look, and when that was, monotonic; `None` if that is not
    /// known.
    pub fn last(&self) -> Option<(Duration, &PeersSeen)> {
        self.last.as_ref().map(|(at, look)| (*at, &**look))
    }
}

fn add(to: &mut PeerCounts, more: &PeerCounts) {
    to.waiting += more.waiting;
    to.longest_wait_seconds = to.longest_wait_seconds.max(more.longest_wait_seconds);
    to.unread_bytes += more.unread_bytes;
    to.not_reading += more.not_reading;
    to.untaken_bytes += more.untaken_bytes;
    to.longest_untaken_seconds = to.longest_untaken_seconds.max(more.longest_untaken_seconds);
}

/// Returns the network of addresses that usually belong together, and its bits: the first 24 of an IPv4 address, or 64
/// of an IPv6 address.
fn network(address: PeerAddress) -> Option<(IpAddr, u8)> {
    match address {
        PeerAddress::Ip(IpAddr::V4(ip)) => Some((Ipv4Addr::from_bits(ip.to_bits() & !0xff).into(), 24)),
        PeerAddress::Ip(IpAddr::V6(ip)) => Some((Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(), 64)),
        PeerAddress::Process(_) => None,
    }
}

/// Makes one peer of many addresses of a network, unless one of them has most of what is outstanding there.
fn by_peer(addresses: BTreeMap<PeerAddress, PeerCounts>, connections: &HashMap<PeerAddress, u32>) -> Vec<PeerCounts> {
    let mut networks: BTreeMap<_, Vec<(PeerAddress, PeerCounts)>> = BTreeMap::new();
    for (address, counts) in addresses {
        networks.entry(network(address)).or_default().push((address, counts));
    }
    let (mut alone, mut together): (BTreeMap<PeerAddress, PeerCounts>, _) = (BTreeMap::new(), BTreeMap::new());
    for (network, of) in networks {
        let mut sum = PeerCounts::default();
        of.iter().for_each(|(_, counts)| add(&mut sum, counts));
        let has_most = |(_, counts): &(PeerAddress, PeerCounts)| {
            2 * counts.waiting > sum.waiting || 2 * counts.untaken_bytes > sum.untaken_bytes
        };
        let (few, many): (Vec<_>, Vec<_>) = of.into_iter().partition(has_most);
        alone.extend(few);
        match network {
            Some((ip, bits)) if many.len() >= MANY => {
                let (peer, addresses) = (format!("{ip}/{bits}"), many.len() as u64);
                let mut sum = PeerCounts { peer, addresses, ..PeerCounts::default() };
                many.iter().for_each(|(_, counts)| add(&mut sum, counts));
                together.insert((ip, bits), sum);
            }
            _ => alone.extend(many),
        }
    }
    for (address, counts) in &mut alone {
        (counts.peer, counts.addresses) = (address.to_string(), 1);
    }
    for (address, count) in connections {
        let counts = alone.get_mut(address).or_else(|| together.get_mut(&network(*address)?));
        if let Some(counts) = counts {
            counts.connections += u64::from(*count);
        }
    }
    together.into_values().chain(alone.into_values()).collect()
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Process(0) => f.write_str("a Unix socket"),
            Self::Process(pid) => write!(f, "pid {pid}"),
        }
    }
}

/// The worst looks of the last ten minutes: when each five seconds of them began, and the worst look of each kind in
/// them. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct WorstPeers(Arc<VecDeque<(Duration, [Option<DatedLook>; 2])>>);

/// How bad a look is: by the requests that wait, if one waited for long, and by the bytes that were not taken, if
/// somebody did not read.
type Badness = fn(&PeersSeen) -> Option<(u64, f64)>;
const BADNESS: [Badness; 2] = [
    |PeersSeen { all, .. }| {
        (all.longest_wait_seconds >= LONG_WAIT.as_secs_f64()).then_some((all.waiting, all.longest_wait_seconds))
    },
    |PeersSeen { all, .. }| (all.not_reading > 0).then_some((all.untaken_bytes, all.longest_untaken_seconds)),
];

impl WorstPeers {
    fn take_in(&mut self, look: &DatedLook) {
        let (at, seen) = look;
        let badness = BADNESS.map(|badness| badness(seen));
        if badness == [None, None] {
            return;
        }
        let spans = Arc::make_mut(&mut self.0);
        while spans.pop_front_if(|(began, _)| at.saturating_sub(*began) > KEPT).is_some() {}
        if spans.back().is_none_or(|(began, _)| at.saturating_sub(*began) >= SPAN) {
            spans.push_back((*at, [None, None]));
        }
        let Some((_, worst)) = spans.back_mut() else { return };
        for ((worst, of), badness) in worst.iter_mut().zip(BADNESS).zip(badness) {
            if badness > worst.as_ref().and_then(|(_, worst)| of(worst)) {
                *worst = Some(look.clone());
            }
        }
    }

    /// Returns the look between two monotonic times at which most requests waited, if one waited for 0.1 s, and that at
    /// which most bytes were not taken, if somebody did not read: in order of time, and once if it is both.
    pub fn between(&self, from: Duration, to: Duration) -> Vec<(Duration, &PeersSeen)> {
        let worst = |(kind, badness): (usize, Badness)| {
            let looks = self.0.iter().filter_map(|(_, worst)| worst[kind].as_ref());
            let within = looks.filter(|(at, _)| (from..=to).contains(at));
            within.reduce(|worst, look| if badness(&look.1) > badness(&worst.1) { look } else { worst })
        };
        let mut looks: Vec<_> = (0..).zip(BADNESS).filter_map(worst).map(|(at, seen)| (*at, &**seen)).collect();
        looks.sort_by_key(|(at, _)| *at);
        looks.dedup_by_key(|(at, _)| *at);
        looks
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evictscope_model::answers::PeersSeen;

    use crate::{ActivePeer, PeerAddress, SeenPeers, ServerState, Snapshot, SocketLook, Unread};

    fn address(text: &str) -> PeerAddress {
        text.parse().map_or_else(|_| PeerAddress::Process(text.parse().unwrap_or_default()), PeerAddress::Ip)
    }

    /// Connections of a peer: how many, since when (ms) a request of each waits, and bytes that each has not taken, of
    /// which the last left then (ms).
    type Group<'a> = (&'a str, u32, Option<u64>, Option<(u32, u64)>);

    /// Has a server looked at, ms after it was found. The first `taken` bytes were taken.
    fn look(state: &mut ServerState, at: u64, taken: u32, groups: &[Group<'_>]) -> PeersSeen {
        let (ms, mut seen, mut unread, mut connected) = (Duration::from_millis, SeenPeers::default(), Vec::new(), 0);
        for (peer, count, since, untaken) in groups {
            *seen.connections.entry(address(peer)).or_default() += count;
            for _ in 0..*count {
                connected += 1;
                let socket = u64::from(connected);
                let came = since.map(ms);
                unread.extend(came.map(|_| Unread { socket, read_to: 1, answered_to: 1, bytes: 14, came }));
                if since.is_some() || untaken.is_some() {
                    seen.active.push(ActivePeer {
                        socket,
                        address: address(peer),
                        unread: came.map_or(0, |_| 14),
                        untaken: untaken.map_or(0, |(bytes, _)| bytes),
                        taken_to: taken,
                        left: untaken.map(|(_, left)| ms(left)),
                    });
                }
            }
        }
        let look = SocketLook { at: ms(at), connected, unread, peers: Some(seen), ..SocketLook::default() };
        state.apply(&Snapshot { at: ms(at), look: Some(look), ..Snapshot::default() });
        state.peers.last().map(|(_, seen)| seen.clone()).unwrap_or_default()
    }

    /// Returns who waits: how many requests of how many connections of how many addresses.
    fn waiting(seen: &PeersSeen) -> Vec<(&str, u64, u64, u64)> {
        seen.worst.iter().map(|of| (&*of.peer, of.waiting, of.connections, of.addresses)).collect()
    }

    #[test]
    fn many_addresses_of_a_network_are_one_peer() {
        let hosts: Vec<String> = (1..=48).map(|host| format!("10.0.4.{host}")).collect();
        let mut groups: Vec<Group<'_>> = hosts.iter().map(|host| (&**host, 10, Some(9_000), None)).collect();
        groups.extend([
            ("10.0.4.200", 5, None, None),
            ("10.0.5.1", 20, Some(9_500), None),
            ("10.0.5.2", 12, Some(9_500), None),
            ("7", 1, None, None),
        ]);
        let seen = look(&mut ServerState::default(), 10_000, 0, &groups);
        assert_eq!(waiting(&seen), [("10.0.4.0/24", 480, 485, 48), ("10.0.5.1", 20, 20, 1), ("10.0.5.2", 12, 12, 1)]);
        assert_eq!((seen.all.waiting, seen.all.connections, seen.worst[0].unread_bytes), (512, 518, 480 * 14));
        assert_eq!((seen.all.longest_wait_seconds, seen.worst[1].longest_wait_seconds), (1.0, 0.5));
    }

    #[test]
    fn who_has_most_is_not_hidden_in_a_network() {
        let one = Some(9_000);
        let groups = [
            ("10.0.3.7", 20, one, None),
            ("10.0.3.8", 1, one, None),
            ("10.0.3.9", 2, one, None),
            ("10.0.3.10", 1, one, None),
            ("10.0.3.11", 1, one, None),
            ("fd00::1", 1, one, None),
            ("fd00::1:0:0:1", 1, one, None),
            ("77", 3, one, None),
        ];
        let seen = look(&mut ServerState::default(), 10_000, 0, &groups);
        let expected = [
            ("10.0.3.7", 20, 20, 1),
            ("10.0.3.0/24", 5, 5, 4),
            ("pid 77", 3, 3, 1),
            ("fd00::1", 1, 1, 1),
            ("fd00::1:0:0:1", 1, 1, 1),
        ];
        assert_eq!(waiting(&seen), expected);
    }

    #[test]
    fn who_takes_nothing_for_a_second_does_not_read() {
        let mut state = ServerState::default();
        let mut seen = |at, taken, left| {
            let groups = [("10.0.3.7", 20, None, Some((1_000, left))), ("10.0.3.8", 2, None, None)];
            let seen = look(&mut state, at, taken, &groups);
            let of = seen.worst.first().cloned().unwrap_or_default();
            (of.not_reading, of.untaken_bytes, of.longest_untaken_seconds)
        };
        assert_eq!(seen(10_000, 1, 9_900), (0, 0, 0.0), "20,000 bytes are under way");
        assert_eq!(seen(10_950, 1, 9_900), (20, 20_000, 1.05));
        // What was not acknowledged is sent again.
        assert_eq!(seen(12_000, 1, 11_900), (20, 20_000, 2.1));
        // It has taken some between the looks. It is not known when.
        assert_eq!(seen(12_500, 2, 9_900), (0, 0, 0.0));
        assert_eq!(seen(13_500, 2, 9_900), (20, 20_000, 1.5));
    }

    #[test]
    fn the_worst_looks_are_kept_for_ten_minutes() {
        let mut state = ServerState::default();
        for second in 1..=700 {
            let at = second * 1_000;
            let groups = match second {
                50 => [("10.0.0.1", 400, Some(at - 900), None)],
                60 => [("10.0.0.2", 3, Some(at - 900), None)],
                70..75 => [("10.0.0.3", 7, None, Some((9_000, 69_000)))],
                100 | 690 => [("10.0.0.4", 5, Some(at - 99), None)],
                _ => [("10.0.0.5", 1, None, None)],
            };
            look(&mut state, at, 0, &groups);
            if second == 640 {
                let worst = |from, to| {
                    let between = state.peers.worst.between(Duration::from_secs(from), Duration::from_secs(to));
                    between.into_iter().map(|(at, seen)| (at.as_secs(), seen.worst[0].peer.clone())).collect::<Vec<_>>()
                };
                let at = |second: u64, peer: &str| (second, peer.to_owned());
                assert_eq!(worst(0, 700), [at(50, "10.0.0.1"), at(74, "10.0.0.3")]);
                assert_eq!(worst(55, 69), [at(60, "10.0.0.2")]);
                assert_eq!(worst(76, 700), []);
            }
        }
    }
}
