//! What the socket iterator shares with its own program: which members of kernel structures it reads, and what it
//! writes.
//!
//! For each connection it writes one record: an [`IdleSocket`] if there is nothing more to say, otherwise an
//! [`ActiveSocket`]. Those that wait to be accepted have records, too. A [`LookEnd`] ends a look. The first byte of
//! each says which it is.

/// The first byte of an [`IdleSocket`]: a connection in which nothing lies unread, and that is owed no answer.
pub const IDLE: u8 = 1;
/// The first byte of an [`ActiveSocket`] of TCP in which bytes lie unread.
pub const UNREAD_TCP: u8 = 2;
/// The same for a Unix socket.
pub const UNREAD_UNIX: u8 = 3;
/// The first byte of a [`LookEnd`].
pub const LOOK_END: u8 = 4;
/// The first byte of an [`ActiveSocket`] of TCP: all was read, and no answer has left since.
pub const OWED_TCP: u8 = 5;
/// The same, unless an answer left within the tick in which the request came, and was acknowledged later.
pub const PERHAPS_OWED_TCP: u8 = 6;
/// The first byte of an [`ActiveSocket`] of TCP: its last answer left lately, and late.
pub const ANSWERED_TCP: u8 = 7;
/// The first byte of an [`ActiveSocket`] that the other side has closed while it was owed an answer.
pub const GAVE_UP: u8 = 8;
/// The first byte of an [`IdleSocket`] that listens.
pub const LISTENS: u8 = 9;
/// The first byte of an [`IdleSocket`] of a protocol that is not understood.
pub const NOT_SEEN: u8 = 10;

/// The first byte of an [`ActiveSocket`] of TCP that the owner has not accepted. `sent` is its state, and `bytes`
/// counts a FIN. `taken_to` is its address family: if that is IPv4 (2), `untaken` is the peer's address, in network
/// order.
pub const PENDING_TCP: u8 = 11;
/// The same for MPTCP, without the FIN.
pub const PENDING_MPTCP: u8 = 12;
/// The same for a Unix socket. `sent` is which directions are shut down.
pub const PENDING_UNIX: u8 = 13;
/// The same as [`GAVE_UP`], unless an answer left within the tick in which the request came.
pub const PERHAPS_GAVE_UP: u8 = 14;
/// The first byte of an [`ActiveSocket`] that would be idle, but that the other side has not taken all answers of.
pub const UNTAKEN: u8 = 15;

/// A socket about which there is little to say.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleSocket {
    /// [`IDLE`], [`LISTENS`] or [`NOT_SEEN`].
    pub kind: u8,
    /// How long ago something was last sent, in 32nds of a second; 255 for longer or unknown times.
    pub sent: u8,
    /// Its own port; 0 for a Unix socket.
    pub port: u16,
    /// The other side: its IPv6 address, in network order, or its IPv4 address mapped to one; of a Unix socket, the pid
    /// of the process that connected it. Zeros if peers are not looked at.
    pub peer: [u32; 4],
}

/// A connection in which bytes lie unread, or that is or was owed an answer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActiveSocket {
    /// [`UNREAD_TCP`], [`UNREAD_UNIX`], [`OWED_TCP`], [`PERHAPS_OWED_TCP`], [`ANSWERED_TCP`], [`GAVE_UP`],
    /// [`PERHAPS_GAVE_UP`], [`UNTAKEN`] or pending.
    pub kind: u8,
    /// As [`IdleSocket::sent`].
    pub sent: u8,
    /// As [`IdleSocket::port`].
    pub port: u16,
    /// Bytes that lie unread.
    pub bytes: u32,
    /// The address of its `struct sock`.
    pub socket: u64,
    /// How far the owner has read: `copied_seq`, or what distinguishes the first message of a Unix socket.
    pub read_to: u32,
    /// How far answers were written: `write_seq`, of 32 bits; 0 for a Unix socket.
    pub answered_to: u32,
    /// The lower half of `jiffies` when data last came; 0 for a Unix socket.
    pub came: u32,
    /// The same when data last left.
    pub left: u32,
    /// As [`IdleSocket::peer`].
    pub peer: [u32; 4],
    /// How much of its answers the other side has not taken, bytes: what it has not acknowledged; of a Unix socket, the
    /// memory of what it has not read. 0 if peers are not looked at.
    pub untaken: u32,
    /// How far it has: `snd_una`, or what distinguishes the first message that it has not read.
    pub taken_to: u32,
}

