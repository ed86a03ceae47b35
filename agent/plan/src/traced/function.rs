//! What makes a function a traced one.

use crate::item::{Description, FunctionKind};
use crate::plan::TracedFunction;
use crate::traced::analysis::Analysis;

/// A function that a plan probes, and how it is planned for.
#[derive(Clone, Copy, Debug)]
pub struct Traced {
    /// What it is called, and what can be read of it.
    pub description: &'static Description,
    /// The texts that it is recognised by; [`Analysis::texts`] has their places.
    pub texts: &'static [&'static str],
    /// Finds the function and the places of its probes. It notes what it does not find in
    /// [`Analysis::not_found`].
    pub plan: fn(&mut Analysis<'_, '_>, FunctionKind) -> Option<TracedFunction>,
}
