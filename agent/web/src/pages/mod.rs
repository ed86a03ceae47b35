//! The pages, in plain HTML with drawings in SVG: they need no script, and nothing from another host.
//!
//! [`overview()`] shows all servers, [`server()`] one of them, and [`record`] what happened in a record. The library
//! that writes the HTML escapes all foreign text (names, paths, reasons).
//!
//! Deliberately absent: reading files and locking anything. A page is made from copies, in a thread that may take its
//! time.

mod axis;
mod bursts;
mod chart;
mod columns;
mod facts;
mod felt;
mod frame;
mod functions;
mod heat;
pub(crate) mod heatmap;
mod ink;
mod latency;
mod links;
mod margins;
mod numbers;
mod overview;
mod panels;
mod phase_strip;
mod record;
mod server;
mod slow_calls;
mod span;
mod stall_strip;
mod table;
#[cfg(test)]
mod tests;
mod times;
mod work;

use evictscope_records::Record;
use evictscope_records::explain::explain;

pub use frame::CONTENT_SECURITY_POLICY;
use frame::Place;
pub use overview::{Overview, overview};
pub use server::{ServerView, server};

/// Returns the page of a record. As a file of its own (`evictscope report`) it has no links to the agent.
pub fn record_page(record: &Record, is_file: bool) -> String {
    let place = if is_file { Place::File } else { Place::Kept };
    record::record(record, &explain(record), place)
}
