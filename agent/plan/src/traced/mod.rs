//! The traced functions: what each one is, and where its probes go.
//!
//! A traced function is described in its own folder, and is one entry of [`TRACED`]. What is the same
//! for all of them is beside the folders: [`analysis`] (what is known of the executable), [`sites`]
//! (the entry, and the cheapest place to read quantities at) and [`exits`].

pub mod analysis;
pub mod eviction;
pub mod exits;
pub mod sites;

use crate::item::{Description, FunctionKind};
use crate::plan::TracedFunction;
use analysis::Analysis;

/// A function that a plan probes, and how it is planned for.
#[derive(Clone, Copy, Debug)]
pub struct Traced {
    /// What it is called, and what can be read of it.
    pub description: &'static Description,
    /// The texts that it is recognised by; [`Analysis::texts`] has them.
    pub texts: &'static [&'static str],
    /// Finds the function and the places of its probes. It notes what it does not find in
    /// [`Analysis::not_found`].
    pub plan: fn(&mut Analysis<'_, '_>, FunctionKind) -> Option<TracedFunction>,
}

/// The traced functions.
pub const TRACED: [Traced; 1] = [eviction::EVICTION_CALL];
