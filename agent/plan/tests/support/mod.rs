//! What the tests of whole plans share.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod dwarf;
pub mod servers;
