//! Serves Prometheus metrics, pages and JSON over HTTP.
//!
//! Begin with [`Shared`]: the run loop publishes the state of the servers there; each scrape makes metrics from it, and
//! each page is drawn from a copy of it. `families` lists the families, and `routes` the paths. What a request asks of
//! a server's thread (a record, a profile) goes through [`Requests`].
//!
//! It never changes a server. Deliberately absent: timestamps on samples.

#![forbid(unsafe_code)]

mod families;
#[cfg(test)]
mod fixture;
mod http;
mod pages;
mod published;
mod routes;
pub mod version;
mod web_config;

pub use families::families;
pub use http::server::{bind, serve};
pub use pages::record_page;
pub use published::exported::ExportedServer;
pub use published::requests::{Request, Requests};
pub use published::shared::Shared;
pub use web_config::{Web, WebConfig};
