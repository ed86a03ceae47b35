//! What others ask of an executed function.

pub mod accesses;
pub mod cut;
pub mod interpreter;
pub mod operand;
pub mod quotient;
pub mod recipe;
pub mod returns;
