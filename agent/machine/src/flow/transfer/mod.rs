//! What one instruction does to a state.

pub mod operands;
mod step;
mod vector;
