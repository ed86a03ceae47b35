//! Parses what the program writes: which of a server's connections are those of clients, and when what happened.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use evictscope_abi::{
    ANSWERED_TCP, ActiveSocket, GAVE_UP, IDLE, IdleSocket, LISTENS, LOOK_END, LookEnd, NOT_SEEN, OWED_TCP,
    PENDING_MPTCP, PENDING_TCP, PENDING_UNIX, PERHAPS_GAVE_UP, PERHAPS_OWED_TCP, UNREAD_TCP, UNTAKEN,
};
use evictscope_telemetry::{ActivePeer, Answered, GaveUp, Owed, PeerAddress, SeenPeers, SocketLook, Unread};
use rustix::time::{ClockId, clock_getres, clock_gettime};

use crate::bpf::{WrittenRecord, take_record};

const AF_INET: u32 = 2;
/// How many [`IdleSocket::sent`] a second has.
const SENT_PER_SECOND: u32 = 32;

/// Reads the records of one look.
///
/// # Errors
///
/// Returns "not found" if the process has no files because it has ended; "invalid data" if the records are not a whole
/// look.
pub fn look(mut bytes: &[u8], ticks: Ticks, ports: &mut Ports) -> io::Result<SocketLook> {
    let (mut idle, mut active): (Vec<IdleSocket>, Vec<ActiveSocket>) = (Vec::new(), Vec::new());
    let end: LookEnd = loop {
        match bytes.first() {
            Some(&(IDLE | LISTENS | NOT_SEEN)) => idle.push(take(&mut bytes)?),
            Some(&LOOK_END) => break take(&mut bytes)?,
            Some(&(UNREAD_TCP..=UNTAKEN)) => active.push(take(&mut bytes)?),
            _ => return Err(ErrorKind::InvalidData.into()),
        }
    };
    if end.files == 0 {
        return Err(ErrorKind::NotFound.into());
    }
    idle.iter().filter(|record| record.kind == LISTENS).for_each(|record| ports.listens(record.port));
    idle.retain(|record| record.kind != LISTENS && ports.is_of_clients(record.port));
    active.retain(|record| ports.is_of_clients(record.port));
    let mut look = SocketLook { at: Duration::from_nanos(end.monotonic_ns), ..SocketLook::default() };
    look.not_seen = idle.extract_if(.., |record| record.kind == NOT_SEEN).count() as u32;
    look.connected = idle.len() as u32;
    let mut sent = idle.iter().map(|record| record.sent).min().unwrap_or(u8::MAX);
    let [_, has_peers, ..] = end.kind;
    let mut peers = (has_peers != 0).then(SeenPeers::default);
    for record in active {
        let ActiveSocket { mut kind, mut bytes, socket, read_to, answered_to, taken_to, mut untaken, .. } = record;
        let is_pending = matches!(kind, PENDING_TCP | PENDING_MPTCP | PENDING_UNIX);
        if is_pending {
            let Some(pending) = pending(kind, record.sent, bytes) else { continue };
            (kind, bytes) = pending;
        } else {
            sent = sent.min(record.sent);
        }
        let time = |jiffies| ticks.before(look.at, end.jiffies.wrapping_sub(jiffies));
        let (came, left) = (time(record.came), time(record.left));
        let is_unix = record.port == 0;
        let is_connected = !matches!(kind, GAVE_UP | PERHAPS_GAVE_UP);
        look.connected += u32::from(is_connected);
        if let Some(peers) = peers.as_mut().filter(|_| is_connected) {
            let mut address = peer(record.port, record.peer);
            if is_pending && !is_unix {
                if taken_to == AF_INET {
                    address = PeerAddress::Ip(Ipv4Addr::from(untaken.to_ne_bytes()).into());
                }
                untaken = 0;
            }
            *peers.connections.entry(address).or_default() += 1;
            if untaken > 0 || !matches!(kind, IDLE | ANSWERED_TCP) {
                let left = (!is_unix).then_some(left);
                peers.active.push(ActivePeer { socket, address, unread: bytes, untaken, taken_to, left });
            }
        }
        match kind {
            IDLE | UNTAKEN => {}
            OWED_TCP | PERHAPS_OWED_TCP => {
                look.owed.push(Owed { socket, read_to, answered_to, came, is_certain: kind == OWED_TCP });
            }
            ANSWERED_TCP => look.answered.push(Answered { socket, came, left }),
            GAVE_UP | PERHAPS_GAVE_UP => {
                let (came, is_certain) = ((!is_unix).then_some(came), kind == GAVE_UP);
                look.gave_up.push(GaveUp { socket, answered_to, came, is_certain });
            }
            _ => look.unread.push(Unread { socket, read_to, answered_to, bytes, came: (!is_unix).then_some(came) }),
        }
    }
    // Of a server of which nobody waits and that waits for nobody, connections are not counted by peer.
    if let Some(peers) = peers.as_mut().filter(|peers| !peers.active.is_empty()) {
        for record in idle {
            *peers.connections.entry(peer(record.port, record.peer)).or_default() += 1;
        }
    }
    look.peers = peers;
    let ago = Duration::from_secs(1) * u32::from(sent) / SENT_PER_SECOND;
    look.sent = (sent != u8::MAX).then(|| look.at.saturating_sub(ago));
    Ok(look)
}

