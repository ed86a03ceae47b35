//! The traced functions: what each one is, and where its probes go.
//!
//! A traced function is described in its own folder, and is one entry of [`TRACED`]. Beside the
//! folders is what all of them use: [`analysis`] (what a folder has to say, and what is known of
//! the executable). [`named`] is apart: a function that a user names.

pub mod analysis;
pub mod eviction;
pub mod expire;
pub mod named;

use analysis::Traced;
use eviction::EVICTION_CALL;
use expire::EXPIRE_CYCLE;

/// The traced functions, by number: the programs know them by it (`evictscope_abi::EVICTION`,
/// `evictscope_abi::EXPIRE`).
pub const TRACED: [Traced; 2] = [EVICTION_CALL, EXPIRE_CYCLE];

// The maps have no entries for more.
const _: () = assert!(TRACED.len() <= evictscope_abi::MAX_FUNCTIONS as usize);
