//! The data flow: what every register and stack slot holds at every instruction.

pub mod execute;
pub mod facts;
pub mod machine;
pub mod paths;
pub mod reach;
pub mod state;
pub mod value;
