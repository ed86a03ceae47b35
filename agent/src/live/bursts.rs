//! What is shown of each finished burst in one line.

use evictscope_records::text::{bytes, count, or_unknown, seconds};
use serde::Deserialize;

use super::columns::{Cell, Column};

/// The shown fields of a finished burst in the API's list.
#[derive(Clone, Debug, Deserialize)]
pub struct Burst {
    pub server: String,
    start: Option<String>,
    duration_seconds: f64,
    reclaim_seconds: f64,
    evicted_keys: Option<f64>,
    stalled_seconds: Option<f64>,
    client_buffers_before_bytes: Option<f64>,
    client_buffers_peak_bytes: Option<f64>,
    reclaimed_bytes: Option<f64>,
    kind: String,
}

/// The columns, the most important ones first.
pub const COLUMNS: [Column<Burst>; 9] = [
    Column::text("START", "2026-11-21T08:14:23.070Z".len(), |burst| {
        or_unknown(burst.start.as_ref(), String::clone).into()
    }),
    Column::text("KIND", SELF_AMPLIFYING.len(), |burst| Cell {
        text: burst.kind.clone(),
        is_alarming: burst.kind == SELF_AMPLIFYING,
    }),
    Column::number("LASTED", 7, |burst| seconds(burst.duration_seconds).into()),
    Column::number("EVICTED", 7, |burst| {
        or_unknown(burst.evicted_keys, count).into()
    }),
    Column::number("STALLED", 7, |burst| {
        or_unknown(burst.stalled_seconds, seconds).into()
    }),
    Column::number("RECLAIM", 7, |burst| seconds(burst.reclaim_seconds).into()),
    Column::number("RECLAIMED", 9, |burst| {
        or_unknown(burst.reclaimed_bytes, bytes).into()
    }),
    Column::number("BUFFERS", 8, |burst| {
        or_unknown(burst.client_buffers_before_bytes, bytes).into()
    }),
    Column::number("PEAK", 8, |burst| {
        or_unknown(burst.client_buffers_peak_bytes, bytes).into()
    }),
];

const SELF_AMPLIFYING: &str = "self_amplifying";
