//! Probe sites: where every call of a function passes, the [`cheapest()`] place to read values at, and where calls end
//! ([`exits`]).

pub mod exits;
pub(crate) mod site;

pub use self::exits::{FoundExit, Way};
pub use self::site::{Calls, Site, SiteCandidate, cheapest, entry_of_every_call, entry_of_named};
