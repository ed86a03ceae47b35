//! The pages, in plain HTML with drawings in SVG: they need no script, and nothing from another host.
//!
//! [`overview()`] shows all servers, [`server()`] one of them, and [`record`] what happened in a record. The library
//! that writes the HTML escapes all foreign text (names, paths, reasons).
//!
//! Deliberately absent: reading files and locking anything. A page is made from copies, in a thread that may take its
//! time.

mod calls;
mod chart;
mod columns;
mod drawing;
pub(crate) mod evidence;
mod facts;
mod felt;
mod frame;
mod functions;
pub(crate) mod heatmap;
mod overview;
mod panels;
mod record;
mod server;
mod strips;
#[cfg(test)]
mod tests;
mod text;

use evictscope_records::Record;
use evictscope_records::explain::explain;

pub use frame::CONTENT_SECURITY_POLICY;
use frame::Place;
pub use overview::overview;
pub use server::{ServerView, server};

/// Returns the page of a record. As a file of its own (`evictscope report`) it has no links to the agent.
pub fn record_page(record: &Record, is_file: bool) -> String {
    let place = if is_file { Place::File } else { Place::Kept };
    record::record(record, &explain(record), place)
}
