//! The BPF program that looks at who maps a file, and whose lock (`mmap_lock`) is held: the kernel waits for it when it
//! places a probe. The kernel calls it for each mapping of the keeper, in the thread that reads the iterator. One of
//! those is of the file, at a place that both know. It takes no lock, so nothing can hold it up.
//!
//! The kernel's own BTF says, at load time, where its members are. What changes meanwhile may be missed: the reader
//! looks again.
#![no_std]
#![no_main]
#![allow(missing_docs, reason = "the entry function is found by its name in the object")]

mod kernel;

use core::ffi::c_void;
use core::ptr::{addr_of, read_volatile};

use aya_ebpf::bindings::seq_file;
use aya_ebpf::helpers::generated::bpf_loop;
use evictscope_abi::{MAPPED_AT, MOST_HELD, MOST_MAPPINGS, Mapper, MapperMember};
use kernel::{or_zero, write};

/// The most steps through the tree: three for each mapping, and some for those of other pages.
const STEPS: u32 = 8 * MOST_MAPPINGS;
/// The colour in the link to a node's parent.
const COLOUR: u64 = 3;

/// Where the members are, by [`MapperMember`]. Written before the program is loaded, and never again.
#[unsafe(no_mangle)]
static OFFSETS: [u32; MapperMember::COUNT] = [0; MapperMember::COUNT];
/// Bits of a page's size. Written before the program is loaded, too.
#[unsafe(no_mangle)]
static PAGE_BITS: u32 = 12;

/// What the kernel passes to a program on the mappings of tasks (`struct bpf_iter__task_vma`).
#[repr(C)]
struct Context {
    meta: *const Meta,
    _task: *const c_void,
    /// Null after the last one.
    mapping: *const c_void,
}

/// `struct bpf_iter_meta`.
#[repr(C)]
struct Meta {
    seq: *mut seq_file,
}

/// The way through the tree, in the order of pages.
struct Walk {
    seq: *mut seq_file,
    node: u64,
    before: u64,
    first: u64,
    last: u64,
    /// The keeper's `struct mm_struct`.
    keeper: u64,
    mappings: u32,
    held: u32,
}

/// `struct rb_node`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Links {
    parent: u64,
    right: u64,
    left: u64,
}

/// Runs at each mapping of the keeper.
///
/// # Safety
///
/// Must be called by the kernel, with its context.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task_vma")]
unsafe extern "C" fn mapper_look(context: *const Context) -> i32 {
    // SAFETY: both come from the kernel, whose verifier checks how they are read.
    let (seq, keepers) = unsafe { ((*(*context).meta).seq, (*context).mapping as u64) };
    if keepers == 0 || member::<u64>(keepers, MapperMember::Start) != MAPPED_AT {
        return 0;
    }
    let mapping = member(member(keepers, MapperMember::File), MapperMember::Mapping);
    let first = member(keepers, MapperMember::Page);
    let mut walk = Walk {
        seq,
        node: member(mapping, MapperMember::Tree),
        before: 0,
        first,
        last: last_page(keepers, first),
        keeper: member(keepers, MapperMember::Space),
        mappings: 0,
        held: 0,
    };
    // SAFETY: the kernel calls `step` with the walk, which lives until the helper returns.
    unsafe {
        let state: *mut Walk = &raw mut walk;
        bpf_loop(STEPS, step as *mut c_void, state.cast(), 0);
    }
    let inode: u64 = member(mapping, MapperMember::Inode);
    let magic: u64 = member(member(inode, MapperMember::FileSystem), MapperMember::Magic);
    let saw_all = walk.node == 0;
    let end =
        Mapper { space: Mapper::END, pid: magic as u32, mappings: if saw_all { walk.mappings } else { u32::MAX } };
    write(seq, &end);
    0
}

/// Takes one step. Returns 1 at the end.
extern "C" fn step(_: u64, walk: *mut Walk) -> i64 {
    // SAFETY: the kernel passes what was given to the helper.
    let walk = unsafe { &mut *walk };
    let node = walk.node;
    if node == 0 || walk.mappings >= MOST_MAPPINGS {
        return 1;
    }
    let links: Links = or_zero(node as *const c_void);
    let parent = links.parent & !COLOUR;
    let mapping = node.wrapping_sub(offset(MapperMember::Links));
    let came_down = walk.before == parent;
    let next = if came_down && member::<u64>(mapping, MapperMember::Last) < walk.first {
        parent
    } else if came_down && links.left != 0 {
        links.left
    } else if (came_down || walk.before == links.left) && visit(walk, mapping) && links.right != 0 {
        links.right
    } else {
        parent
    };
    walk.before = node;
    walk.node = next;
    0
}

/// Looks at a mapping. Returns whether those behind it may have the pages, too.
#[inline(always)]
fn visit(walk: &mut Walk, mapping: u64) -> bool {
    let first = member(mapping, MapperMember::Page);
    if first > walk.last {
        return false;
    }
    let space: u64 = member(mapping, MapperMember::Space);
    let is_other = last_page(mapping, first) >= walk.first && space != walk.keeper;
    // The kernel leaves alone what is being taken down, which may take long.
    if is_other && member::<u32>(space, MapperMember::Users) != 0 {
        walk.mappings += 1;
        if member::<u64>(space, MapperMember::Lock) != 0 && walk.held < MOST_HELD {
            walk.held += 1;
            let pid = match offset(MapperMember::Owner) {
                0 => 0,
                _ => member(member(space, MapperMember::Owner), MapperMember::Process),
            };
            let mappings = walk.mappings;
            write(walk.seq, &Mapper { space, pid, mappings });
        }
    }
    true
}

/// Returns the last page of the file in a mapping that begins with page `first`.
#[inline(always)]
fn last_page(mapping: u64, first: u64) -> u64 {
    let end: u64 = member(mapping, MapperMember::End);
    let bytes = end.wrapping_sub(member(mapping, MapperMember::Start));
    // SAFETY: as in `offset`.
    let bits = unsafe { read_volatile(addr_of!(PAGE_BITS)) };
    first.wrapping_add(bytes >> (bits & 63)).wrapping_sub(1)
}

#[inline(always)]
fn offset(member: MapperMember) -> u64 {
    // SAFETY: the loader changes it before the program is loaded, which the compiler does not see.
    unsafe { u64::from(read_volatile(addr_of!(OFFSETS[member as usize]))) }
}

/// Reads a member, or 0 if there is no such memory.
#[inline(always)]
fn member<T: Copy>(structure: u64, member: MapperMember) -> T {
    or_zero(structure.wrapping_add(offset(member)) as *const c_void)
}
