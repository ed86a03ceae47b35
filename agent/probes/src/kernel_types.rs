//! Finds the members of kernel structures that the programs read, in the kernel's own description of its types (BTF).

use std::collections::HashMap;
use std::io::{self, ErrorKind};

use btfparse::{Offset, Readable, TypeInformation, TypeVariant};
use evictscope_abi::{KernelMember, MapperMember, MemberPath};

use super::error::ProbeError;

/// Where the kernel describes itself.
const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

pub struct KernelOffsets {
    /// The offsets that the program on sockets needs, by [`KernelMember`], bytes; 0 for what this kernel lacks and may
    /// lack.
    pub sockets: [u32; KernelMember::COUNT],
    /// What this kernel lacks of what the program needs to tell peers; `None` if it has all.
    pub no_peers: Option<ProbeError>,
    /// The offset of `sched_info.run_delay` in `task_struct`, bytes; `None` if this kernel has none.
    pub run_delay: Option<u32>,
}

/// Returns where the members of sockets are in this kernel. Fails if the kernel does not describe itself, cannot walk
/// over the files of one task, or lacks a member of sockets.
pub fn of_kernel() -> Result<KernelOffsets, ProbeError> {
    with(|offset| {
        let paths = KernelMember::ALL.map(|(of, path)| (path, of.is_optional()));
        let telling = KernelMember::ALL.into_iter().filter(|(of, _)| of.tells_peers()).flat_map(|(_, path)| path);
        let lacking = telling.filter(|(structure, member)| offset(structure, member).is_none());
        Ok(KernelOffsets {
            sockets: sums(offset, paths)?,
            no_peers: lacking.map(|(structure, member)| ProbeError::NoMember(format!("{structure}.{member}"))).next(),
            run_delay: offset("task_struct", "sched_info.run_delay"),
        })
    })
}

/// Returns where the members are that tell who maps a file, by [`MapperMember`]. Fails as [`of_kernel`] does.
pub fn of_mappers() -> Result<[u32; MapperMember::COUNT], ProbeError> {
    let paths = MapperMember::ALL.map(|(of, path)| (path, of == MapperMember::Owner));
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
fn sums<const N: usize>(offset: &OffsetOf<'_>, paths: [(MemberPath, bool); N]) -> Result<[u32; N], ProbeError> {
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
