//! Probe sites: where every call of a function passes ([`entry`]), the [`cheapest()`] place to read values at, and
//! where calls end ([`exits`]).

mod calls;
mod cheapest;
pub mod entry;
pub mod exits;
mod site;
mod weights;

pub use calls::Calls;
pub use cheapest::{Candidate, cheapest};
pub use exits::{FoundExit, Way};
pub use site::Site;
