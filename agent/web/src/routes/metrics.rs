//! `GET /metrics`: all metrics, in the text format of Prometheus.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus::core::Collector as _;
use prometheus::{TEXT_FORMAT, TextEncoder};

use super::app::App;
use crate::families::{families, loop_last_turn, records, servers_ended, servers_unwatched};

pub(super) async fn metrics(State(app): State<App>) -> Response {
    let mut all = families(app.shared.servers().as_deref().unwrap_or_default());
    let unwatched = app.shared.unwatched();
    all.extend(unwatched.as_deref().map(servers_unwatched));
    let (counts, ended) = (app.shared.endings(), app.shared.ended(None));
    all.extend(servers_ended(counts, &ended));
    all.extend(app.shared.last_turn().map(loop_last_turn));
    if let Ok(keeper) = app.shared.keeper() {
        all.extend(records(keeper.counts()));
    }
    all.extend(app.process.collect());
    match TextEncoder::new().encode_to_string(&all) {
        Ok(text) => {
            let content_type = format!("{TEXT_FORMAT}; charset=utf-8");
            ([(header::CONTENT_TYPE, content_type)], text).into_response()
        }
        Err(error) => {
            let text = format!("cannot encode the metrics: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    }
}
