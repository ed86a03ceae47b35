//! A profile: which functions the main thread of a server ran, and the forms in which that is given away.
//!
//! Deliberately absent: taking one.

pub mod format;
mod taken;

pub use taken::{Activity, Profile, Stack};
