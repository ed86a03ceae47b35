//! What the program that looks at who maps a file writes to its reader.

/// Where the reader maps the file, so that the program finds it among all that the reader has mapped.
pub const MAPPED_AT: u64 = 0x2000_0000_0000;
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

/// A member of a kernel structure whose offset the program is told: the index into its table of offsets.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapperMember {
    /// `struct vm_area_struct`: where it begins.
    Start,
    /// `struct vm_area_struct`: where it ends.
    End,
    /// `struct vm_area_struct`: its `struct mm_struct`.
    Space,
    /// `struct vm_area_struct`: the page of the file that it begins with.
    Page,
    /// `struct vm_area_struct`: its `struct file`.
    File,
    /// `struct vm_area_struct`: its `struct rb_node` in the tree of all mappings of the file.
    Links,
    /// `struct vm_area_struct`: the last page of the file in this part of the tree.
    Last,
    /// `struct file`: its `struct address_space`.
    Mapping,
    /// `struct address_space`: the first `struct rb_node` of the tree.
    Tree,
    /// `struct address_space`: its `struct inode`.
    Inode,
    /// `struct inode`: its `struct super_block`.
    FileSystem,
    /// `struct super_block`: the type of the file system.
    Magic,
    /// `struct mm_struct`: how many use it, 32 bits; 0 if it is being taken down.
    Users,
    /// `struct mm_struct`: whether its lock is held, 64 bits.
    Lock,
    /// `struct mm_struct`: the `struct task_struct` that it belongs to. Kernels without control groups lack it.
    Owner,
    /// `struct task_struct`: the process, 32 bits.
    Process,
}

impl MapperMember {
    /// All of them, in their order.
    pub const ALL: [Self; 16] = [
        Self::Start,
        Self::End,
        Self::Space,
        Self::Page,
        Self::File,
        Self::Links,
        Self::Last,
        Self::Mapping,
        Self::Tree,
        Self::Inode,
        Self::FileSystem,
        Self::Magic,
        Self::Users,
        Self::Lock,
        Self::Owner,
        Self::Process,
    ];
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();
}
