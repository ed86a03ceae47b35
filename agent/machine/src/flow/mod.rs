//! The data flow: what every register and stack slot holds at every instruction.

mod bits;
mod loops;
mod operands;
mod step;
mod truth;

pub mod atom;
pub mod atoms;
pub mod condition;
pub mod counted;
pub mod cut;
pub mod execution;
pub mod factor;
pub mod flags;
pub mod machine;
pub mod paths;
pub mod quotient;
pub mod recipe;
pub mod resolve;
pub mod result;
pub mod returned;
pub mod state;
pub mod value;

#[cfg(test)]
mod tests;
