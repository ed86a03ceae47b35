//! The BPF program that looks at the sockets of a process: the kernel calls it for each open file of one task, in the
//! thread of the agent that reads the iterator. It is an object of its own. It has no state, so looks of several
//! threads do not meet: it writes all that it finds to the reader.
//!
//! The kernel's own BTF says, at load time, where its members are. What is read is not locked: meanwhile, the process
//! may read and data may come.
#![no_std]
#![no_main]
#![allow(missing_docs, reason = "the entry function is found by its name in the object")]

mod kernel;

use core::ffi::c_void;
use core::ptr::{addr_of, read_volatile};

use aya_ebpf::bindings::{file, seq_file};
use aya_ebpf::helpers::generated::{bpf_jiffies64, bpf_probe_read_kernel, bpf_sock_from_file};
use evictscope_abi::{
    ANSWERED_TCP, ActiveSocket, GAVE_UP, IDLE, IdleSocket, KernelMember, LISTENS, LOOK_END, LookEnd, NOT_SEEN,
    OWED_TCP, PENDING_MPTCP, PENDING_TCP, PENDING_UNIX, PERHAPS_GAVE_UP, PERHAPS_OWED_TCP, UNREAD_TCP, UNREAD_UNIX,
    UNTAKEN,
};
use kernel::{now, write};

const SOCK_STREAM: u16 = 1;
const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const IPPROTO_TCP: u16 = 6;
const IPPROTO_MPTCP: u16 = 262;
/// Also the state of other stream sockets that are connected.
const TCP_ESTABLISHED: u8 = 1;
/// The other side has reset the connection.
const TCP_CLOSE: u8 = 7;
/// The other side sends no more.
const TCP_CLOSE_WAIT: u8 = 8;
/// Also the state of a Unix socket that listens.
const TCP_LISTEN: u8 = 10;
/// The other side of a Unix socket is closed.
const SHUTDOWN_MASK: u8 = 3;

/// The most messages of a Unix socket whose bytes are added up. If a client has sent more, fewer bytes are reported.
const MOST_MESSAGES: usize = 32;

/// The most connections waiting to be accepted that are looked at for one socket: as many as Redis's
/// `tcp-backlog` allows by default.
const MOST_NOT_ACCEPTED: usize = 512;

/// Where the members are, by [`KernelMember`]. Written before the program is loaded, and never again.
#[unsafe(no_mangle)]
static OFFSETS: [u32; KernelMember::COUNT] = [0; KernelMember::COUNT];

/// How many `jiffies` a second has. Written like [`OFFSETS`].
#[unsafe(no_mangle)]
static TICKS_PER_SECOND: u32 = 0;

/// Whether to say who the other sides are, and what they have not taken. Written like [`OFFSETS`].
#[unsafe(no_mangle)]
static LOOKS_AT_PEERS: u32 = 0;

/// The third word of an IPv4 address that is mapped to an IPv6 address.
const MAPPED: u32 = 0xffff_u32.to_be();

/// What the kernel passes to a program on the files of tasks (`struct bpf_iter__task_file`).
#[repr(C)]
struct Context {
    meta: *const Meta,
    _task: *const c_void,
    _fd: u64,
    /// Null after the last file.
    file: *mut file,
}

/// `struct bpf_iter_meta`.
#[repr(C)]
struct Meta {
    seq: *mut seq_file,
    _session: u64,
    seq_num: u64,
}

/// Runs at each open file. If what it writes does not fit, the kernel throws that away and calls it again.
///
/// # Safety
///
/// Must be called by the kernel, with its context.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task_file")]
unsafe extern "C" fn socket_look(context: *const Context) -> i32 {
    // SAFETY: both come from the kernel, whose verifier checks how they are read.
    let (seq, file) = unsafe { ((*(*context).meta).seq, (*context).file) };
    if file.is_null() {
        // SAFETY: as above.
        let files = unsafe { (*(*context).meta).seq_num };
        write(seq, &end(files));
    } else {
        let _ = try_look(seq, file);
    }
    0
}

#[inline(always)]
fn end(files: u64) -> LookEnd {
    LookEnd {
        kind: [LOOK_END, u8::from(looks_at_peers()), 0, 0],
        // SAFETY: the helper takes nothing, and always succeeds.
        jiffies: unsafe { bpf_jiffies64() } as u32,
        monotonic_ns: now(),
        files,
    }
}

