//! The forms in which a profile is given away.

mod folded;

pub use folded::folded;
