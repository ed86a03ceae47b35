//! Serves Prometheus metrics, pages and JSON over HTTP.
//!
//! Begin with [`Shared`]: the run loop publishes the state of the servers there; each scrape makes metrics of it, and each page
//! is drawn from a copy of it. `families` lists the families, and `http` the paths. What a request asks of a server's thread
//! (a record, a profile) goes through [`Requests`].
//!
//! It changes nothing of a server. Deliberately absent: timestamps on samples.

#![forbid(unsafe_code)]

mod app;
mod browsers;
mod burst_list;
mod complete;
mod connections;
#[cfg(test)]
mod documentation;
mod exported;
mod families;
#[cfg(test)]
mod fixture;
mod heatmap;
mod http;
mod lost;
mod page_routes;
mod pages;
mod profile_route;
mod record_routes;
mod requests;
mod shared;
mod timeline;
mod trouble;
mod unwatched;
pub mod version;
mod web_config;

pub use burst_list::rfc3339;
pub use exported::ExportedServer;
pub use families::families;
pub use http::{bind, serve};
pub use lost::{Lost, lost};
pub use pages::record_page;
pub use requests::{Request, Requests};
pub use shared::Shared;

pub use unwatched::{Reason, Unwatched};
pub use web_config::{Web, WebConfig};
