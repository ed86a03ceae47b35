//! Iterators over what one task has. aya 0.14 cannot ask for one task, so the links are made here.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use aya::programs::Iter;
use aya::{Btf, Ebpf, EbpfLoader};
use aya_obj::generated::bpf_attach_type::BPF_TRACE_ITER;
use aya_obj::generated::bpf_cmd;

use super::error::ProbeError;
use super::multi::{bpf, zeroed};

/// Whose files or mappings are walked over: `task` of `union bpf_iter_link_info`.
#[repr(C)]
struct OneTask {
    tid: u32,
    pid: u32,
    pid_fd: u32,
}

/// Loads an object and its program for the kernel's iterator `over`. The loader has the object's globals.
///
/// # Errors
///
/// Fails if the kernel does not allow it, or refuses the program.
pub fn load(
    loader: &mut EbpfLoader<'_>,
    object: &[u8],
    name: &'static str,
    over: &str,
    btf: &Btf,
) -> Result<Ebpf, ProbeError> {
    let mut ebpf = loader.load(object).map_err(ProbeError::load)?;
    let program = ebpf.program_mut(name).ok_or(ProbeError::Object(name))?;
    let program: &mut Iter = program.try_into().map_err(ProbeError::program)?;
    program.load(over, btf).map_err(ProbeError::program)?;
    Ok(ebpf)
}

/// Returns an iterator over what the task `tid` has, with a program that is loaded for it.
///
/// # Errors
///
/// Returns the kernel's error: "not found" if the task has ended.
pub fn iterator(program: BorrowedFd<'_>, tid: u32) -> io::Result<OwnedFd> {
    let task = OneTask { tid, pid: 0, pid_fd: 0 };
    let mut attr = zeroed();
    attr.link_create.__bindgen_anon_1.prog_fd = program.as_raw_fd().cast_unsigned();
    attr.link_create.attach_type = BPF_TRACE_ITER as u32;
    // SAFETY: all of it is zero, which is valid for every member of the union.
    let iter = unsafe { &mut attr.link_create.__bindgen_anon_3.__bindgen_anon_1 };
    iter.iter_info = &raw const task as u64;
    iter.iter_info_len = size_of_val(&task) as u32;
    // SAFETY: `task` is as long as said, and outlives the call.
    let link = unsafe { bpf(bpf_cmd::BPF_LINK_CREATE, &attr) }?;
    let mut attr = zeroed();
    attr.iter_create.link_fd = link.as_raw_fd().cast_unsigned();
    // SAFETY: it has no pointers.
    unsafe { bpf(bpf_cmd::BPF_ITER_CREATE, &attr) }
}