/// Writes what there is to say about a file; `None` if that is nothing.
#[inline(always)]
fn try_look(seq: *mut seq_file, file: *mut file) -> Option<()> {
    // SAFETY: the kernel has passed the file; it returns null for one that is not a socket.
    let socket = unsafe { bpf_sock_from_file(file) }.cast::<c_void>().cast_const();
    if socket.is_null() || read::<u16>(socket, KernelMember::SocketType)? != SOCK_STREAM {
        return None;
    }
    let sock = read::<*const c_void>(socket, KernelMember::SocketSock)?;
    let state = read::<u8>(sock, KernelMember::State)?;
    let family = read::<u16>(sock, KernelMember::Family)?;
    if family == AF_UNIX {
        return match state {
            TCP_LISTEN => not_accepted_unix(seq, sock),
            TCP_ESTABLISHED => unix(seq, sock),
            _ => None,
        };
    }
    let protocol = read::<u16>(sock, KernelMember::Protocol)?;
    let port = u16::from_be(read(sock, KernelMember::Port)?);
    if state == TCP_LISTEN {
        // The family is not asked for: the verifier follows the loop for each way that leads to it.
        let listening = match protocol {
            IPPROTO_TCP => sock,
            IPPROTO_MPTCP if knows_mptcp() => read(sock, KernelMember::MptcpFirst)?,
            _ => return None,
        };
        return not_accepted(seq, listening, port);
    }
    match (family, protocol) {
        (AF_INET | AF_INET6, IPPROTO_TCP | IPPROTO_MPTCP) => {
            connection(seq, sock, state, protocol, family == AF_INET6, port)
        }
        _ => not_seen(seq, state, 0),
    }
}

/// Writes a connection of which nothing more can be said.
#[inline(always)]
fn not_seen(seq: *mut seq_file, state: u8, port: u16) -> Option<()> {
    if state == TCP_ESTABLISHED {
        write(seq, &idle(NOT_SEEN, u8::MAX, port, [0; 4]));
    }
    Some(())
}

#[inline(always)]
fn idle(kind: u8, sent: u8, port: u16, peer: [u32; 4]) -> IdleSocket {
    IdleSocket { kind, sent, port, peer }
}

/// Writes a listening socket and the connections that wait to be accepted by it.
///
/// If one is accepted meanwhile, the list may end there or lead to others: the port is checked for that.
#[inline(always)]
fn not_accepted(seq: *mut seq_file, listening: *const c_void, port: u16) -> Option<()> {
    write(seq, &idle(LISTENS, u8::MAX, port, [0; 4]));
    let mut request: *const c_void = or_zero(listening, KernelMember::AcceptHead);
    for _ in 0..MOST_NOT_ACCEPTED {
        if request.is_null() {
            break;
        }
        let sock = or_zero(request, KernelMember::RequestSock);
        if or_zero::<u16>(sock, KernelMember::Port) != port.to_be() {
            break;
        }
        let of = ActiveSocket {
            port,
            peer: or_zero(sock, KernelMember::PeerV6),
            untaken: or_zero(sock, KernelMember::PeerV4),
            taken_to: or_zero::<u16>(sock, KernelMember::Family).into(),
            ..ActiveSocket::default()
        };
        if knows_mptcp() && or_zero::<u8>(sock, KernelMember::IsMptcp) != 0 {
            write(seq, &pending_mptcp(sock, of));
        } else {
            write(seq, &pending_tcp(sock, of));
        }
        request = or_zero(request, KernelMember::RequestNext);
    }
    Some(())
}

/// Completes the record of a connection that waits to be accepted. It has no branches: the verifier follows each
/// through the loop.
#[inline(always)]
fn pending_tcp(sock: *const c_void, of: ActiveSocket) -> ActiveSocket {
    let received: u32 = or_zero(sock, KernelMember::RcvNxt);
    let read_to = or_zero(sock, KernelMember::CopiedSeq);
    ActiveSocket {
        kind: PENDING_TCP,
        sent: or_zero(sock, KernelMember::State),
        bytes: received.wrapping_sub(read_to),
        socket: sock as u64,
        read_to,
        answered_to: or_zero(sock, KernelMember::WriteSeq),
        came: or_zero(sock, KernelMember::LastReceived),
        left: or_zero(sock, KernelMember::LastSent),
        ..of
    }
}

