//! What the tests and the developer tasks start and read.
//!
//! Whatever is started here ends with its owner, by its process id.

#![allow(missing_docs, reason = "only this workspace uses it: a name and a type say what most of these return")]

pub mod agent;
pub mod cache;
pub mod compiler;
pub mod debian;
pub mod libraries;
pub mod loopback;
pub mod podman;
pub mod process;
pub mod prometheus;
pub mod redis;
pub mod root;
pub mod scrape;
pub mod servers;
pub mod service;
pub mod skip;
pub mod target;
pub mod text;
pub mod threads;
pub mod wait;
pub mod workspace;
