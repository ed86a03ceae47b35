//! What a program needs to know about one server: how to compute the variables at a site, and where to find the
//! values that they are checked against.

use crate::{MAX_FUNCTIONS, REGISTERS};

/// The most exits of a function at which one plan may read values.
pub const MAX_DONE_SITES: usize = 16;
/// The most inner sites of a function.
pub const MAX_START_SITES: usize = 2;
/// The most terms of one recipe.
pub const MAX_TERMS: usize = 3;
/// The most places in the server's memory that the recipes of one plan may need, counting neighbouring words as one.
pub const MAX_READS: usize = 8;
/// How many words recipes are evaluated on: the registers, then two for each read. A power of two, because the verifier
/// knows the bounds of what a mask leaves.
pub const WORDS: usize = (REGISTERS + 2 * MAX_READS).next_power_of_two();

/// Scratch space of a program: the registers at a probe site, and what was read for the recipes.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words(pub [u64; WORDS]);

impl Default for Words {
    fn default() -> Self {
        Self([0; WORDS])
    }
}

/// The goal variables, and `maxmemory`; the value is the index in [`EvictionConfig::recipes`].
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variable {
    /// All memory tracked by the allocator.
    MemReported = 0,
    /// Replication output buffers and AOF buffer.
    Overhead = 1,
    /// `mem_reported - overhead`.
    MemUsed = 2,
    /// `mem_used - maxmemory`.
    MemTofree = 3,
    /// The configured limit.
    Maxmemory = 4,
}

pub const VARIABLES: [Variable; 5] =
    [Variable::MemReported, Variable::Overhead, Variable::MemUsed, Variable::MemTofree, Variable::Maxmemory];

/// What a [`EncodedTerm`] reads.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermKind {
    /// Nothing: the term is not used.
    Absent = 0,
    /// Register + displacement; in a recipe, word + displacement.
    Register = 1,
    /// User memory at register + displacement; not in a recipe.
    Memory = 2,
    /// User memory at the absolute address in displacement; not in a recipe.
    Absolute = 3,
    /// The displacement itself.
    Constant = 4,
}

/// One summand of a recipe, a read for recipes, or the place of a call's result.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodedTerm {
    /// A [`TermKind`].
    pub kind: u8,
    /// Number of the register in instructions. In a recipe also the number of a word that was read:
    /// `REGISTERS + 2 * i` is the first one of [`EvictionConfig::reads`]`[i]`.
    pub register: u8,
    /// Bytes: 4 (zero-extended) or 8; for a read also 16, which are two words.
    pub width: u8,
    /// 1 if the term is subtracted, 0 if it is added.
    pub negative: u8,
    /// Keeps `displacement` aligned.
    pub reserved: u32,
    /// Displacement, absolute address or constant.
    pub displacement: i64,
}

impl EncodedTerm {
    pub const ABSENT: Self =
        Self { kind: TermKind::Absent as u8, register: 0, width: 8, negative: 0, reserved: 0, displacement: 0 };
}

/// How to compute one variable: the sum of its terms, modulo 2^64. A recipe without terms means
/// that the variable is not known.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodedRecipe {
    /// The terms that are used come first.
    pub terms: [EncodedTerm; MAX_TERMS],
}

impl EncodedRecipe {
    pub const UNKNOWN: Self = Self { terms: [EncodedTerm::ABSENT; MAX_TERMS] };

    pub const fn is_known(&self) -> bool {
        self.terms[0].kind != TermKind::Absent as u8
    }
}

/// The most bytes from the beginning of an allocator's first counter to the end of its last.
pub const COUNTER_BYTES: usize = 2_176;

/// Where the allocator counts what it gave out (`used_memory` in zmalloc.c): the sum of `count`
/// counters of 8 bytes each, modulo 2^64.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocatorCounters {
    /// Run-time address of the first counter; 0 if it is not known.
    pub address: u64,
    /// Distance between two counters, in words of 8 bytes.
    pub stride: u32,
    /// How many counters there are; all of them lie within [`COUNTER_BYTES`].
    pub count: u32,
    /// Run-time address of the number of threads: no more counters than that are in use, the others are 0. 0 if
    /// there is no such number.
    pub threads: u64,
    /// Bytes of the number of threads, 4 or 8.
    pub threads_width: u64,
    /// Run-time address of a counter that belongs to the sum if there are more threads than counters; 0 if
    /// there is no such counter.
    pub overflow: u64,
}

