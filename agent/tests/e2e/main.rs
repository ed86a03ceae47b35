//! The agent, end to end: on real servers under real load, its numbers against what they say about themselves.
//!
//! Needs root and BPF, so `cargo test` ignores these; `cargo xtask test` runs those in [`core`] if they can run, and
//! `cargo xtask test --all` those in [`long`] too, each in a process of its own and several at once, beside whatever
//! else the machine is doing. So nothing here depends on how fast the machine is: a test waits for what must happen,
//! and compares two observers of the same run.

mod code;
mod podman;
mod probed;
mod silent_files;

/// What nearly every test uses.
mod prelude {
    pub use anyhow::{Context as _, ensure};
    pub use evictscope_testkit::agent::{Agent, evictscope};
    pub use evictscope_testkit::process::Owned;
    pub use evictscope_testkit::redis::{PrivateBuild, Redis};
    pub use evictscope_testkit::scrape::Scrape;
    pub use evictscope_testkit::wait::{until, until_true};
    pub use rustix::process::Signal;

    pub use crate::code::Code;
}

/// What the project is for.
mod core {
    mod alert;
    pub mod budget;
    mod commands;
    mod expire;
    pub mod hostile;
    pub mod killed;
    pub mod lifecycle;
    mod losses;
    mod memory;
    pub mod numbers;
    pub mod pages;
    mod peers;
    pub mod phases;
    pub mod records;
    mod replaced;
}

/// What takes long, or needs more of the machine than a server and the agent.
mod long {
    mod auto;
    mod candidate;
    mod clock;
    mod containers;
    mod ended;
    mod faults;
    mod forms;
    mod hostile;
    mod keys;
    mod limit;
    mod locks;
    mod members;
    mod profile;
    mod selftest;
    mod service;
    mod surroundings;
    mod trace;
    mod unrun;
    mod waits;
    mod web;
}