fn take<T: WrittenRecord>(bytes: &mut &[u8]) -> io::Result<T> {
    take_record(bytes).ok_or(ErrorKind::InvalidData.into())
}

/// Returns what a connection that was not accepted is, and how many bytes lie unread; `None` if its client has left
/// nothing.
fn pending(kind: u8, state: u8, bytes: u32) -> Option<(u8, u32)> {
    const ESTABLISHED: u8 = 1;
    const CLOSE: u8 = 7;
    const CLOSE_WAIT: u8 = 8;
    const SHUTDOWN_MASK: u8 = 3;
    let (is_open, is_closed) = match kind {
        PENDING_UNIX => (state != SHUTDOWN_MASK, state == SHUTDOWN_MASK),
        _ => (state == ESTABLISHED, matches!(state, CLOSE | CLOSE_WAIT)),
    };
    let bytes = bytes.saturating_sub(u32::from(is_closed && kind == PENDING_TCP));
    match (is_open, is_closed, bytes) {
        (true, _, 0) => Some((IDLE, 0)),
        (true, ..) => Some((UNREAD_TCP, bytes)),
        (_, true, 1..) => Some((GAVE_UP, bytes)),
        _ => None,
    }
}

fn peer(port: u16, peer: [u32; 4]) -> PeerAddress {
    if port == 0 {
        return PeerAddress::Process(peer[0]);
    }
    // In network order.
    let [a, b, c, d] = peer.map(|word| u128::from(u32::from_be(word)));
    PeerAddress::Ip(Ipv6Addr::from_bits(a << 96 | b << 64 | c << 32 | d).to_canonical())
}

/// The cluster bus is at a server's port plus this, unless `cluster-port` says otherwise.
const BUS_OFFSET: u16 = 10_000;

/// The ports of one server. What it has accepted on a port at which it listens is a connection of a client, unless that
/// port is the cluster bus; what it has connected itself has another port.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// Where it listens, or has listened since it was first looked at: connections outlive that.
    listened: BTreeSet<u16>,
    /// Whether it is of a cluster; `None` if that is not known.
    pub is_cluster: Option<bool>,
    /// The port of the cluster bus, if it was set.
    pub bus: Option<u16>,
}

impl Ports {
    pub fn listens(&mut self, port: u16) {
        self.listened.insert(port);
    }

    /// Returns whether its connections with this port, 0 for Unix sockets, are those of clients.
    pub fn is_of_clients(&self, port: u16) -> bool {
        port == 0 || self.listened.contains(&port) && !self.is_bus(port)
    }

    fn is_bus(&self, port: u16) -> bool {
        let is_offset = || port.checked_sub(BUS_OFFSET).is_some_and(|of| self.listened.contains(&of));
        self.is_cluster != Some(false) && self.bus.map_or_else(is_offset, |bus| bus == port)
    }
}

/// How long a tick is, and when the last one was. The coarse clock advances with the same ticks as `jiffies`, even when
/// they are late, and its resolution is their length.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    pub length: Duration,
    /// Monotonic time of the last one.
    pub last: Duration,
}

impl Ticks {
    pub fn now() -> Self {
        Self {
            length: clock_getres(ClockId::MonotonicCoarse).try_into().unwrap_or_default(),
            last: clock_gettime(ClockId::MonotonicCoarse).try_into().unwrap_or_default(),
        }
    }

    pub fn per_second(self) -> u32 {
        u32::try_from(1_000_000_000 / self.length.as_nanos().max(1)).unwrap_or(u32::MAX)
    }

    /// Returns the time of the tick that came `ticks` ticks before the last one at `at`.
    pub fn before(self, at: Duration, ticks: u32) -> Duration {
        let later = self.last.saturating_sub(at).as_nanos().div_ceil(self.length.as_nanos().max(1));
        let ticks = ticks.saturating_add(u32::try_from(later).unwrap_or(u32::MAX));
        self.last.saturating_sub(self.length.saturating_mul(ticks))
    }
}