/// Does the same for one of MPTCP, which waits as the TCP connection that it began with.
#[inline(always)]
fn pending_mptcp(first: *const c_void, of: ActiveSocket) -> ActiveSocket {
    let context = or_zero(first, KernelMember::MptcpContext);
    let sock = or_zero(context, KernelMember::MptcpConnection);
    let received: u64 = or_zero(sock, KernelMember::MptcpReceived);
    let consumed = or_zero(sock, KernelMember::MptcpConsumed);
    ActiveSocket {
        kind: PENDING_MPTCP,
        sent: or_zero(sock, KernelMember::State),
        bytes: received.wrapping_sub(consumed) as u32,
        socket: sock as u64,
        read_to: consumed as u32,
        answered_to: or_zero::<u64>(sock, KernelMember::MptcpWriteSeq) as u32,
        came: or_zero(sock, KernelMember::MptcpLastReceived),
        left: or_zero(sock, KernelMember::MptcpLastSent),
        ..of
    }
}

/// Returns whether the program says who the other sides are.
#[inline(always)]
fn looks_at_peers() -> bool {
    // SAFETY: a static that the loader writes.
    unsafe { read_volatile(addr_of!(LOOKS_AT_PEERS)) != 0 }
}

/// Returns the address of the other side, as [`IdleSocket::peer`] has it.
#[inline(always)]
fn peer(sock: *const c_void, is_v6: bool) -> [u32; 4] {
    if !looks_at_peers() {
        return [0; 4];
    }
    if is_v6 {
        return or_zero(sock, KernelMember::PeerV6);
    }
    [0, 0, MAPPED, or_zero(sock, KernelMember::PeerV4)]
}

/// Returns the pid of the process that has connected a Unix socket.
#[inline(always)]
fn peer_of_unix(sock: *const c_void) -> [u32; 4] {
    if !looks_at_peers() {
        return [0; 4];
    }
    let process = or_zero(sock, KernelMember::PeerProcess);
    [or_zero(process, KernelMember::ProcessNumber), 0, 0, 0]
}

/// Returns whether this kernel has all that is read of MPTCP.
#[inline(always)]
fn knows_mptcp() -> bool {
    offset(KernelMember::MptcpLastSent) != 0 && offset(KernelMember::MptcpConsumed) != 0
}

/// What the kernel keeps of a connection. Times are lower halves of `jiffies`.
struct Kept {
    read_to: u32,
    unread: i32,
    answered_to: u32,
    /// What the other side has acknowledged.
    taken_to: u32,
    /// Whether something that the owner has written has not left yet.
    is_queued: bool,
    came: u32,
    left: u32,
}

#[inline(always)]
fn kept_by_tcp(sock: *const c_void) -> Option<Kept> {
    // In this order, so that what comes and is read in between is not taken for unread.
    let received = read::<u32>(sock, KernelMember::RcvNxt)?;
    let read_to = read::<u32>(sock, KernelMember::CopiedSeq)?;
    let answered_to = read::<u32>(sock, KernelMember::WriteSeq)?;
    Some(Kept {
        read_to,
        unread: received.wrapping_sub(read_to).cast_signed(),
        answered_to,
        taken_to: read(sock, KernelMember::SndUna)?,
        is_queued: read::<u32>(sock, KernelMember::SndNxt)? != answered_to,
        came: read(sock, KernelMember::LastReceived)?,
        left: read(sock, KernelMember::LastSent)?,
    })
}

#[inline(always)]
fn kept_by_mptcp(sock: *const c_void) -> Option<Kept> {
    let received = read::<u64>(sock, KernelMember::MptcpReceived)?;
    let consumed = read::<u64>(sock, KernelMember::MptcpConsumed)?;
    let written = read::<u64>(sock, KernelMember::MptcpWriteSeq)?;
    Some(Kept {
        read_to: consumed as u32,
        unread: received.wrapping_sub(consumed) as i32,
        answered_to: written as u32,
        taken_to: match offset(KernelMember::MptcpSndUna) {
            0 => written as u32,
            _ => read::<u64>(sock, KernelMember::MptcpSndUna)? as u32,
        },
        is_queued: read::<u64>(sock, KernelMember::MptcpSndNxt)? != written,
        came: read(sock, KernelMember::MptcpLastReceived)?,
        left: read(sock, KernelMember::MptcpLastSent)?,
    })
}

