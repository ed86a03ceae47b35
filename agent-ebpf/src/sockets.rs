//! The BPF program that looks at the sockets of a process: the kernel calls it for each open file of one task, in the thread of
//! the agent that reads the iterator. It is an object of its own. It has no state, so looks of several threads do not meet: it
//! writes all that it finds to the reader.
//!
//! The kernel's own BTF says, at load time, where its members are. What is read is not locked: meanwhile, the process
//! may read and data may come.
#![no_std]
#![no_main]
#![allow(
    missing_docs,
    reason = "the entry function is found by its name in the object"
)]

use core::ffi::c_void;
use core::ptr::{addr_of, read_volatile};

use aya_ebpf::bindings::{file, seq_file};
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::helpers::generated::{
    bpf_jiffies64, bpf_probe_read_kernel, bpf_seq_write, bpf_sock_from_file,
};
use evictscope_abi::{
    IDLE, KernelMember, LOOK_END, LookEnd, NOT_ACCEPTED_TCP, OWED_TCP, UNREAD_TCP, UNREAD_UNIX,
    UnreadSocket,
};

const SOCK_STREAM: u16 = 1;
const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const IPPROTO_TCP: u16 = 6;
/// Also the state of a Unix stream socket that is connected.
const TCP_ESTABLISHED: u8 = 1;
/// The other side sends no more.
const TCP_CLOSE_WAIT: u8 = 8;
const TCP_LISTEN: u8 = 10;

/// The most messages of a Unix socket whose bytes are added up. If a client has sent more, fewer bytes are reported.
const MOST_MESSAGES: usize = 32;

/// The most connections waiting to be accepted that are looked at for one socket: as many as Redis's
/// `tcp-backlog` allows by default.
const MOST_NOT_ACCEPTED: usize = 512;

/// Where the members are, by [`KernelMember`]. Written before the program is loaded, and never again.
#[unsafe(no_mangle)]
static OFFSETS: [u32; KernelMember::COUNT] = [0; KernelMember::COUNT];

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
        kind: [LOOK_END, 0, 0, 0],
        // SAFETY: both helpers take nothing, and always succeed.
        jiffies: unsafe { bpf_jiffies64() } as u32,
        // SAFETY: as above.
        monotonic_ns: unsafe { bpf_ktime_get_ns() },
        files,
    }
}

/// Writes what there is to say about a file; `None` if that is nothing.
#[inline(always)]
fn try_look(seq: *mut seq_file, file: *mut file) -> Option<()> {
    // SAFETY: the kernel has passed the file; it returns null for one that is not a socket.
    let socket = unsafe { bpf_sock_from_file(file) }
        .cast::<c_void>()
        .cast_const();
    if socket.is_null() || read::<u16>(socket, KernelMember::SocketType)? != SOCK_STREAM {
        return None;
    }
    let sock = read::<*const c_void>(socket, KernelMember::SocketSock)?;
    let state = read::<u8>(sock, KernelMember::State)?;
    let waiting = match read::<u16>(sock, KernelMember::Family)? {
        AF_INET | AF_INET6 if read::<u16>(sock, KernelMember::Protocol)? == IPPROTO_TCP => {
            if state == TCP_LISTEN {
                return not_accepted(seq, sock);
            }
            tcp(sock, state)?
        }
        AF_UNIX if state == TCP_ESTABLISHED => unix(sock)?,
        _ => return None,
    };
    if waiting.bytes == 0 && waiting.kind[0] != OWED_TCP {
        write(seq, &IDLE);
    } else {
        write(seq, &waiting);
    }
    Some(())
}

/// Writes the connections that wait to be accepted by a listening socket and have bytes unread.
///
/// If one is accepted meanwhile, the list may end there or lead to others: the port is checked for that.
#[inline(always)]
fn not_accepted(seq: *mut seq_file, listening: *const c_void) -> Option<()> {
    let port = read::<u16>(listening, KernelMember::Port)?;
    let mut request = read::<*const c_void>(listening, KernelMember::AcceptHead)?;
    for _ in 0..MOST_NOT_ACCEPTED {
        if request.is_null() {
            break;
        }
        let sock = read::<*const c_void>(request, KernelMember::RequestSock)?;
        let state = read::<u8>(sock, KernelMember::State)?;
        if read::<u16>(sock, KernelMember::Port)? != port {
            break;
        }
        let mut waiting = tcp(sock, state)?;
        if waiting.bytes > 0 {
            waiting.kind[0] = NOT_ACCEPTED_TCP;
            write(seq, &waiting);
        }
        request = read(request, KernelMember::RequestNext)?;
    }
    Some(())
}

