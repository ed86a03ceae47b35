//! What a look at the sockets of a server sees.

use std::time::Duration;

/// The connections of clients of one server at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketLook {
    /// Monotonic time of the look.
    pub at: Duration,
    /// Connections of clients: TCP and MPTCP over IPv4 and IPv6, and Unix sockets, also those that the server has not
    /// accepted yet.
    pub connected: u32,
    /// Those with bytes that the server has not read.
    pub unread: Vec<Unread>,
    /// Those whose data was all read, and to which nothing has been sent since: TCP only.
    pub owed: Vec<Owed>,
    /// Those whose last answer left lately, and late: TCP only.
    pub answered: Vec<Answered>,
    /// Those that the client has closed while it was owed an answer. They do not count as connected.
    pub gave_up: Vec<GaveUp>,
    /// When something last left on any of them, to a 32nd of a second, if that was in the last seven seconds: TCP only.
    pub sent: Option<Duration>,
    /// Connections by a protocol that is not understood. They do not count as connected.
    pub not_seen: u32,
}

/// A connection whose last request was read, and on which no answer has left since.
///
/// A client that is blocked on purpose (BLPOP, WAIT, CLIENT PAUSE) looks the same, as does a replica's link. When the
/// main thread comes to rest, the server has answered all that it can: only what has come since then waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owed {
    /// As [`Unread::socket`].
    pub socket: u64,
    /// As [`Unread::read_to`].
    pub read_to: u32,
    /// As [`Unread::answered_to`].
    pub answered_to: u32,
    /// When data last came, monotonic, to a tick.
    pub came: Duration,
    /// Whether the look is certain of it. If not, it is so only if an earlier look was, and no answer was written
    /// since.
    pub is_certain: bool,
}

/// A connection with unread bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Identifies the socket while it lives: its address in the kernel.
    pub socket: u64,
    /// How far the server has read, modulo 2^32: it changes when the server reads. TCP's `copied_seq`; for a Unix
    /// socket, a value that tells one unread message from the next.
    pub read_to: u32,
    /// How far the server has written answers, modulo 2^32 (TCP's `write_seq`); 0 for a Unix socket.
    pub answered_to: u32,
    /// Unread bytes.
    pub bytes: u32,
    /// When data last came, monotonic, to a tick (`icsk_ack.lrcvtime`); not known for a Unix socket.
    pub came: Option<Duration>,
}

/// A connection in which nothing waits, and whose last answer left later than the request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// As [`Unread::socket`].
    pub socket: u64,
    /// When data last came, monotonic, to a tick.
    pub came: Duration,
    /// When data last left (`lsndtime`), likewise.
    pub left: Duration,
}

/// A connection that its client has closed or reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GaveUp {
    /// As [`Unread::socket`].
    pub socket: u64,
    /// As [`Unread::answered_to`].
    pub answered_to: u32,
    /// When data last came, monotonic, to a tick; not known for a Unix socket.
    pub came: Option<Duration>,
    /// As [`Owed::is_certain`].
    pub is_certain: bool,
}
