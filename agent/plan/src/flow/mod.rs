//! The data flow: what every register and stack slot holds at every instruction.

mod arithmetic;
pub mod bits;
mod facts;
mod loops;
mod operands;
mod step;
mod substitution;

pub mod atom;
pub mod atoms;
pub mod condition;
pub mod cut;
pub mod execution;
pub mod flags;
pub mod machine;
pub mod paths;
pub mod reach;
pub mod recipe;
pub mod resolve;
pub mod result;
pub mod state;
pub mod value;

#[cfg(test)]
mod tests;
