//! Serves Prometheus metrics, pages and JSON over HTTP.
//!
//! Begin with [`Shared`]: the run loop publishes the state of the servers there; each scrape makes metrics from it, and
//! each page is drawn from a copy of it. `families` lists the families, and `routes` the paths. What a request asks of
//! a server's thread (a record, a profile) goes through [`Requests`].
//!
//! It never changes a server. Deliberately absent: timestamps on samples.

#![forbid(unsafe_code)]

mod exported;
mod families;
#[cfg(test)]
mod fixture;
mod http;
mod pages;
mod routes;
mod shared;
pub mod version;
mod web_config;

pub use exported::{ExportedServer, KeyLosses};
pub use families::families;
pub use http::{bind, serve};
pub use pages::record_page;
pub use shared::{Request, Requests, Shared};
pub use web_config::{Web, WebConfig};