/// Returns what lies unread in a TCP socket; `None` if it is not connected.
#[inline(always)]
fn tcp(sock: *const c_void, state: u8) -> Option<UnreadSocket> {
    if state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT {
        return None;
    }
    // In this order, so that what comes and is read in between is not taken for unread.
    let received = read::<u32>(sock, KernelMember::RcvNxt)?;
    let read_to = read::<u32>(sock, KernelMember::CopiedSeq)?;
    let mut unread = received.wrapping_sub(read_to).cast_signed();
    // The other side's FIN has a number, too, until the owner has seen it.
    if state == TCP_CLOSE_WAIT {
        unread -= 1;
    }
    let bytes = if unread > 0 {
        unread.cast_unsigned()
    } else {
        0
    };
    let kind = if bytes == 0 && state == TCP_ESTABLISHED && is_owed(sock, received)? {
        OWED_TCP
    } else {
        UNREAD_TCP
    };
    // Most connections are idle, and nothing more is read of them.
    let answered_to = if bytes > 0 || kind == OWED_TCP {
        read::<u32>(sock, KernelMember::WriteSeq)?
    } else {
        0
    };
    Some(UnreadSocket {
        kind: [kind, 0, 0, 0],
        bytes,
        socket: sock as u64,
        read_to,
        came: read::<u32>(sock, KernelMember::LastReceived)?,
        answered_to: answered_to.into(),
    })
}

/// Returns whether data has come and no answer has left since.
///
/// What the other side sends acknowledges what it has received. The kernel keeps the number of the last segment that did so:
/// for a request, that of its first byte. Once the answer is acknowledged, it is the number after the request.
#[inline(always)]
fn is_owed(sock: *const c_void, received: u32) -> Option<bool> {
    if read::<u32>(sock, KernelMember::SndWl1)? == received {
        return Some(false);
    }
    Some(read::<u32>(sock, KernelMember::SndUna)? == read::<u32>(sock, KernelMember::WriteSeq)?)
}

/// Returns what lies unread in a connected Unix socket.
#[inline(always)]
fn unix(sock: *const c_void) -> Option<UnreadSocket> {
    let queue = at(sock, KernelMember::ReceiveQueue);
    let first = read::<*const c_void>(queue, KernelMember::BufferNext)?;
    let mut unread = UnreadSocket {
        kind: [UNREAD_UNIX, 0, 0, 0],
        socket: sock as u64,
        ..UnreadSocket::default()
    };
    let mut message = first;
    for _ in 0..MOST_MESSAGES {
        if message == queue || message.is_null() {
            break;
        }
        let length = read::<u32>(message, KernelMember::BufferLength)?;
        let consumed = read::<u32>(message, KernelMember::BufferConsumed)?;
        if message == first {
            // Addresses of messages are multiples of 64.
            unread.read_to = ((first as u64 >> 6) as u32).wrapping_add(consumed.rotate_left(16));
        }
        unread.bytes += length.saturating_sub(consumed);
        message = read(message, KernelMember::BufferNext)?;
    }
    Some(unread)
}

/// Returns the address of a member.
#[inline(always)]
fn at(structure: *const c_void, member: KernelMember) -> *const c_void {
    // SAFETY: an element of a static. The compiler must not assume that it is 0: the loader writes it.
    let offset = unsafe { read_volatile(addr_of!(OFFSETS[member as usize])) };
    structure.wrapping_byte_add(offset as usize)
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

/// Writes a record to the reader.
#[inline(always)]
fn write<T: Copy>(seq: *mut seq_file, record: &T) {
    // SAFETY: as many bytes as the record has, none of them padding.
    unsafe { bpf_seq_write(seq, (&raw const *record).cast(), size_of::<T>() as u32) };
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    // The verifier refuses a program in which this can be reached.
    loop {}
}
