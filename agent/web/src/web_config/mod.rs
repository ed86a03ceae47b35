//! How HTTP is protected: TLS and passwords, in the format of Prometheus' exporter-toolkit.
//!
//! The file, and the certificates and keys that it names, are read every two seconds. A change takes effect with the
//! next connection (TLS) or request (passwords), once two reads have found the same: a half-written file may be a valid
//! one that asks for less. Files that cannot be used, or that protect nothing, are refused with the reason, and the
//! last usable ones stay in force.
//!
//! Deliberately absent: settings of that format that protect nothing (client certificates that nobody
//! verifies) or are not about access (HTTP/2, headers, rate limits, cipher suites). They are refused,
//! not ignored.

mod access;
mod config;
mod host_names;
mod spec;
#[cfg(test)]
pub mod tests;
mod tls;
mod users;

pub use access::{Requesters, guard, guard_requests};
pub use config::{Web, WebConfig};