/// Writes a connection of TCP or MPTCP.
#[inline(always)]
fn connection(seq: *mut seq_file, sock: *const c_void, state: u8, protocol: u16, is_v6: bool, port: u16) -> Option<()> {
    let is_closed = state == TCP_CLOSE_WAIT || state == TCP_CLOSE && port != 0;
    if state != TCP_ESTABLISHED && !is_closed {
        return None;
    }
    let is_tcp = protocol == IPPROTO_TCP;
    if !is_tcp && !knows_mptcp() {
        return not_seen(seq, state, port);
    }
    let kept = match is_tcp {
        true => kept_by_tcp(sock)?,
        false => kept_by_mptcp(sock)?,
    };
    // SAFETY: the helper takes nothing, and always succeeds.
    let now = unsafe { bpf_jiffies64() } as u32;
    // SAFETY: a static that the loader writes.
    let second = unsafe { read_volatile(addr_of!(TICKS_PER_SECOND)) };
    let answered_after = kept.left.wrapping_sub(kept.came).cast_signed();
    // The other side's FIN has a number, too, until the owner has seen it. No request is one byte long.
    let unread = kept.unread - i32::from(is_closed && is_tcp);
    let ago = now.wrapping_sub(kept.left);
    let kind = if is_closed {
        // Whoever was answered before it closed is no client any more.
        match answered_after {
            _ if unread > 0 => GAVE_UP,
            ..0 => GAVE_UP,
            0 => PERHAPS_GAVE_UP,
            _ => return None,
        }
    } else if unread > 0 {
        UNREAD_TCP
    } else if answered_after < 0 {
        // Of an answer that the client does not read, the rest has not left.
        if kept.is_queued { IDLE } else { OWED_TCP }
    } else if answered_after == 0 {
        let first = match is_tcp {
            true => sock,
            false => read(sock, KernelMember::MptcpFirst)?,
        };
        owed_in_the_same_tick(first, kept.came, second)?
    } else if answered_after.cast_unsigned() >= second / 50 && ago <= 2 * second {
        ANSWERED_TCP
    } else {
        IDLE
    };
    // What is not acknowledged may be sent again and again, by the kernel.
    let sent = match ago < 7 * second && (!is_tcp || kept.taken_to == kept.answered_to) {
        true => (ago * 32 / second.max(1)) as u8,
        false => u8::MAX,
    };
    let untaken = if looks_at_peers() { kept.answered_to.wrapping_sub(kept.taken_to) } else { 0 };
    let peer = peer(sock, is_v6);
    if kind == IDLE && untaken == 0 {
        write(seq, &idle(IDLE, sent, port, peer));
        return Some(());
    }
    write(
        seq,
        &ActiveSocket {
            kind: if kind == IDLE { UNTAKEN } else { kind },
            sent,
            port,
            bytes: if unread > 0 { unread as u32 } else { 0 },
            socket: sock as u64,
            read_to: kept.read_to,
            answered_to: kept.answered_to,
            came: kept.came,
            left: kept.left,
            peer,
            untaken,
            taken_to: kept.taken_to,
        },
    );
    Some(())
}

/// Returns what is known of a TCP connection where all was read and where the last data came and left in the same tick.
///
/// What the other side sends acknowledges what it has received. The kernel keeps the number of the last segment that
/// did so: for a request, that of its first byte. Once the answer is acknowledged, it is the number after the request;
/// a keepalive's acknowledgement has the same, but comes a second later or more.
#[inline(always)]
fn owed_in_the_same_tick(sock: *const c_void, came: u32, second: u32) -> Option<u8> {
    if read::<u32>(sock, KernelMember::SndWl1)? == read::<u32>(sock, KernelMember::RcvNxt)? {
        let acknowledged = read::<u32>(sock, KernelMember::LastAcknowledged)?;
        let is_late = acknowledged.wrapping_sub(came) > second - second / 10;
        return Some(if is_late { PERHAPS_OWED_TCP } else { IDLE });
    }
    let is_acknowledged = read::<u32>(sock, KernelMember::SndUna)? == read::<u32>(sock, KernelMember::WriteSeq)?;
    Some(if is_acknowledged { OWED_TCP } else { IDLE })
}

