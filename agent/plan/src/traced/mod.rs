//! The traced functions: what each one is, and where its probes go.
//!
//! A traced function is described in its own folder, and is one entry of [`TRACED`]. What is the same
//! for all of them is beside the folders: [`analysis`] (what is known of the executable), [`sites`]
//! (the entry, and the cheapest place to read quantities at) and [`exits`].

pub mod analysis;
mod definition;
pub mod eviction;
pub mod exits;
pub mod sites;

pub use definition::Traced;

/// The traced functions.
pub const TRACED: [Traced; 1] = [eviction::EVICTION_CALL];