/// The end of a look.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookEnd {
    /// [`LOOK_END`], whether peers are looked at (0 or 1), then zeros.
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
    /// `struct inet_sock`: its own port, 16 bits, in network order. A connection that was reset keeps it.
    Port,
    /// `struct sock`: which directions are shut down, 8 bits.
    Shutdown,
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
    /// `struct tcp_sock`: the number after all that has left, 32 bits.
    SndNxt,
    /// `struct tcp_sock`: when the other side last acknowledged anything, 32 bits.
    LastAcknowledged,
    /// `struct tcp_sock`: when data last came, 32 bits.
    LastReceived,
    /// `struct tcp_sock`: when data last left, 32 bits.
    LastSent,
    /// `struct tcp_sock` that listens: the first `struct request_sock` that waits to be accepted.
    AcceptHead,
    /// `struct request_sock`: the next one.
    RequestNext,
    /// `struct request_sock`: the `struct sock` of the connection.
    RequestSock,
    /// `struct sk_buff`: the next one of its list.
    BufferNext,
    /// `struct sk_buff`: its `struct sock`.
    BufferSock,
    /// `struct sk_buff`: its length, 32 bits.
    BufferLength,
    /// `struct sk_buff` of a Unix stream socket: how much of it was read, 32 bits.
    BufferConsumed,
    /// `struct tcp_sock`: whether it is a part of an MPTCP connection, 8 bits. Kernels without MPTCP lack this and what
    /// follows.
    IsMptcp,
    /// `struct tcp_sock` that is: its `struct mptcp_subflow_context`.
    MptcpContext,
    /// `struct mptcp_subflow_context`: the `struct mptcp_sock` of the connection.
    MptcpConnection,
    /// `struct mptcp_sock`: the `struct tcp_sock` that it began with.
    MptcpFirst,
    /// `struct mptcp_sock`: bytes that have come, 64 bits.
    MptcpReceived,
    /// `struct mptcp_sock`: bytes that were read, 64 bits.
    MptcpConsumed,
    /// `struct mptcp_sock`: the number after all that the owner has written, 64 bits.
    MptcpWriteSeq,
    /// `struct mptcp_sock`: the number after all that has left, 64 bits.
    MptcpSndNxt,
    /// `struct mptcp_sock`: when data last came, 32 bits.
    MptcpLastReceived,
    /// `struct mptcp_sock`: when data last left, 32 bits.
    MptcpLastSent,
    /// `struct mptcp_sock`: the first number that is not acknowledged, 64 bits.
    MptcpSndUna,
    /// `struct sock`: the other side's IPv6 address. Kernels without IPv6 lack it.
    PeerV6,
    /// `struct sock`: the other side's IPv4 address, 32 bits, in network order. This and what follows tells peers.
    PeerV4,
    /// `struct sock`: the `struct pid` of the process at the other side of a Unix socket.
    PeerProcess,
    /// `struct pid`: its number in the first namespace, 32 bits.
    ProcessNumber,
    /// `struct unix_sock`: the `struct sock` of the other side.
    UnixPeer,
    /// `struct sock`: the memory of what it has written and nobody has taken, bytes, and 1; 32 bits.
    WriteMemory,
}

impl KernelMember {
    /// All of them, in their order.
    pub const ALL: [Self; 41] = [
        Self::SocketType,
        Self::SocketSock,
        Self::Family,
        Self::State,
        Self::Protocol,
        Self::Port,
        Self::Shutdown,
        Self::ReceiveQueue,
        Self::RcvNxt,
        Self::CopiedSeq,
        Self::SndWl1,
        Self::SndUna,
        Self::WriteSeq,
        Self::SndNxt,
        Self::LastAcknowledged,
        Self::LastReceived,
        Self::LastSent,
        Self::AcceptHead,
        Self::RequestNext,
        Self::RequestSock,
        Self::BufferNext,
        Self::BufferSock,
        Self::BufferLength,
        Self::BufferConsumed,
        Self::IsMptcp,
        Self::MptcpContext,
        Self::MptcpConnection,
        Self::MptcpFirst,
        Self::MptcpReceived,
        Self::MptcpConsumed,
        Self::MptcpWriteSeq,
        Self::MptcpSndNxt,
        Self::MptcpLastReceived,
        Self::MptcpLastSent,
        Self::MptcpSndUna,
        Self::PeerV6,
        Self::PeerV4,
        Self::PeerProcess,
        Self::ProcessNumber,
        Self::UnixPeer,
        Self::WriteMemory,
    ];
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Returns whether there is a use for the program in a kernel without it.
    pub const fn is_optional(self) -> bool {
        self as usize >= Self::IsMptcp as usize
    }

    /// Returns whether the program needs it to tell peers.
    pub const fn tells_peers(self) -> bool {
        self as usize >= Self::PeerV4 as usize
    }
}
