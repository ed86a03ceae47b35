//! The pages, in plain HTML with drawings in SVG: they need no script, and nothing from another host.

use crate::records::Record;

/// Returns the page of a record. As a file of its own (`evictscope report`) it has no links to the agent.
pub fn record_page(record: &Record, is_file: bool) -> String {
    let _ = (record, is_file);
    todo!()
}
