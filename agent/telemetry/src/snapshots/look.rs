//! What a look at the sockets of a server sees.

use std::time::Duration;

/// The connections of one server at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketLook {
    /// Monotonic time of the look.
    pub at: Duration,
    /// Connected stream sockets of the process: TCP over IPv4 and IPv6, and Unix sockets.
    pub connected: u32,
    /// Those of them in which bytes lie that the server has not read, and TCP connections that it has not even accepted.
    pub unread: Vec<Unread>,
    /// Those of them of which all was read, and to which nothing has been sent since: TCP only.
    pub owed: Vec<Owed>,
}

/// A connection whose last request was read, and to which no answer has left since.
///
/// A client that is blocked on purpose looks the same (BLPOP, WAIT, CLIENT PAUSE), as does the link of a replica. What the server
/// can answer it has answered when its main thread comes to rest: only what came since then waits.
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

/// A connection in which bytes lie unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Tells one socket from all others while it lives: its address in the kernel.
    pub socket: u64,
    /// How far the server has read, modulo 2^32: it changes when the server reads. TCP's `copied_seq`; of a Unix socket,
    /// what tells one unread message from the next.
    pub read_to: u32,
    /// How far the server has written answers, modulo 2^32 (TCP's `write_seq`); 0 of a Unix socket.
    pub answered_to: u32,
    /// Bytes that lie unread.
    pub bytes: u32,
    /// When data last came, monotonic, to a tick (`icsk_ack.lrcvtime`); not known of a Unix socket.
    pub came: Option<Duration>,
}
