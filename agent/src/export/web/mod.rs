//! How HTTP is protected: TLS and passwords, in the format of Prometheus' exporter-toolkit.
//!
//! The file, and the certificates and keys that it names, are read again and again: a change takes
//! effect with the next connection (TLS) or request (passwords) once two looks have found the same. A
//! file that is just being written may be a valid one that asks for less. What cannot be used is
//! refused with the reason, and what was in force stays in force.
//!
//! Deliberately absent: of that format, what protects nothing (client certificates that nobody
//! verifies) and what is not about access (HTTP/2, headers, rate limits, cipher suites). It is
//! refused, not passed over.

mod access;
mod config;
mod error;
mod listener;
mod spec;
#[cfg(test)]
mod tests;
mod tls;
mod users;

pub use access::guard;
pub use config::{Web, WebConfig};
pub use listener::WebListener;
