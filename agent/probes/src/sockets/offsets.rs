//! Where the members are that the program reads, by the kernel's own description of its types (BTF).

use std::io::{self, ErrorKind};

use aya::Btf;
use aya_obj::btf::BtfKind;
use btfparse::{Offset, Readable, TypeInformation};
use evictscope_abi::KernelMember;

use super::super::error::ProbeError;

/// Where the kernel describes itself.
pub(super) const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

/// Members in members, each in a structure. Their offsets are added.
type Path = &'static [(&'static str, &'static str)];

const fn path(member: KernelMember) -> Path {
    match member {
        KernelMember::FileInode => &[("file", "f_inode")],
        KernelMember::InodeNumber => &[("inode", "i_ino")],
        KernelMember::SocketType => &[("socket", "type")],
        KernelMember::SocketSock => &[("socket", "sk")],
        KernelMember::Family => &[("sock", "__sk_common.skc_family")],
        KernelMember::State => &[("sock", "__sk_common.skc_state")],
        KernelMember::Protocol => &[("sock", "sk_protocol")],
        KernelMember::ReceiveQueue => &[("sock", "sk_receive_queue")],
        KernelMember::RcvNxt => &[("tcp_sock", "rcv_nxt")],
        KernelMember::CopiedSeq => &[("tcp_sock", "copied_seq")],
        KernelMember::LastReceived => &[("tcp_sock", "inet_conn.icsk_ack.lrcvtime")],
        KernelMember::BufferNext => &[("sk_buff", "next")],
        KernelMember::BufferLength => &[("sk_buff", "len")],
        KernelMember::BufferConsumed => &[("sk_buff", "cb"), ("unix_skb_parms", "consumed")],
    }
}

/// Returns the offsets by [`KernelMember`].
///
/// # Errors
///
/// Where the kernel cannot walk over the files of one task, or lacks a member.
pub(super) fn of(btf: &Btf) -> Result<[u32; KernelMember::COUNT], ProbeError> {
    let bytes = std::fs::read(KERNEL_BTF).map_err(|error| ProbeError::NoBtf(error.to_string()))?;
    let types = TypeInformation::new(&Bytes(&bytes));
    let types = types.map_err(|error| ProbeError::NoBtf(format!("{error:?}")))?;
    // A kernel that does not know the filter would walk over the files of all tasks.
    offset(
        btf,
        &types,
        BtfKind::Union,
        "bpf_iter_link_info",
        "task.tid",
    )
    .ok_or(ProbeError::NoTaskFilter)?;
    let mut offsets = [0; KernelMember::COUNT];
    for (to, member) in offsets.iter_mut().zip(KernelMember::ALL) {
        for (structure, member) in path(member) {
            *to += offset(btf, &types, BtfKind::Struct, structure, member)
                .ok_or_else(|| ProbeError::NoMember(format!("{structure}.{member}")))?;
        }
    }
    Ok(offsets)
}

/// Returns the offset of a member in bytes. Other kinds of types may have the structure's name, so that is for aya.
fn offset(
    btf: &Btf,
    types: &TypeInformation,
    kind: BtfKind,
    structure: &str,
    member: &str,
) -> Option<u32> {
    let structure = btf.id_by_type_name_kind(structure, kind).ok()?;
    match types.offset_of(structure, member).ok()? {
        (_, Offset::ByteOffset(offset)) => Some(offset),
        (_, Offset::BitOffsetAndSize(..)) => None,
    }
}

struct Bytes<'a>(&'a [u8]);

impl Readable for Bytes<'_> {
    fn read(&self, offset: u64, to: &mut [u8]) -> btfparse::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|at| self.0.get(at..));
        let from = from.and_then(|from| from.get(..to.len()));
        to.copy_from_slice(from.ok_or(io::Error::from(ErrorKind::UnexpectedEof))?);
        Ok(())
    }
}
