#![doc = include_str!("../README.md")]
#![allow(missing_docs, reason = "only this workspace uses it: a name and a type say what most of these are")]

mod generator;
mod pace;
mod prepare;
mod run;
mod scenario;
mod seen;
mod summary;

pub use run::{Arguments, one_cycle, run};
pub use seen::Testimony;
pub use summary::{Finished, beside};
