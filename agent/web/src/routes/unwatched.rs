//! `GET /api/v1/unwatched`: the servers that run here and are not watched, as JSON.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;

use super::app::App;

pub(super) async fn unwatched(State(app): State<App>) -> impl IntoResponse {
    let unwatched = app.shared.unwatched().unwrap_or_default();
    Json(BTreeMap::from([("unwatched", unwatched)]))
}
