//! What the tests and the developer tasks start and read.
//!
//! Whatever is started here ends with its owner, by its process id.

pub mod agent;
pub mod burst;
pub mod cache;
pub mod clock;
pub mod code;
pub mod compiler;
pub mod cores;
pub mod debian;
pub mod evictions;
mod http;
pub mod own_build;
pub mod owned;
pub mod podman;
pub mod port;
pub mod process;
pub mod program;
pub mod progress;
pub mod prometheus;
pub mod redis;
pub mod root;
pub mod schedstat;
pub mod scrape;
pub mod servers;
pub mod service;
pub mod silent_files;
pub mod skip;
pub mod stopped;
pub mod text;
pub mod wait;
pub mod workspace;
