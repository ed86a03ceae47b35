//! Finds the members of kernel structures that the programs read, in the kernel's own description of its types (BTF).

use std::collections::HashMap;
use std::io::{self, ErrorKind};

use btfparse::{Offset, Readable, TypeInformation, TypeVariant};
use evictscope_abi::{KernelMember, MapperMember};

use super::error::ProbeError;

/// Where the kernel describes itself.
const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

/// Members in members, each in a structure. Their offsets are added up.
type Path = &'static [(&'static str, &'static str)];

const fn path(member: KernelMember) -> Path {
    match member {
        KernelMember::SocketType => &[("socket", "type")],
        KernelMember::SocketSock => &[("socket", "sk")],
        KernelMember::Family => &[("sock", "__sk_common.skc_family")],
        KernelMember::State => &[("sock", "__sk_common.skc_state")],
        KernelMember::Protocol => &[("sock", "sk_protocol")],
        KernelMember::Port => &[("inet_sock", "inet_sport")],
        KernelMember::Shutdown => &[("sock", "sk_shutdown")],
        KernelMember::ReceiveQueue => &[("sock", "sk_receive_queue")],
        KernelMember::RcvNxt => &[("tcp_sock", "rcv_nxt")],
        KernelMember::CopiedSeq => &[("tcp_sock", "copied_seq")],
        KernelMember::SndWl1 => &[("tcp_sock", "snd_wl1")],
        KernelMember::SndUna => &[("tcp_sock", "snd_una")],
        KernelMember::WriteSeq => &[("tcp_sock", "write_seq")],
        KernelMember::SndNxt => &[("tcp_sock", "snd_nxt")],
        KernelMember::LastAcknowledged => &[("tcp_sock", "rcv_tstamp")],
        KernelMember::LastSent => &[("tcp_sock", "lsndtime")],
        KernelMember::LastReceived => &[("tcp_sock", "inet_conn.icsk_ack.lrcvtime")],
        KernelMember::AcceptHead => &[("tcp_sock", "inet_conn.icsk_accept_queue.rskq_accept_head")],
        KernelMember::RequestNext => &[("request_sock", "dl_next")],
        KernelMember::RequestSock => &[("request_sock", "sk")],
        KernelMember::BufferNext => &[("sk_buff", "next")],
        KernelMember::BufferSock => &[("sk_buff", "sk")],
        KernelMember::BufferLength => &[("sk_buff", "len")],
        KernelMember::BufferConsumed => &[("sk_buff", "cb"), ("unix_skb_parms", "consumed")],
        KernelMember::IsMptcp => &[("tcp_sock", "is_mptcp")],
        KernelMember::MptcpContext => &[("tcp_sock", "inet_conn.icsk_ulp_data")],
        KernelMember::MptcpConnection => &[("mptcp_subflow_context", "conn")],
        KernelMember::MptcpFirst => &[("mptcp_sock", "first")],
        KernelMember::MptcpReceived => &[("mptcp_sock", "bytes_received")],
        KernelMember::MptcpConsumed => &[("mptcp_sock", "bytes_consumed")],
        KernelMember::MptcpWriteSeq => &[("mptcp_sock", "write_seq")],
        KernelMember::MptcpSndNxt => &[("mptcp_sock", "snd_nxt")],
        KernelMember::MptcpLastReceived => &[("mptcp_sock", "last_data_recv")],
        KernelMember::MptcpLastSent => &[("mptcp_sock", "last_data_sent")],
    }
}

/// Does the same for the program that looks at who maps a file.
const fn mapper_path(member: MapperMember) -> Path {
    match member {
        MapperMember::Start => &[("vm_area_struct", "vm_start")],
        MapperMember::End => &[("vm_area_struct", "vm_end")],
        MapperMember::Space => &[("vm_area_struct", "vm_mm")],
        MapperMember::Page => &[("vm_area_struct", "vm_pgoff")],
        MapperMember::File => &[("vm_area_struct", "vm_file")],
        MapperMember::Links => &[("vm_area_struct", "shared.rb")],
        MapperMember::Last => &[("vm_area_struct", "shared.rb_subtree_last")],
        MapperMember::Mapping => &[("file", "f_mapping")],
        MapperMember::Tree => &[("address_space", "i_mmap.rb_root.rb_node")],
        MapperMember::Inode => &[("address_space", "host")],
        MapperMember::FileSystem => &[("inode", "i_sb")],
        MapperMember::Magic => &[("super_block", "s_magic")],
        MapperMember::Users => &[("mm_struct", "mm_users")],
        MapperMember::Lock => &[("mm_struct", "mmap_lock"), ("rw_semaphore", "count")],
        MapperMember::Owner => &[("mm_struct", "owner")],
        MapperMember::Process => &[("task_struct", "tgid")],
    }
}