/// Writes a listening Unix socket's connections that wait to be accepted. Of what lies unread, the first message is
/// enough.
#[inline(always)]
fn not_accepted_unix(seq: *mut seq_file, listening: *const c_void) -> Option<()> {
    let queue = at(listening, KernelMember::ReceiveQueue);
    let mut request: *const c_void = or_zero(queue, KernelMember::BufferNext);
    for _ in 0..MOST_NOT_ACCEPTED {
        if request == queue || request.is_null() {
            break;
        }
        let sock = or_zero(request, KernelMember::BufferSock);
        if or_zero::<u16>(sock, KernelMember::Family) != AF_UNIX {
            break;
        }
        let messages = at(sock, KernelMember::ReceiveQueue);
        let first: *const c_void = or_zero(messages, KernelMember::BufferNext);
        let is_empty = first == messages;
        let pending = ActiveSocket {
            kind: PENDING_UNIX,
            sent: or_zero(sock, KernelMember::Shutdown),
            bytes: or_zero::<u32>(first, KernelMember::BufferLength) * u32::from(!is_empty),
            socket: sock as u64,
            read_to: (first as u64 >> 6) as u32,
            peer: peer_of_unix(sock),
            ..ActiveSocket::default()
        };
        write(seq, &pending);
        request = or_zero(request, KernelMember::BufferNext);
    }
    Some(())
}

/// Writes a connected Unix socket.
#[inline(always)]
fn unix(seq: *mut seq_file, sock: *const c_void) -> Option<()> {
    let queue = at(sock, KernelMember::ReceiveQueue);
    let first = read::<*const c_void>(queue, KernelMember::BufferNext)?;
    let is_closed = read::<u8>(sock, KernelMember::Shutdown)? & SHUTDOWN_MASK == SHUTDOWN_MASK;
    let mut unread = ActiveSocket {
        kind: if is_closed { GAVE_UP } else { UNREAD_UNIX },
        sent: u8::MAX,
        socket: sock as u64,
        peer: peer_of_unix(sock),
        ..ActiveSocket::default()
    };
    if looks_at_peers() && !is_closed {
        unread.untaken = or_zero::<u32>(sock, KernelMember::WriteMemory).saturating_sub(1);
        let others = at(or_zero(sock, KernelMember::UnixPeer), KernelMember::ReceiveQueue);
        let waits: *const c_void = or_zero(others, KernelMember::BufferNext);
        unread.taken_to = place(waits, or_zero(waits, KernelMember::BufferConsumed));
    }
    let mut message = first;
    for _ in 0..MOST_MESSAGES {
        if message == queue || message.is_null() {
            break;
        }
        let length = read::<u32>(message, KernelMember::BufferLength)?;
        let consumed = read::<u32>(message, KernelMember::BufferConsumed)?;
        if message == first {
            unread.read_to = place(first, consumed);
        }
        unread.bytes += length.saturating_sub(consumed);
        message = read(message, KernelMember::BufferNext)?;
    }
    match (unread.bytes, is_closed) {
        (0, true) => {}
        (0, false) if unread.untaken == 0 => write(seq, &idle(IDLE, u8::MAX, 0, unread.peer)),
        (0, false) => write(seq, &ActiveSocket { kind: UNTAKEN, ..unread }),
        _ => write(seq, &unread),
    }
    Some(())
}

/// Returns what distinguishes a place in a message of a Unix socket. Addresses of messages are multiples of 64.
#[inline(always)]
fn place(message: *const c_void, consumed: u32) -> u32 {
    ((message as u64 >> 6) as u32).wrapping_add(consumed.rotate_left(16))
}

/// Returns the offset of a member; 0 if this kernel lacks it.
#[inline(always)]
fn offset(member: KernelMember) -> u32 {
    // SAFETY: an element of a static. The compiler must not assume that it is 0: the loader writes it.
    unsafe { read_volatile(addr_of!(OFFSETS[member as usize])) }
}

/// Returns the address of a member.
#[inline(always)]
fn at(structure: *const c_void, member: KernelMember) -> *const c_void {
    structure.wrapping_byte_add(offset(member) as usize)
}

/// Reads a member; `None` if there is no such memory.
#[inline(always)]
fn read<T: Copy>(structure: *const c_void, member: KernelMember) -> Option<T> {
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    // SAFETY: as many bytes as the value has; the helper fails if it cannot read them. Integers and pointers only.
    unsafe {
        let to = value.as_mut_ptr().cast();
        let failed = bpf_probe_read_kernel(to, size_of::<T>() as u32, at(structure, member));
        (failed == 0).then(|| value.assume_init())
    }
}

/// Reads a member, or 0 if there is no such memory.
#[inline(always)]
fn or_zero<T: Copy>(structure: *const c_void, member: KernelMember) -> T {
    kernel::or_zero(at(structure, member))
}
