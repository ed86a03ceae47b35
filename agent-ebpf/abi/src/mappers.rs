//! What the program that looks at who maps a file writes to its reader.

use crate::sockets::kernel_members;

/// Where the reader maps the file, so that the program finds it among all that the reader has mapped: where no kernel
/// maps anything by itself, and in reach of the smallest address spaces, which on aarch64 have 39 bits.
pub const MAPPED_AT: u64 = 0x20_0000_0000;
/// The most mappings that are counted, and the most whose lock is held that are told.
pub const MOST_MAPPINGS: u32 = 20_000;
/// The most mappings that are told.
pub const MOST_HELD: u32 = 512;

/// An address space that maps the file, and whose lock is held. The last record is the end: see [`Mapper::END`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapper {
    /// Its address in the kernel, or [`Mapper::END`].
    pub space: u64,
    /// Its process, if the kernel tells; of the end, the type of the file system.
    pub pid: u32,
    /// How many mappings there are up to here; of an end that did not see all, `u32::MAX`.
    pub mappings: u32,
}

impl Mapper {
    /// Tells the end.
    pub const END: u64 = 0;
}

kernel_members! {
    MapperMember,
    Start: [("vm_area_struct", "vm_start")], // Where it begins.
    End: [("vm_area_struct", "vm_end")], // Where it ends.
    Space: [("vm_area_struct", "vm_mm")], // Its `struct mm_struct`.
    Page: [("vm_area_struct", "vm_pgoff")], // The page of the file that it begins with.
    File: [("vm_area_struct", "vm_file")], // Its `struct file`.
    Links: [("vm_area_struct", "shared.rb")], // Its `struct rb_node` in the tree of all mappings of the file.
    Last: [("vm_area_struct", "shared.rb_subtree_last")], // The last page of the file in this part of the tree.
    Mapping: [("file", "f_mapping")], // Its `struct address_space`.
    Tree: [("address_space", "i_mmap.rb_root.rb_node")], // The first `struct rb_node` of the tree.
    Inode: [("address_space", "host")], // Its `struct inode`.
    FileSystem: [("inode", "i_sb")], // Its `struct super_block`.
    Magic: [("super_block", "s_magic")], // The type of the file system.
    Users: [("mm_struct", "mm_users")], // How many use it, 32 bits; 0 if it is being taken down.
    Lock: [("mm_struct", "mmap_lock"), ("rw_semaphore", "count")], // Whether its lock is held, 64 bits.
    // The `struct task_struct` that it belongs to. Kernels without control groups lack it.
    Owner: [("mm_struct", "owner")],
    Process: [("task_struct", "tgid")], // The process, 32 bits.
}