/// Where the members are.
pub struct KernelOffsets {
    /// The offsets that the program on sockets needs, by [`KernelMember`], bytes; 0 for what this kernel lacks and may
    /// lack.
    pub sockets: [u32; KernelMember::COUNT],
    /// The offset of `sched_info.run_delay` in `task_struct`, bytes; `None` if this kernel has none.
    pub run_delay: Option<u32>,
}

/// Returns where the members of sockets are in this kernel. Fails if the kernel does not describe itself, cannot walk
/// over the files of one task, or lacks a member of sockets.
pub fn of_kernel() -> Result<KernelOffsets, ProbeError> {
    with(|offset| {
        let paths = KernelMember::ALL.map(|of| (path(of), of.is_optional()));
        Ok(KernelOffsets { sockets: sums(offset, paths)?, run_delay: offset("task_struct", "sched_info.run_delay") })
    })
}

/// Returns where the members are that tell who maps a file, by [`MapperMember`]. Fails as [`of_kernel`] does.
pub fn of_mappers() -> Result<[u32; MapperMember::COUNT], ProbeError> {
    let paths = MapperMember::ALL.map(|of| (mapper_path(of), of == MapperMember::Owner));
    with(|offset| sums(offset, paths))
}

/// Returns the offset of a member of a structure.
type OffsetOf<'a> = dyn Fn(&str, &str) -> Option<u32> + 'a;

/// Calls a function with what tells offsets.
fn with<T>(find: impl FnOnce(&OffsetOf<'_>) -> Result<T, ProbeError>) -> Result<T, ProbeError> {
    let bytes = std::fs::read(KERNEL_BTF).map_err(|error| ProbeError::NoBtf(error.to_string()))?;
    let types = TypeInformation::new(&Bytes(&bytes)).map_err(|error| ProbeError::NoBtf(format!("{error:?}")))?;
    let structures = structures(&types);
    let offset = |structure: &str, member: &str| {
        let (_, offset) = types.offset_of(*structures.get(structure)?, member).ok()?;
        match offset {
            Offset::ByteOffset(offset) => Some(offset),
            Offset::BitOffsetAndSize(..) => None,
        }
    };
    // A kernel that does not know the filter would walk over those of all tasks.
    offset("bpf_iter_link_info", "task.tid").ok_or(ProbeError::NoTaskFilter)?;
    find(&offset)
}

/// Adds up the offsets of each path; 0 for one that the kernel lacks and may lack.
fn sums<const N: usize>(offset: &OffsetOf<'_>, paths: [(Path, bool); N]) -> Result<[u32; N], ProbeError> {
    let mut sums = [0; N];
    for (to, (path, is_optional)) in sums.iter_mut().zip(paths) {
        for (structure, member) in path {
            match offset(structure, member) {
                Some(offset) => *to += offset,
                None if is_optional => {}
                None => return Err(ProbeError::NoMember(format!("{structure}.{member}"))),
            }
        }
    }
    Ok(sums)
}

/// Returns the first structure or union of each name. Functions and the like may have the same name.
fn structures(types: &TypeInformation) -> HashMap<&str, u32> {
    let named = types.get().iter().filter_map(|(id, of)| {
        let name = match of {
            TypeVariant::Struct(of) => of.name(),
            TypeVariant::Union(of) => of.name(),
            _ => return None,
        };
        Some((name.as_deref()?, *id))
    });
    // The last one inserted stays.
    named.rev().collect()
}

struct Bytes<'a>(&'a [u8]);

impl Readable for Bytes<'_> {
    fn read(&self, offset: u64, to: &mut [u8]) -> btfparse::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|at| self.0.get(at..)?.get(..to.len()));
        to.copy_from_slice(from.ok_or_else(|| io::Error::from(ErrorKind::UnexpectedEof))?);
        Ok(())
    }
}
