//! What aya 0.14 cannot do: calls of `bpf(2)` and `perf_event_open(2)`. This file can go once aya does it.
//!
//! A uprobe_multi link (Linux 6.6) is one link for all sites of a program in a process, which the kernel takes off in a
//! thousandth of the time that perf events need. So aya creates the maps, `aya_obj` prepares the instructions of the
//! same object, and they are loaded here. Nor can aya ask for an iterator over what one task has, or read the records
//! that programs write.

use std::collections::{HashMap, HashSet};
use std::ffi::c_char;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use anyhow::{Context as _, ensure};
use aya::maps::Map;
use aya::programs::Iter;
use aya::{Btf, Ebpf, EbpfLoader};
use aya_obj::generated::bpf_attach_type::{self, BPF_PERF_EVENT, BPF_TRACE_ITER, BPF_TRACE_UPROBE_MULTI};
use aya_obj::generated::bpf_prog_type::BPF_PROG_TYPE_KPROBE;
use aya_obj::generated::{PERF_FLAG_FD_CLOEXEC, bpf_attr, bpf_cmd, perf_event_attr};
use evictscope_abi::{ActiveSocket, IdleSocket, LookEnd, Mapper, ProfileSample, TracedCall};

use super::error::ProbeError;
use super::system::give_back;

/// Programs that were loaded for uprobe_multi links, by name.
pub struct MultiPrograms(HashMap<&'static str, OwnedFd>);

impl MultiPrograms {
    /// Loads the named programs, which use the maps that aya has created. Fails if the object is not sound or the
    /// kernel refuses a program.
    pub fn load(object: &[u8], ebpf: &Ebpf, names: impl Iterator<Item = &'static str>) -> anyhow::Result<Self> {
        let mut object = aya_obj::Object::parse(object)?;
        let fds: HashMap<&str, BorrowedFd<'_>> = ebpf.maps().filter_map(|(name, map)| Some((name, fd(map)?))).collect();
        let maps = std::mem::take(&mut object.maps);
        // A missing one would be taken for another.
        let missing = maps.keys().find(|name| !fds.contains_key(name.as_str()));
        ensure!(missing.is_none(), "map {missing:?} was not created");
        let maps =
            maps.iter().filter_map(|(name, map)| Some((name.as_str(), fds.get(name.as_str())?.as_raw_fd(), map)));
        let sections: HashSet<usize> = object.functions.keys().map(|(index, _)| *index).collect();
        object.relocate_maps(maps, &sections)?;
        object.relocate_calls(&sections)?;
        names.map(|name| anyhow::Ok((name, load(&object, name)?))).collect::<Result<_, _>>().map(Self)
    }

    pub fn program(&self, name: &str) -> Option<BorrowedFd<'_>> {
        self.0.get(name).map(OwnedFd::as_fd)
    }
}

/// The descriptor of a map of a kind that the object has.
fn fd(map: &Map) -> Option<BorrowedFd<'_>> {
    match map {
        Map::Array(data) | Map::HashMap(data) | Map::ProgramArray(data) | Map::RingBuf(data) => Some(data.fd().as_fd()),
        _ => None,
    }
}

fn load(object: &aya_obj::Object, name: &'static str) -> anyhow::Result<OwnedFd> {
    let program = object.programs.get(name).context(name)?;
    let instructions = &object.functions.get(&program.function_key()).context(name)?.instructions;
    // SAFETY: integers only, so zero is valid.
    let mut attr: bpf_attr = unsafe { std::mem::zeroed() };
    // SAFETY: all of it is zero, which is valid for every member of the union.
    let load = unsafe { &mut attr.__bindgen_anon_3 };
    load.prog_type = BPF_PROG_TYPE_KPROBE as u32;
    load.expected_attach_type = BPF_TRACE_UPROBE_MULTI as u32;
    load.insns = instructions.as_ptr() as u64;
    load.insn_cnt = u32::try_from(instructions.len()).map_err(io::Error::other)?;
    load.license = program.license.as_ptr() as u64;
    // What bpftool shows; all names are shorter, so the last byte stays 0.
    for (to, from) in load.prog_name.iter_mut().zip(name.bytes().take(15)) {
        *to = c_char::from_ne_bytes([from]);
    }
    // SAFETY: there are `insn_cnt` instructions, and the licence ends in 0. Both outlive the call.
    Ok(unsafe { bpf(bpf_cmd::BPF_PROG_LOAD, &attr) }?)
}

