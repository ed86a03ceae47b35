//! The execution of a whole function: where paths meet, and loops.

pub mod execution;
mod loops;
mod merging;
mod numbers;
