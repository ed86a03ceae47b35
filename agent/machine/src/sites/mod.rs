//! Probe sites: where every call of a function passes ([`entry`]), the [`cheapest()`] place to read values at, and
//! where calls end ([`exits`]).

pub mod entry;
pub mod exits;
mod site;

pub use self::exits::{FoundExit, Way};
pub use self::site::{Calls, Candidate, Site, cheapest};
