//! The agent, end to end: on real servers under real load, its numbers against what they say about themselves.
//!
//! Needs root and BPF, so `cargo test` ignores these; `cargo xtask test` runs those in [`core`] if they can run, and
//! `cargo xtask test --all` those in [`long`] too, each in a process of its own and several at once, beside whatever
//! else the machine is doing. So nothing here depends on how fast the machine is: a test waits for what must happen,
//! and compares two observers of the same run.

mod bursts;
mod core;
mod counts;
mod long;
mod on_servers;
mod probed;
mod program;
