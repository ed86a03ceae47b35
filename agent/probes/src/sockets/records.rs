//! Parses what the program writes: which of a server's connections are those of clients, and when what happened.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::mem::offset_of;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use evictscope_abi::{
    ANSWERED_TCP, ActiveSocket, GAVE_UP, IDLE, IdleSocket, LISTENS, LOOK_END, LookEnd, NOT_SEEN, OWED_TCP,
    PENDING_MPTCP, PENDING_TCP, PENDING_UNIX, PERHAPS_GAVE_UP, PERHAPS_OWED_TCP, UNREAD_TCP, UNREAD_UNIX, UNTAKEN,
};
use evictscope_telemetry::{ActivePeer, Answered, GaveUp, Owed, PeerAddress, SeenPeers, SocketLook, Unread};
use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

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
    let (mut idle, mut active) = (Vec::new(), Vec::new());
    let end = loop {
        match bytes {
            [IDLE | LISTENS | NOT_SEEN, ..] => {
                let (record, rest) =
                    bytes.split_first_chunk::<{ size_of::<IdleSocket>() }>().ok_or(ErrorKind::InvalidData)?;
                if record[0] == LISTENS {
                    ports.listens(port(record));
                } else {
                    idle.push(record);
                }
                bytes = rest;
            }
            [
                UNREAD_TCP | UNREAD_UNIX | OWED_TCP | PERHAPS_OWED_TCP | ANSWERED_TCP | GAVE_UP | PERHAPS_GAVE_UP
                | PENDING_TCP | PENDING_MPTCP | PENDING_UNIX | UNTAKEN,
                ..,
            ] => {
                let (record, rest) =
                    bytes.split_first_chunk::<{ size_of::<ActiveSocket>() }>().ok_or(ErrorKind::InvalidData)?;
                active.push(record);
                bytes = rest;
            }
            [LOOK_END, ..] => break bytes.first_chunk::<{ size_of::<LookEnd>() }>().ok_or(ErrorKind::InvalidData)?,
            _ => return Err(ErrorKind::InvalidData.into()),
        }
    };
    if word(end, offset_of!(LookEnd, files))? == 0 {
        return Err(ErrorKind::NotFound.into());
    }
    let mut look =
        SocketLook { at: Duration::from_nanos(word(end, offset_of!(LookEnd, monotonic_ns))?), ..SocketLook::default() };
    let now = half(end, offset_of!(LookEnd, jiffies))?;
    let mut sent = u8::MAX;
    idle.retain(|record| {
        let is_clients = ports.is_of_clients(port(*record));
        look.not_seen += u32::from(is_clients && record[0] == NOT_SEEN);
        let is_seen = is_clients && record[0] == IDLE;
        if is_seen {
            look.connected += 1;
            sent = sent.min(record[1]);
        }
        is_seen
    });
    let mut peers = (end[1] != 0).then(SeenPeers::default);
    for record in active {
        if !ports.is_of_clients(port(record)) {
            continue;
        }
        let (mut kind, mut bytes) = (record[0], half(record, offset_of!(ActiveSocket, bytes))?);
        if let PENDING_TCP | PENDING_MPTCP | PENDING_UNIX = kind {
            let Some(pending) = pending(kind, record[1], bytes) else { continue };
            (kind, bytes) = pending;
        } else {
            sent = sent.min(record[1]);
        }
        let socket = word(record, offset_of!(ActiveSocket, socket))?;
        let read_to = half(record, offset_of!(ActiveSocket, read_to))?;
        let answered_to = half(record, offset_of!(ActiveSocket, answered_to))?;
        let time = |at| io::Result::Ok(ticks.before(look.at, now.wrapping_sub(half(record, at)?)));
        let came = time(offset_of!(ActiveSocket, came))?;
        let left = time(offset_of!(ActiveSocket, left))?;
        let is_unix = port(record) == 0;
        let is_connected = !matches!(kind, GAVE_UP | PERHAPS_GAVE_UP);
        look.connected += u32::from(is_connected);
        if let Some(peers) = peers.as_mut().filter(|_| is_connected) {
            let mut address = peer(record, offset_of!(ActiveSocket, peer))?;
            let mut untaken = half(record, offset_of!(ActiveSocket, untaken))?;
            let taken_to = half(record, offset_of!(ActiveSocket, taken_to))?;
            if let PENDING_TCP | PENDING_MPTCP = record[0] {
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
            *peers.connections.entry(peer(record, offset_of!(IdleSocket, peer))?).or_default() += 1;
        }
    }
    look.peers = peers;
    let ago = Duration::from_secs(1) * u32::from(sent) / SENT_PER_SECOND;
    look.sent = (sent != u8::MAX).then(|| look.at.saturating_sub(ago));
    Ok(look)
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

fn port(record: &[u8]) -> u16 {
    u16::from_ne_bytes([record[2], record[3]])
}

fn peer(record: &[u8], at: usize) -> io::Result<PeerAddress> {
    if port(record) == 0 {
        return Ok(PeerAddress::Process(half(record, at)?));
    }
    let bytes: &[u8; 16] = record.get(at..).and_then(<[u8]>::first_chunk).ok_or(ErrorKind::InvalidData)?;
    Ok(PeerAddress::Ip(Ipv6Addr::from(*bytes).to_canonical()))
}

fn word(record: &[u8], at: usize) -> io::Result<u64> {
    let bytes = record.get(at..).and_then(<[u8]>::first_chunk);
    Ok(u64::from_ne_bytes(*bytes.ok_or(ErrorKind::InvalidData)?))
}

fn half(record: &[u8], at: usize) -> io::Result<u32> {
    let bytes = record.get(at..).and_then(<[u8]>::first_chunk);
    Ok(u32::from_ne_bytes(*bytes.ok_or(ErrorKind::InvalidData)?))
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
    /// Notes that it listens at a port.
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
    /// Returns the last tick.
    pub fn now() -> Self {
        Self {
            length: duration(clock_getres(ClockId::MonotonicCoarse)),
            last: duration(clock_gettime(ClockId::MonotonicCoarse)),
        }
    }

    /// Returns how many there are in a second.
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

fn duration(time: Timespec) -> Duration {
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICKS: Ticks = Ticks { length: Duration::from_millis(4), last: Duration::from_millis(1000) };

    fn active(kind: u8, port: u16, socket: u64, bytes: u32, came: u32) -> Vec<u8> {
        active_of([0; 16], 0, [kind, 64], port, socket, bytes, came)
    }

    fn active_of(
        peer: [u8; 16],
        untaken: u32,
        [kind, sent]: [u8; 2],
        port: u16,
        socket: u64,
        bytes: u32,
        came: u32,
    ) -> Vec<u8> {
        let mut record = vec![kind, sent];
        record.extend(port.to_ne_bytes());
        record.extend(bytes.to_ne_bytes());
        record.extend(socket.to_ne_bytes());
        for word in [77, 88, came, 2_u32] {
            record.extend(word.to_ne_bytes());
        }
        record.extend(peer);
        // Of a pending one, it is the address family.
        let taken_to = if peer == [0xee; 16] { AF_INET } else { 99 };
        record.extend([untaken, taken_to].into_iter().flat_map(u32::to_ne_bytes));
        record
    }

    fn idle(kind: u8, sent: u8, port: u16) -> Vec<u8> {
        idle_of([0; 16], kind, sent, port)
    }

    fn idle_of(peer: [u8; 16], kind: u8, sent: u8, port: u16) -> Vec<u8> {
        let [low, high] = port.to_ne_bytes();
        [&[kind, sent, low, high][..], &peer].concat()
    }

    fn end(files: u64) -> Vec<u8> {
        let mut record = vec![LOOK_END, 0, 0, 0];
        record.extend(2_u32.to_ne_bytes());
        record.extend(1_001_000_000_u64.to_ne_bytes());
        record.extend(files.to_ne_bytes());
        record
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
            end(9),
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
        let mapped = |last| Ipv4Addr::new(10, 0, 3, last).to_ipv6_mapped().octets();
        let (v6, v4) = (Ipv6Addr::LOCALHOST.octets(), [0xee; 16]);
        let pid = [&4_321_u32.to_ne_bytes()[..], &[0; 12]].concat().try_into().unwrap_or_default();
        let calm = [
            idle(LISTENS, 255, 6379),
            idle_of(mapped(7), IDLE, 96, 6379),
            idle_of(mapped(7), IDLE, 96, 54321),
            active_of(mapped(7), 0, [ANSWERED_TCP, 0], 6379, 1, 0, 1),
        ];
        let mut told = end(9);
        told[1] = 1;
        let look = |records: &[Vec<u8>]| look(&[&records.concat()[..], &told].concat(), TICKS, &mut Ports::default());
        let peers = look(&calm)?.peers;
        assert_eq!(peers.map(|peers| peers.active), Some(Vec::new()));
        let outstanding = [
            active_of(mapped(8), 5_000, [UNTAKEN, 255], 6379, 2, 0, 1),
            active_of(v6, 0, [UNREAD_TCP, 255], 6379, 3, 14, 1),
            active_of(pid, 64, [UNTAKEN, 255], 0, 4, 0, 0),
            active_of(v6, 0, [GAVE_UP, 255], 6379, 5, 14, 1),
            active_of(v6, 0, [PENDING_TCP, 1], 6379, 6, 14, 1),
            active_of(v4, u32::from_ne_bytes([10, 0, 3, 8]), [PENDING_TCP, 1], 6379, 7, 14, 1),
        ];
        let seen = look(&[&calm[..], &outstanding].concat())?;
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
        assert_eq!(kind(&end(0)), Err(ErrorKind::NotFound));
        let whole = [active(UNREAD_TCP, 0, 5, 14, 1), end(9)].concat();
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
        let now = duration(clock_gettime(ClockId::Monotonic));
        assert!(ticks.last <= now, "{ticks:?}");
    }
}