#[cfg(test)]
mod tests {
    use evictscope_abi::UNREAD_UNIX;

    use super::*;

    const TICKS: Ticks = Ticks { length: Duration::from_millis(4), last: Duration::from_millis(1000) };

    const ACTIVE: ActiveSocket = ActiveSocket {
        kind: UNREAD_TCP,
        sent: u8::MAX,
        port: 6379,
        bytes: 14,
        socket: 0,
        read_to: 77,
        answered_to: 88,
        came: 1,
        left: 2,
        peer: [0; 4],
        untaken: 0,
        taken_to: 99,
    };

    fn written<T: WrittenRecord>(record: T) -> Vec<u8> {
        // SAFETY: it is as long as said, and consists of integers.
        unsafe { std::slice::from_raw_parts((&raw const record).cast(), size_of::<T>()) }.to_vec()
    }

    fn active(kind: u8, port: u16, socket: u64, bytes: u32, came: u32) -> Vec<u8> {
        written(ActiveSocket { kind, sent: 64, port, bytes, socket, came, ..ACTIVE })
    }

    fn idle(kind: u8, sent: u8, port: u16) -> Vec<u8> {
        written(IdleSocket { kind, sent, port, peer: [0; 4] })
    }

    fn end(files: u64, has_peers: u8) -> Vec<u8> {
        written(LookEnd { kind: [LOOK_END, has_peers, 0, 0], jiffies: 2, monotonic_ns: 1_001_000_000, files })
    }

    #[test]
    fn records_are_read() -> io::Result<()> {
        let bytes = [
            idle(IDLE, 96, 6379),
            // The server's own connection to its primary.
            idle(IDLE, 0, 54321),
            active(UNREAD_TCP, 54321, 4, 14, 1),
            idle(LISTENS, 255, 6379),
            // Before the lower half of `jiffies` wrapped.
            active(UNREAD_TCP, 6379, 5, 14, u32::MAX),
            active(UNREAD_UNIX, 0, 1 << 40, 9, 0),
            idle(IDLE, 255, 0),
            idle(NOT_SEEN, 255, 6379),
            active(OWED_TCP, 6379, 6, 0, 1),
            active(PERHAPS_OWED_TCP, 6379, 8, 0, 1),
            active(ANSWERED_TCP, 6379, 9, 0, u32::MAX),
            active(GAVE_UP, 6379, 10, 14, 1),
            // Cluster bus.
            idle(LISTENS, 255, 16379),
            active(UNREAD_TCP, 16379, 11, 14, 1),
            end(9, 0),
        ];
        let ms = Duration::from_millis;
        let unread = |socket, bytes, came| Unread { socket, read_to: 77, answered_to: 88, bytes, came };
        let owed = |socket, is_certain| Owed { socket, read_to: 77, answered_to: 88, came: ms(996), is_certain };
        let expected = SocketLook {
            at: ms(1001),
            connected: 7,
            unread: vec![unread(5, 14, Some(ms(988))), unread(1 << 40, 9, None)],
            owed: vec![owed(6, true), owed(8, false)],
            answered: vec![Answered { socket: 9, came: ms(988), left: ms(1000) }],
            gave_up: vec![GaveUp { socket: 10, answered_to: 88, is_certain: true, came: Some(ms(996)) }],
            sent: Some(Duration::ZERO),
            not_seen: 1,
            peers: None,
        };
        assert_eq!(look(&bytes.concat(), TICKS, &mut Ports::default())?, expected);
        Ok(())
    }

