//! Probe sites: where every call of a function passes ([`entry`]), the [`cheapest`] place to read values at, and
//! where calls end ([`exits`], by `weights`).

pub mod calls;
pub mod cheapest;
pub mod entry;
pub mod exits;
pub mod site;
mod weights;
