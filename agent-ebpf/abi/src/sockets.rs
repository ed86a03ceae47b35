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

/// Where a member is: in a structure, and perhaps in that the next. Their offsets are added up.
pub type MemberPath = &'static [(&'static str, &'static str)];

/// Declares the members of kernel structures whose offsets a program is told. Each is an index into its table of
/// offsets.
macro_rules! kernel_members {
    ($name:ident, $($member:ident: $path:expr,)*) => {
        /// A member of a kernel structure.
        #[repr(usize)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($member,)*
        }

        impl $name {
            pub const COUNT: usize = [$(Self::$member),*].len();
            /// All of them, in their order, and where they are.
            pub const ALL: [(Self, $crate::MemberPath); Self::COUNT] = [$((Self::$member, &$path)),*];
        }
    };
}

pub(crate) use kernel_members;

kernel_members! {
    KernelMember,
    SocketType: [("socket", "type")], // The kind of socket, 16 bits.
    SocketSock: [("socket", "sk")], // Its `struct sock`.
    Family: [("sock", "__sk_common.skc_family")], // The address family, 16 bits.
    State: [("sock", "__sk_common.skc_state")], // The state of the connection, 8 bits.
    Protocol: [("sock", "sk_protocol")], // The protocol, 16 bits.
    // Its own port, 16 bits, in network order. A connection that was reset keeps it.
    Port: [("inet_sock", "inet_sport")],
    Shutdown: [("sock", "sk_shutdown")], // Which directions are shut down, 8 bits.
    ReceiveQueue: [("sock", "sk_receive_queue")], // The list of what has come. It begins like a `struct sk_buff`.
    RcvNxt: [("tcp_sock", "rcv_nxt")], // What comes next, 32 bits.
    CopiedSeq: [("tcp_sock", "copied_seq")], // What is read next, 32 bits.
    SndWl1: [("tcp_sock", "snd_wl1")], // The number of the last segment that acknowledged something new, 32 bits.
    SndUna: [("tcp_sock", "snd_una")], // The first number that is not acknowledged, 32 bits.
    WriteSeq: [("tcp_sock", "write_seq")], // The number after all that the owner has written, 32 bits.
    SndNxt: [("tcp_sock", "snd_nxt")], // The number after all that has left, 32 bits.
    LastAcknowledged: [("tcp_sock", "rcv_tstamp")], // When the other side last acknowledged anything, 32 bits.
    LastReceived: [("tcp_sock", "inet_conn.icsk_ack.lrcvtime")], // When data last came, 32 bits.
    LastSent: [("tcp_sock", "lsndtime")], // When data last left, 32 bits.
    // Of one that listens: the first `struct request_sock` that waits to be accepted.
    AcceptHead: [("tcp_sock", "inet_conn.icsk_accept_queue.rskq_accept_head")],
    RequestNext: [("request_sock", "dl_next")], // The next one.
    RequestSock: [("request_sock", "sk")], // The `struct sock` of the connection.
    BufferNext: [("sk_buff", "next")], // The next one of its list.
    BufferSock: [("sk_buff", "sk")], // Its `struct sock`.
    BufferLength: [("sk_buff", "len")], // Its length, 32 bits.
    // Of a Unix stream socket: how much of it was read, 32 bits.
    BufferConsumed: [("sk_buff", "cb"), ("unix_skb_parms", "consumed")],
    // Whether it is a part of an MPTCP connection, 8 bits. Kernels without MPTCP lack this and what follows.
    IsMptcp: [("tcp_sock", "is_mptcp")],
    MptcpContext: [("tcp_sock", "inet_conn.icsk_ulp_data")], // Of one that is: its `struct mptcp_subflow_context`.
    MptcpConnection: [("mptcp_subflow_context", "conn")], // The `struct mptcp_sock` of the connection.
    MptcpFirst: [("mptcp_sock", "first")], // The `struct tcp_sock` that it began with.
    MptcpReceived: [("mptcp_sock", "bytes_received")], // Bytes that have come, 64 bits.
    MptcpConsumed: [("mptcp_sock", "bytes_consumed")], // Bytes that were read, 64 bits.
    MptcpWriteSeq: [("mptcp_sock", "write_seq")], // The number after all that the owner has written, 64 bits.
    MptcpSndNxt: [("mptcp_sock", "snd_nxt")], // The number after all that has left, 64 bits.
    MptcpLastReceived: [("mptcp_sock", "last_data_recv")], // When data last came, 32 bits.
    MptcpLastSent: [("mptcp_sock", "last_data_sent")], // When data last left, 32 bits.
    MptcpSndUna: [("mptcp_sock", "snd_una")], // The first number that is not acknowledged, 64 bits.
    PeerV6: [("sock", "__sk_common.skc_v6_daddr")], // The other side's IPv6 address. Kernels without IPv6 lack it.
    // The other side's IPv4 address, 32 bits, in network order. This and what follows tells peers.
    PeerV4: [("sock", "__sk_common.skc_daddr")],
    PeerProcess: [("sock", "sk_peer_pid")], // The `struct pid` of the process at the other side of a Unix socket.
    ProcessNumber: [("pid", "numbers"), ("upid", "nr")], // Its number in the first namespace, 32 bits.
    UnixPeer: [("unix_sock", "peer")], // The `struct sock` of the other side.
    // The memory of what it has written and nobody has taken, bytes, and 1; 32 bits.
    WriteMemory: [("sock", "sk_wmem_alloc")],
}

impl KernelMember {
    /// Returns whether there is a use for the program in a kernel without it.
    pub const fn is_optional(self) -> bool {
        self as usize >= Self::IsMptcp as usize
    }

    /// Returns whether the program needs it to tell peers.
    pub const fn tells_peers(self) -> bool {
        self as usize >= Self::PeerV4 as usize
    }
}
