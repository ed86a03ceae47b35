//! What a look at the sockets of a server sees.

use std::time::Duration;

/// The connections of one server at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketLook {
    /// Monotonic time of the look.
    pub at: Duration,
    /// Connected stream sockets of the process: TCP over IPv4 and IPv6, and Unix sockets.
    pub connected: u32,
    /// Connections with bytes that the server has not read, and TCP connections that it has not even accepted.
    pub unread: Vec<Unread>,
    /// Connections whose data was all read, and to which nothing has been sent since: TCP only.
    pub owed: Vec<Owed>,
}

/// A connection whose last request was read, and on which no answer has left since.
///
/// A client that is blocked on purpose (BLPOP, WAIT, CLIENT PAUSE) looks the same, as does a replica's link. When the main thread
/// comes to rest, the server has answered all that it can: only what has come since then waits.
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
}

/// A connection with unread bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Identifies the socket while it lives: its address in the kernel.
    pub socket: u64,
    /// How far the server has read, modulo 2^32: it changes when the server reads. TCP's `copied_seq`; for a Unix socket, a value
    /// that tells one unread message from the next.
    pub read_to: u32,
    /// How far the server has written answers, modulo 2^32 (TCP's `write_seq`); 0 for a Unix socket.
    pub answered_to: u32,
    /// Unread bytes.
    pub bytes: u32,
    /// When data last came, monotonic, to a tick (`icsk_ack.lrcvtime`); not known for a Unix socket.
    pub came: Option<Duration>,
}