    #[test]
    fn peers_are_counted_if_something_is_outstanding() -> io::Result<()> {
        let words = |ip: Ipv6Addr| {
            let octets = ip.octets();
            std::array::from_fn(|word| u32::from_ne_bytes(octets.as_chunks().0[word]))
        };
        let mapped = |last| words(Ipv4Addr::new(10, 0, 3, last).to_ipv6_mapped());
        let calm = [
            idle(LISTENS, 255, 6379),
            written(IdleSocket { kind: IDLE, sent: 96, port: 6379, peer: mapped(7) }),
            written(IdleSocket { kind: IDLE, sent: 96, port: 54321, peer: mapped(7) }),
            written(ActiveSocket { kind: ANSWERED_TCP, sent: 0, socket: 1, bytes: 0, peer: mapped(7), ..ACTIVE }),
        ];
        let look = |records: &[Vec<u8>]| look(&[records.concat(), end(9, 1)].concat(), TICKS, &mut Ports::default());
        let peers = look(&calm)?.peers;
        assert_eq!(peers.map(|peers| peers.active), Some(Vec::new()));
        let of_v6 = ActiveSocket { peer: words(Ipv6Addr::LOCALHOST), ..ACTIVE };
        // Of a pending connection by IPv4, the address is elsewhere.
        let pending = ActiveSocket { kind: PENDING_TCP, sent: 1, ..of_v6 };
        let ipv4 = u32::from_ne_bytes([10, 0, 3, 8]);
        let outstanding = [
            ActiveSocket { kind: UNTAKEN, socket: 2, bytes: 0, peer: mapped(8), untaken: 5_000, ..ACTIVE },
            ActiveSocket { socket: 3, ..of_v6 },
            ActiveSocket { kind: UNTAKEN, port: 0, socket: 4, bytes: 0, peer: [4_321, 0, 0, 0], untaken: 64, ..ACTIVE },
            ActiveSocket { kind: GAVE_UP, socket: 5, ..of_v6 },
            ActiveSocket { socket: 6, ..pending },
            ActiveSocket { socket: 7, untaken: ipv4, taken_to: AF_INET, ..pending },
        ];
        let seen = look(&[&calm[..], &outstanding.map(written)].concat())?;
        let [seven, eight] = [7, 8].map(|last| PeerAddress::Ip([10, 0, 3, last].into()));
        let [v6, process] = [PeerAddress::Ip(Ipv6Addr::LOCALHOST.into()), PeerAddress::Process(4_321)];
        let active = |socket, address, unread, untaken| {
            let left = (address != process).then_some(Duration::from_millis(1_000));
            ActivePeer { socket, address, unread, untaken, taken_to: if socket == 7 { AF_INET } else { 99 }, left }
        };
        let expected = SeenPeers {
            connections: [(seven, 2), (eight, 2), (v6, 2), (process, 1)].into(),
            active: vec![
                active(2, eight, 0, 5_000),
                active(3, v6, 14, 0),
                active(4, process, 0, 64),
                active(6, v6, 14, 0),
                active(7, eight, 14, 0),
            ],
        };
        assert_eq!((seen.peers, seen.connected, seen.unread.len()), (Some(expected), 7, 3));
        Ok(())
    }

    #[test]
    fn a_look_that_is_not_whole_is_none() {
        let kind = |bytes: &[u8]| look(bytes, TICKS, &mut Ports::default()).map_err(|error| error.kind());
        assert_eq!(kind(&end(0, 0)), Err(ErrorKind::NotFound));
        let whole = [active(UNREAD_TCP, 0, 5, 14, 1), end(9, 0)].concat();
        assert!(kind(&whole).is_ok());
        for len in 0..whole.len() {
            assert_eq!(kind(&whole[..len]), Err(ErrorKind::InvalidData), "{len}");
        }
        assert_eq!(kind(&[19, IDLE]), Err(ErrorKind::InvalidData));
    }

    fn clients(mut ports: Ports) -> Vec<u16> {
        for port in [6379, 6380, 16379] {
            ports.listens(port);
        }
        let all = [0, 6379, 6380, 16379, 43210];
        Vec::from_iter(all.into_iter().filter(|port| ports.is_of_clients(*port)))
    }

    #[test]
    fn the_bus_and_what_the_server_connected_are_no_clients() {
        let none = Ports::default();
        assert_eq!(clients(none.clone()), [0, 6379, 6380]);
        let alone = Ports { is_cluster: Some(false), ..none.clone() };
        assert_eq!(clients(alone), [0, 6379, 6380, 16379]);
        let set = Ports { is_cluster: Some(true), bus: Some(6380), ..none };
        assert_eq!(clients(set), [0, 6379, 16379]);
    }

    #[test]
    fn ticks_are_counted_from_the_last_one_before_the_look() {
        let (ms, ticks) = (Duration::from_millis, TICKS);
        assert_eq!(ticks.before(ms(1001), 0), ms(1000));
        assert_eq!(ticks.before(ms(1009), 0), ms(1000), "ticks are late");
        assert_eq!(ticks.before(ms(1001), 25), ms(900));
        assert_eq!(ticks.before(ms(1000), 1), ms(996));
        assert_eq!(ticks.before(ms(999), 1), ms(992), "one has come since the look");
        assert_eq!(ticks.before(ms(991), 1), ms(984));
        assert_eq!(ticks.before(ms(991), u32::MAX), Duration::ZERO);
    }

    #[test]
    fn this_kernel_has_ticks() {
        let ticks = Ticks::now();
        assert!(Duration::from_micros(100) <= ticks.length, "{ticks:?}");
        assert!(ticks.length <= Duration::from_millis(20), "{ticks:?}");
        let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
        assert!(ticks.last <= now, "{ticks:?}");
    }
}
