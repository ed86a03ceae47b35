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

use evictscope_records::explain::explain;
use evictscope_records::{Listed, Record, Summary};

pub use frame::CONTENT_SECURITY_POLICY;
use frame::Place;
pub use overview::overview;
pub use server::{ServerView, server};

/// Returns the page of a record. As a file of its own (`evictscope report`) it has no links to the agent.
pub fn record_page(record: &Record, is_file: bool) -> String {
    let place = if is_file { Place::File } else { Place::Kept };
    record::record(record, &explain(record), place, &[])
}

/// Returns the page of a record of these, which are kept, the newest first. It links to those before and after it.
pub fn record_page_among(record: &Record, kept: &[Listed]) -> String {
    let is_its = |summary: &&Summary| summary.server == record.server.label;
    let kept = Vec::from_iter(kept.iter().filter_map(|listed| listed.summary.as_ref().ok()).filter(is_its));
    let at = kept.iter().position(|summary| summary.id == record.id).unwrap_or(kept.len());
    let later = at.checked_sub(1).and_then(|later| kept.get(later)).map(|later| ("the record after it", *later));
    let earlier = kept.get(at + 1).map(|earlier| ("the record before it", *earlier));
    let links = Vec::from_iter(earlier.into_iter().chain(later));
    record::record(record, &explain(record), Place::Kept, &links)
}
