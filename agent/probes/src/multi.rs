//! uprobe_multi links: one link for all sites of a program in a process (Linux 6.6).
//!
//! The kernel takes such links off in a thousandth of the time that perf events need. aya 0.14 cannot
//! make them. So aya creates the maps, `aya_obj` prepares the instructions of the same object, and a
//! call of `bpf(2)` loads them. This file can go once aya makes them.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use anyhow::{Context as _, ensure};
use aya::Ebpf;
use aya::maps::Map;
use aya_obj::generated::bpf_attach_type::BPF_TRACE_UPROBE_MULTI;
use aya_obj::generated::bpf_prog_type::BPF_PROG_TYPE_KPROBE;
use aya_obj::generated::{bpf_attr, bpf_cmd};

/// Programs that were loaded for uprobe_multi links, by name.
pub struct Multi(HashMap<&'static str, OwnedFd>);

impl Multi {
    /// Loads the named programs, which use the maps that aya has created.
    ///
    /// # Errors
    ///
    /// Fails if the object is not sound or the kernel refuses a program.
    pub fn load(object: &[u8], ebpf: &Ebpf, names: impl Iterator<Item = &'static str>) -> anyhow::Result<Self> {
        let mut object = aya_obj::Object::parse(object)?;
        let fds: HashMap<&str, BorrowedFd<'_>> = ebpf.maps().filter_map(|(name, map)| Some((name, fd(map)?))).collect();
        let maps = std::mem::take(&mut object.maps);
        // A missing one would be taken for another.
        let missing = maps.keys().find(|name| !fds.contains_key(name.as_str()));
        ensure!(missing.is_none(), "map {missing:?} was not created");
        let maps = maps.iter().filter_map(|(name, map)| {
            let fd = fds.get(name.as_str())?;
            Some((name.as_str(), fd.as_raw_fd(), map))
        });
        let sections: HashSet<usize> = object.functions.keys().map(|(index, _)| *index).collect();
        object.relocate_maps(maps, &sections)?;
        object.relocate_calls(&sections)?;
        let load = |name| anyhow::Ok((name, load(&object, name)?));
        names.map(load).collect::<Result<_, _>>().map(Self)
    }

    /// Returns a program that was loaded.
    pub fn program(&self, name: &str) -> Option<BorrowedFd<'_>> {
        self.0.get(name).map(OwnedFd::as_fd)
    }
}

/// Returns the descriptor of a map of a kind that the object has.
fn fd(map: &Map) -> Option<BorrowedFd<'_>> {
    match map {
        Map::Array(data) | Map::HashMap(data) | Map::ProgramArray(data) | Map::RingBuf(data) => Some(data.fd().as_fd()),
        _ => None,
    }
}

fn load(object: &aya_obj::Object, name: &'static str) -> anyhow::Result<OwnedFd> {
    let program = object.programs.get(name);
    let program = program.context(name)?;
    let function = object.functions.get(&program.function_key());
    let instructions = &function.context(name)?.instructions;
    let mut attr = zeroed();
    // SAFETY: all of it is zero, which is valid for every member of the union.
    let load = unsafe { &mut attr.__bindgen_anon_3 };
    load.prog_type = BPF_PROG_TYPE_KPROBE as u32;
    load.expected_attach_type = BPF_TRACE_UPROBE_MULTI as u32;
    load.insns = instructions.as_ptr() as u64;
    load.insn_cnt = u32::try_from(instructions.len()).map_err(io::Error::other)?;
    load.license = program.license.as_ptr() as u64;
    // What bpftool shows; all names are shorter, so the last byte stays 0.
    for (to, from) in load.prog_name.iter_mut().zip(name.bytes().take(15)) {
        *to = from.cast_signed();
    }
    // SAFETY: there are `insn_cnt` instructions, and the licence ends in 0. Both outlive the call.
    Ok(unsafe { bpf(bpf_cmd::BPF_PROG_LOAD, &attr) }?)
}

/// Returns an attribute in which nothing is set.
pub fn zeroed() -> bpf_attr {
    // SAFETY: integers only, so zero is valid.
    unsafe { std::mem::zeroed() }
}

/// Calls `bpf(2)` with a command that returns a file descriptor.
///
/// # Safety
///
/// All pointers in `attr` that the command reads must be valid during the call.
pub unsafe fn bpf(command: bpf_cmd, attr: &bpf_attr) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is as long as said; the caller guarantees that what it points to is valid.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command as u32, attr, size_of_val(attr)) };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for this caller.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use aya_obj::generated::bpf_insn;

    /// Returns how many bytes of stack a function uses. Register 10 is the upper end.
    fn stack(instructions: &[bpf_insn]) -> i32 {
        let depth = |own: &bpf_insn, next: Option<&bpf_insn>| match (own.code, own.code & 7) {
            // mov %r10, X; add $n, X
            (0xbf, _) if own.src_reg() == 10 => {
                let taken = next.filter(|next| next.code == 0x07 && next.dst_reg() == own.dst_reg());
                taken.map_or(0, |next| -next.imm)
            }
            (_, 1) if own.src_reg() == 10 => -i32::from(own.off),
            (_, 2 | 3) if own.dst_reg() == 10 => -i32::from(own.off),
            _ => 0,
        };
        let depths = (instructions.iter().enumerate()).map(|(index, own)| depth(own, instructions.get(index + 1)));
        depths.max().unwrap_or(0)
    }

    /// See `agent-ebpf/src/stack.rs`.
    #[test]
    fn a_program_stays_on_the_stack_of_its_thread() -> anyhow::Result<()> {
        let programs = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/evictscope-programs"));
        let trace = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/evictscope-trace"));
        let programs = aya_obj::Object::parse(programs)?;
        let trace = aya_obj::Object::parse(trace)?;
        let mut most = 0;
        for function in programs.functions.values().chain(trace.functions.values()) {
            let used = stack(&function.instructions);
            most = most.max(used);
            // bpf_tail_call is helper number 12.
            let mut calls = function.instructions.iter();
            let stays = calls.any(|own| own.code == 0x85 && own.src_reg() == 0 && own.imm == 12);
            // The kernel rounds up to 16.
            assert!(stays || used <= 48, "{} uses {used} bytes", function.name);
        }
        assert!(most > 48, "this test reads the programs wrongly");
        Ok(())
    }
}
