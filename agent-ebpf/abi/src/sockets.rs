//! What the socket iterator shares with its own program: which members of kernel structures it reads, and what it writes.
//!
//! For each connection it writes one record: a byte if nothing lies unread and no answer is owed, otherwise an [`UnreadSocket`].
//! A connection that waits to be accepted has a record only if bytes lie unread in it. A [`LookEnd`] ends a look. The first byte
//! of each says which it is.

/// The only byte of a record: a connection in which nothing lies unread, and that is owed no answer.
pub const IDLE: u8 = 1;
/// The first byte of an [`UnreadSocket`] of TCP.
pub const UNREAD_TCP: u8 = 2;
/// The first byte of an [`UnreadSocket`] of a Unix socket.
pub const UNREAD_UNIX: u8 = 3;
/// The first byte of an [`UnreadSocket`] of TCP: all was read, and no answer has left since.
pub const OWED_TCP: u8 = 5;
/// The first byte of an [`UnreadSocket`] of TCP that the owner has not accepted.
pub const NOT_ACCEPTED_TCP: u8 = 6;
/// The first byte of a [`LookEnd`].
pub const LOOK_END: u8 = 4;

/// A connection in which bytes lie unread, or that is owed an answer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnreadSocket {
    /// [`UNREAD_TCP`], [`UNREAD_UNIX`], [`OWED_TCP`] or [`NOT_ACCEPTED_TCP`], then zeros.
    pub kind: [u8; 4],
    /// Bytes that lie unread.
    pub bytes: u32,
    /// The address of its `struct sock`.
    pub socket: u64,
    /// How far the owner has read: `copied_seq`, or what distinguishes the first message of a Unix socket.
    pub read_to: u32,
    /// The lower half of `jiffies` when data last came; 0 for a Unix socket.
    pub came: u32,
    /// How far answers were written: `write_seq`, of 32 bits; 0 for a Unix socket.
    pub answered_to: u64,
}

/// The end of a look.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookEnd {
    /// [`LOOK_END`], then zeros.
    pub kind: [u8; 4],
    /// The lower half of `jiffies`.
    pub jiffies: u32,
    /// Monotonic time at the same moment, nanoseconds.
    pub monotonic_ns: u64,
    /// How many open files the kernel went through, less one: 0 for a process that has ended.
    pub files: u64,
}

/// A member of a kernel structure whose offset the program is told: the index into its table of offsets.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelMember {
    /// `struct socket`: the kind of socket, 16 bits.
    SocketType,
    /// `struct socket`: its `struct sock`.
    SocketSock,
    /// `struct sock`: the address family, 16 bits.
    Family,
    /// `struct sock`: the state of the connection, 8 bits.
    State,
    /// `struct sock`: the protocol, 16 bits.
    Protocol,
    /// `struct sock`: its own port, 16 bits.
    Port,
    /// `struct sock`: the list of what has come. It begins like a `struct sk_buff`.
    ReceiveQueue,
    /// `struct tcp_sock`: what comes next, 32 bits.
    RcvNxt,
    /// `struct tcp_sock`: what is read next, 32 bits.
    CopiedSeq,
    /// `struct tcp_sock`: the number of the last segment that acknowledged something new, 32 bits.
    SndWl1,
    /// `struct tcp_sock`: the first number that is not acknowledged, 32 bits.
    SndUna,
    /// `struct tcp_sock`: the number after all that the owner has written, 32 bits.
    WriteSeq,
    /// `struct tcp_sock`: when data last came, 32 bits.
    LastReceived,
    /// `struct tcp_sock` that listens: the first `struct request_sock` that waits to be accepted.
    AcceptHead,
    /// `struct request_sock`: the next one.
    RequestNext,
    /// `struct request_sock`: the `struct sock` of the connection.
    RequestSock,
    /// `struct sk_buff`: the next one of its list.
    BufferNext,
    /// `struct sk_buff`: its length, 32 bits.
    BufferLength,
    /// `struct sk_buff` of a Unix stream socket: how much of it was read, 32 bits.
    BufferConsumed,
}

impl KernelMember {
    /// All of them, in their order.
    pub const ALL: [Self; 19] = [
        Self::SocketType,
        Self::SocketSock,
        Self::Family,
        Self::State,
        Self::Protocol,
        Self::Port,
        Self::ReceiveQueue,
        Self::RcvNxt,
        Self::CopiedSeq,
        Self::SndWl1,
        Self::SndUna,
        Self::WriteSeq,
        Self::LastReceived,
        Self::AcceptHead,
        Self::RequestNext,
        Self::RequestSock,
        Self::BufferNext,
        Self::BufferLength,
        Self::BufferConsumed,
    ];
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();
}
