//! Why a member of `server` or the allocator's counter is not known.

use crate::elf::address::FileAddress;
use crate::flow::machine::Halt;
use crate::item::Method;

/// Why a member of `server` or the allocator's counter is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// The executable has no table of configuration directives.
    #[error(
        "no table of configuration directives with maxmemory, port, maxclients and maxmemory-policy"
    )]
    NoConfigTable,
    /// Which table is the right one is not clear.
    #[error("more than one table of configuration directives")]
    SeveralConfigTables,
    /// `server` has no symbol, and no layout tells where it begins.
    #[error(
        "no global variable called server, and no known layout of struct redisServer agrees with the configuration table"
    )]
    NoServer,
    /// Two layouts would have members at different addresses.
    #[error(
        "no global variable called server, and the layouts of {0} and {1} both agree with the configuration table"
    )]
    TwoServers(String, String),
    /// No known layout fits.
    #[error("no known layout of struct redisServer agrees with this executable")]
    NoLayout,
    /// Several layouts fit, with the members at different offsets.
    #[error("{0} known layouts of struct redisServer agree with this executable")]
    SeveralLayouts(usize),
    /// The layout of these releases fits, but the code counts elsewhere.
    #[error("struct redisServer seems to be that of {0}, but the code counts elsewhere in it")]
    LayoutContradicted(String),
    /// The table of layouts in this program is broken.
    #[error("the table of layouts is broken: {0}")]
    BrokenTable(String),
    /// The eviction loop and INFO name different addresses.
    #[error(
        "the eviction loop counts at {counted:#x}, but INFO shows as evicted_keys what is at {shown:#x}"
    )]
    EvictedKeys {
        /// Address that the eviction loop adds 1 to.
        counted: FileAddress,
        /// Address of what INFO shows.
        shown: FileAddress,
    },
    /// What `mem_reported` comes from is not known.
    #[error("mem_reported is neither a global nor the result of a call")]
    NoSource,
    /// Neither a symbol nor the goal leads to the allocator's counter.
    #[error(
        "no function called zmalloc_used_memory, and without the goal nothing else leads to its counter"
    )]
    NoAllocator,
    /// The function that returns the counter could not be run.
    #[error("zmalloc_used_memory() is not understood: {0}")]
    Allocator(#[from] Halt),
    /// It returns something else.
    #[error("zmalloc_used_memory() returns neither one counter nor the sum of one per thread")]
    NoCounter,
    /// There are too many counters.
    #[error(
        "the allocator has {most} counters, {stride} bytes apart: more than can be read at once"
    )]
    TooManyCounters {
        /// How many there are.
        most: u64,
        /// Distance between two, bytes.
        stride: u64,
    },
    /// The named function and the eviction function use different counters.
    #[error(
        "zmalloc_used_memory() returns the counter at {named:#x}, but the eviction function uses {used:#x}"
    )]
    TwoCounters {
        /// Address of the one that the function called `zmalloc_used_memory` returns.
        named: FileAddress,
        /// Address of the one that the eviction function uses.
        used: FileAddress,
    },
    /// Debug information names another address.
    #[error("DWARF says that it is at {dwarf:#x}, the {method} that it is at {found:#x}")]
    Dwarf {
        /// Address by the debug information.
        dwarf: FileAddress,
        /// How else it was found.
        method: Method,
        /// Address by that method.
        found: FileAddress,
    },
    /// The release that the executable names has another layout.
    #[error(
        "the executable says that it is {named}, but its struct redisServer is that of {layout}"
    )]
    Version {
        /// Product and version that the executable names.
        named: String,
        /// Releases that have its layout.
        layout: String,
    },
}
