//! The data flow: what every register and stack slot holds at every instruction.

pub mod cut;
pub mod execute;
pub mod facts;
pub mod machine;
pub mod paths;
pub mod reach;
pub mod recipe;
pub mod resolve;
pub mod result;
pub mod state;
pub mod value;