/// Returns what BPF_LINK_CREATE takes to link a program: nothing else is set yet.
pub fn link_attr(program: BorrowedFd<'_>, attach_type: bpf_attach_type) -> bpf_attr {
    // SAFETY: integers only, so zero is valid.
    let mut attr: bpf_attr = unsafe { std::mem::zeroed() };
    attr.link_create.__bindgen_anon_1.prog_fd = program.as_raw_fd().cast_unsigned();
    attr.link_create.attach_type = attach_type as u32;
    attr
}

/// Has a program run at each of a perf event, which the link keeps open. Fails with the kernel's error.
pub fn link_perf_event(program: BorrowedFd<'_>, event: &OwnedFd, cookie: u64) -> io::Result<OwnedFd> {
    let mut attr = link_attr(program, BPF_PERF_EVENT);
    attr.link_create.__bindgen_anon_2.target_fd = event.as_raw_fd().cast_unsigned();
    attr.link_create.__bindgen_anon_3.perf_event.bpf_cookie = cookie;
    // SAFETY: it has no pointers.
    unsafe { bpf(bpf_cmd::BPF_LINK_CREATE, &attr) }
}

/// Calls `bpf(2)` with a command that returns a file descriptor.
///
/// # Safety
///
/// All pointers in `attr` that the command reads must be valid during the call.
pub unsafe fn bpf(command: bpf_cmd, attr: &bpf_attr) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is as long as said; the caller guarantees that what it points to is valid.
    opened(unsafe { libc::syscall(libc::SYS_bpf, command as u32, attr, size_of_val(attr)) })
}

/// Opens an event of one thread, on whatever CPU it runs. `fill` says of which kind.
///
/// # Safety
///
/// All pointers that `fill` sets must be valid during the call.
pub unsafe fn perf_event(tid: u32, fill: impl FnOnce(&mut perf_event_attr)) -> io::Result<OwnedFd> {
    let tid = i32::try_from(tid).map_err(io::Error::other)?;
    // SAFETY: integers only, so zero is valid.
    let mut attr: perf_event_attr = unsafe { std::mem::zeroed() };
    attr.size = size_of_val(&attr) as u32;
    fill(&mut attr);
    let flags = libc::c_ulong::from(PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is as long as it says; the caller guarantees that what it points to is valid.
    opened(unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attr, tid, -1, -1, flags) })
}

/// Takes what a system call has just returned: a new descriptor, or -1.
fn opened(fd: libc::c_long) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just opened it for this caller.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Loads a program for the kernel's iterator `over`, with these values of the object's globals. Fails if the kernel
/// does not describe itself (no BTF), does not allow it, or refuses the program.
pub fn load_iterator(
    object: &[u8],
    name: &'static str,
    over: &str,
    globals: &[(&str, &[u32])],
) -> Result<OwnedFd, ProbeError> {
    let load = || {
        let btf = Btf::from_sys_fs().map_err(|error| ProbeError::NoBtf(error.to_string()))?;
        let mut loader = EbpfLoader::new();
        loader.btf(Some(&btf));
        for (global, value) in globals {
            loader.override_global(global, *value, true);
        }
        let mut ebpf = loader.load(object).map_err(ProbeError::load)?;
        let program: &mut Iter =
            ebpf.program_mut(name).ok_or(ProbeError::Object(name))?.try_into().map_err(ProbeError::program)?;
        program.load(over, &btf).map_err(ProbeError::program)?;
        let fd = program.fd().map_err(ProbeError::program)?.as_fd().try_clone_to_owned();
        fd.map_err(|error| ProbeError::program(error.into()))
    };
    let program = load();
    give_back();
    program
}

