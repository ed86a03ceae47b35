//! The traced functions: what each one is, and where its probes go.
//!
//! Each traced function is described in its own folder, and is one entry of [`TRACED`]. All of them
//! use [`analysis`] (what a folder must provide, and what is known about the executable).

pub mod analysis;
pub mod eviction;
pub mod expire;

use analysis::Traced;
use eviction::EVICTION_CALL;
use expire::EXPIRE_CYCLE;

/// The traced functions, in the order of the numbers by which the programs know them
/// (`evictscope_abi::EVICTION`, `evictscope_abi::EXPIRE`).
pub const TRACED: [Traced; 2] = [EVICTION_CALL, EXPIRE_CYCLE];

// The maps have no entries for more.
const _: () = assert!(TRACED.len() <= evictscope_abi::MAX_FUNCTIONS as usize);
