//! What a register can hold: sums of atoms, and conditions on them.

pub mod atoms;
pub mod condition;
pub mod flags;
mod truth;
pub mod value;
