//! The traced functions: what each one is, and where its probes go.
//!
//! A traced function is described in its own folder, and is one entry of [`TRACED`]. Beside the
//! folders is what all of them use: [`analysis`] (what a folder has to say, and what is known of
//! the executable), [`sites`] (the entry, and the cheapest place to read quantities at) and
//! [`exits`], by [`weights`]. [`named`] is apart: a function that a user names.

pub mod analysis;
pub mod eviction;
pub mod exits;
pub mod named;
pub mod sites;
mod weights;

use analysis::Traced;
use eviction::EVICTION_CALL;

/// The traced functions, by number. The eviction call is first: the programs know it by that number
/// (`evictscope_abi::EVICTION`).
pub const TRACED: [Traced; 1] = [EVICTION_CALL];

// The maps have no entries for more.
const _: () = assert!(TRACED.len() <= evictscope_abi::MAX_FUNCTIONS as usize);
