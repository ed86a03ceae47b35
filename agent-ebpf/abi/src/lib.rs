//! What the BPF programs and the agent share: the layout of the maps and the bucket bounds.
//!
//! Everything here is plain old data with a fixed layout (`repr(C)`, no padding that matters, no
//! pointers). The agent copies these structures out of the maps as they are.
//!
//! Deliberately absent: anything that only one side needs, but for where the kernel has what the programs read.
#![no_std]
#![allow(missing_docs, reason = "only this workspace uses it: a name and a type say what most of these are")]

mod config;
mod histogram;
mod mappers;
mod profile;
mod registers;
mod sockets;
mod stats;
mod trace;
mod when;

pub use config::*;
pub use histogram::{Bounds, Histogram, bounds};
pub use mappers::*;
pub use profile::*;
pub use registers::*;
pub use sockets::*;
pub use stats::*;
pub use trace::*;
pub use when::When;

/// How many servers one agent can watch at the same time: the number of slots in every map.
pub const MAX_SERVERS: u32 = 256;

/// The quiet time, in nanoseconds: an evicting call that comes after this long without one begins a burst. A call
/// that stops at its time limit (500 µs by default) is continued by a timer at once, and a saturated server makes
/// thousands of calls a second. So inside a burst only a slow command keeps them apart, hardly ever for this long;
/// between bursts GitLab saw minutes.
pub const QUIET_NS: u64 = 1_000_000_000;

/// How many functions of one server can be traced: the number of entries that each slot has in the
/// map of calls.
pub const MAX_FUNCTIONS: u32 = 4;

/// The eviction call's number among the traced functions.
pub const EVICTION: u16 = 0;

/// The expire cycle's number among the traced functions.
pub const EXPIRE: u16 = 1;

/// The cookie of an attached probe: which slot of the maps the server has, which traced function was hit, at which
/// of its sites of that kind (0 if there is only one), and which calls end there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// The server's index into the maps.
    pub slot: u32,
    /// The function's number, below [`MAX_FUNCTIONS`].
    pub function: u16,
    /// The index into [`EvictionConfig::results`], [`ExpireConfig::starts`] or [`ExpireConfig::ends`].
    pub site: u8,
    /// At an exit or the inner site, which calls end there.
    pub when: When,
}

impl Cookie {
    pub const fn encode(self) -> u64 {
        ((self.slot as u64) << 40)
            | ((self.function as u64) << 24)
            | ((self.site as u64) << 16)
            | self.when.encode() as u64
    }

    pub const fn decode(raw: u64) -> Self {
        Self {
            slot: (raw >> 40) as u32,
            function: (raw >> 24) as u16,
            site: (raw >> 16) as u8,
            when: When::decode(raw as u16),
        }
    }

    /// Returns the function's index in the map of calls.
    pub const fn calls(self) -> u32 {
        self.slot * MAX_FUNCTIONS + self.function as u32
    }
}