/// Whose files or mappings are walked over: `task` of `union bpf_iter_link_info`.
#[repr(C)]
struct OneTask {
    tid: u32,
    pid: u32,
    pid_fd: u32,
}

/// Opens an iterator over what the task `tid` has, with a program that is loaded for it. Fails with the kernel's error:
/// "not found" if the task has ended.
pub fn open_iterator(program: BorrowedFd<'_>, tid: u32) -> io::Result<OwnedFd> {
    let task = OneTask { tid, pid: 0, pid_fd: 0 };
    let mut attr = link_attr(program, BPF_TRACE_ITER);
    // SAFETY: all of it is zero, which is valid for every member of the union.
    let iter = unsafe { &mut attr.link_create.__bindgen_anon_3.__bindgen_anon_1 };
    iter.iter_info = &raw const task as u64;
    iter.iter_info_len = size_of_val(&task) as u32;
    // SAFETY: `task` is as long as said, and outlives the call.
    let link = unsafe { bpf(bpf_cmd::BPF_LINK_CREATE, &attr) }?;
    // SAFETY: integers only, so zero is valid.
    let mut attr: bpf_attr = unsafe { std::mem::zeroed() };
    attr.iter_create.link_fd = link.as_raw_fd().cast_unsigned();
    // SAFETY: it has no pointers.
    unsafe { bpf(bpf_cmd::BPF_ITER_CREATE, &attr) }
}

/// A record that programs write.
///
/// # Safety
///
/// It consists of integers, without padding, so that any bytes are one.
pub unsafe trait WrittenRecord: Copy {}

macro_rules! written {
    ($($record:ty),*) => { $(
        // SAFETY: it does.
        unsafe impl WrittenRecord for $record {}
    )* };
}

written!(ActiveSocket, IdleSocket, LookEnd, Mapper, ProfileSample, TracedCall);

/// Takes the first of these records; `None` if there are fewer bytes.
pub fn take_record<T: WrittenRecord>(bytes: &mut &[u8]) -> Option<T> {
    let record = bytes.split_off(..size_of::<T>())?;
    // SAFETY: the slice is as long as the record, and any bytes are one.
    Some(unsafe { record.as_ptr().cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use aya_obj::generated::bpf_insn;

    /// Returns how many bytes of stack a function uses. Register 10 is the upper end.
    fn stack(instructions: &[bpf_insn]) -> i32 {
        let depth = |instruction: &bpf_insn, next: Option<&bpf_insn>| match (instruction.code, instruction.code & 7) {
            // mov %r10, X; add $n, X
            (0xbf, _) if instruction.src_reg() == 10 => {
                let taken = next.filter(|next| next.code == 0x07 && next.dst_reg() == instruction.dst_reg());
                taken.map_or(0, |next| -next.imm)
            }
            (_, 1) if instruction.src_reg() == 10 => -i32::from(instruction.off),
            (_, 2 | 3) if instruction.dst_reg() == 10 => -i32::from(instruction.off),
            _ => 0,
        };
        let depths = (instructions.iter().enumerate())
            .map(|(index, instruction)| depth(instruction, instructions.get(index + 1)));
        depths.max().unwrap_or(0)
    }

    /// See `agent-ebpf/src/stack.rs`.
    #[test]
    fn a_program_stays_on_the_stack_of_its_thread() -> anyhow::Result<()> {
        let programs = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/evictscope-programs"));
        let trace = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/evictscope-trace"));
        let (programs, trace) = (aya_obj::Object::parse(programs)?, aya_obj::Object::parse(trace)?);
        let mut most = 0;
        for function in programs.functions.values().chain(trace.functions.values()) {
            let used = stack(&function.instructions);
            most = most.max(used);
            // bpf_tail_call is helper number 12.
            let is_tail_call = |instruction: &bpf_insn| {
                instruction.code == 0x85 && instruction.src_reg() == 0 && instruction.imm == 12
            };
            let stays = function.instructions.iter().any(is_tail_call);
            // The kernel rounds up to 16.
            assert!(stays || used <= 48, "{} uses {used} bytes", function.name);
        }
        assert!(most > 48, "this test reads the programs wrongly");
        Ok(())
    }
}