impl AllocatorCounters {
    pub const UNKNOWN: Self = Self { address: 0, stride: 1, count: 0, threads: 0, threads_width: 8, overflow: 0 };

    pub const fn one(address: u64) -> Self {
        Self { address, count: 1, ..Self::UNKNOWN }
    }
}

/// What the programs on the eviction call need to know. All addresses are run-time addresses in the server's process.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionConfig {
    /// What the recipes need from the server's memory. Each place is read once, however many recipes need it,
    /// because reading costs more than all arithmetic. Used ones come first.
    pub reads: [EncodedTerm; MAX_READS],
    /// Recipes at the goal site, by [`Variable`].
    pub recipes: [EncodedRecipe; VARIABLES.len()],
    /// The call's result at each done site; absent if the plan does not know it.
    pub results: [EncodedTerm; MAX_DONE_SITES],
    /// Run-time address of `server.maxmemory`, 8 bytes wide; 0 if it is not known.
    pub maxmemory: u64,
    /// The allocator's counters.
    pub used_memory: AllocatorCounters,
}

impl EvictionConfig {
    pub const UNKNOWN: Self = Self {
        reads: [EncodedTerm::ABSENT; MAX_READS],
        recipes: [EncodedRecipe::UNKNOWN; VARIABLES.len()],
        results: [EncodedTerm::ABSENT; MAX_DONE_SITES],
        maxmemory: 0,
        used_memory: AllocatorCounters::UNKNOWN,
    };
}

/// The kind of an expire cycle, at one of its start sites.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleStart {
    /// Where its type is; absent if the plan does not know it.
    pub cycle_type: EncodedTerm,
    /// Where its job is (0 for keys, 1 for fields of hashes); absent if the cycle is whole.
    pub job: EncodedTerm,
    /// Where the keys are counted that have expired in all cycles, if the ends know no other count.
    pub expired: EncodedTerm,
}

impl CycleStart {
    pub const UNKNOWN: Self =
        Self { cycle_type: EncodedTerm::ABSENT, job: EncodedTerm::ABSENT, expired: EncodedTerm::ABSENT };
}

/// Where the keys of an expire cycle are counted, at one of its end sites; absent if the plan does not know it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleKeys {
    /// Keys that it sampled.
    pub sampled: EncodedTerm,
    /// Sampled keys that had expired, with those that the start knows of.
    pub expired: EncodedTerm,
}

/// What the programs on the expire cycle need to know.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpireConfig {
    /// By start site.
    pub starts: [CycleStart; MAX_START_SITES],
    /// By end site.
    pub ends: [CycleKeys; MAX_DONE_SITES],
}

impl ExpireConfig {
    pub const UNKNOWN: Self = Self {
        starts: [CycleStart::UNKNOWN; MAX_START_SITES],
        ends: [CycleKeys { sampled: EncodedTerm::ABSENT, expired: EncodedTerm::ABSENT }; MAX_DONE_SITES],
    };
}

/// The configuration of one slot.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Process id in the initial pid namespace; 0 switches the slot off.
    pub tgid: u32,
    /// The offset of `task_struct.sched_info.run_delay` in this kernel, bytes; 0 if it is not known.
    pub run_delay: u32,
    /// By traced function, whether calls that begin now are counted: 1 while the probes of both a call's
    /// beginning and its end are attached.
    pub is_observed: [u32; MAX_FUNCTIONS as usize],
    pub eviction: EvictionConfig,
    pub expire: ExpireConfig,
}

impl ServerConfig {
    pub const OFF: Self = Self {
        tgid: 0,
        run_delay: 0,
        is_observed: [0; MAX_FUNCTIONS as usize],
        eviction: EvictionConfig::UNKNOWN,
        expire: ExpireConfig::UNKNOWN,
    };
}
