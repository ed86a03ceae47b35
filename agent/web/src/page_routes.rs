//! Answers `/`, `/server/NAME` and `/bursts/ID`. What they show is copied first, and drawn in another thread.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse as _, Response};
use evictscope_records::Listed;
use serde::Deserialize;

use super::app::{App, no_such_server};
use super::pages::{self, Overview, ServerView};
use super::record_routes::{listed, read};
use super::server::Shared;

/// A page is loaded again no more often than this, in seconds: drawing it takes CPU time.
const FASTEST_REFRESH: u32 = 5;

/// How a page is to be shown.
#[derive(Debug, Deserialize)]
pub(super) struct Shown {
    /// After how many seconds it is loaded again.
    refresh: Option<u32>,
}

impl Shown {
    fn refresh(&self) -> Option<u32> {
        self.refresh.map(|seconds| seconds.max(FASTEST_REFRESH))
    }
}

pub(super) async fn overview(State(app): State<App>, Query(shown): Query<Shown>) -> Response {
    app.aside(move |shared| {
        let (servers, unwatched) = (shared.servers(), shared.unwatched());
        let records = listed(shared);
        let page = pages::overview(
            &Overview {
                servers: servers.as_deref(),
                unwatched: &unwatched.unwrap_or_default(),
                records: records.as_deref().map_err(String::as_str),
            },
            shown.refresh(),
        );
        Html(page).into_response()
    })
    .await
}

pub(super) async fn server(
    State(app): State<App>,
    Path(label): Path<String>,
    Query(shown): Query<Shown>,
) -> Response {
    app.aside(move |shared| server_page(shared, &label, &shown))
        .await
}

fn server_page(shared: &Shared, label: &str, shown: &Shown) -> Response {
    let servers = shared.servers().unwrap_or_default();
    let server = servers
        .iter()
        .map(Arc::as_ref)
        .find(|server| server.label == label);
    let timeline = server.and_then(|server| Some(server.timeline()?.clone()));
    let records = listed(shared).map(|mut records| {
        records.retain(|listed| is_of(listed, label));
        records
    });
    let has_records = records.as_ref().is_ok_and(|records| !records.is_empty());
    if server.is_none() && !has_records {
        return no_such_server(label);
    }
    let page = pages::server(
        &ServerView {
            label,
            server,
            timeline: timeline.as_ref(),
            records: records.as_deref().map_err(String::as_str),
        },
        shown.refresh(),
    );
    Html(page).into_response()
}

/// Tells whether a file is a record of that server.
fn is_of(listed: &Listed, label: &str) -> bool {
    let summary = listed.summary.as_ref();
    summary.is_ok_and(|summary| summary.server == label)
}

pub(super) async fn record(State(app): State<App>, Path(id): Path<String>) -> Response {
    app.aside(move |shared| match read(shared, id) {
        Ok(record) => Html(pages::record_page(&record, false)).into_response(),
        Err(refusal) => *refusal,
    })
    .await
}

/// Answers what is nowhere.
pub(super) async fn nothing() -> (StatusCode, &'static str) {
    let text = "not found; / lists the servers, and metrics are at /metrics\n";
    (StatusCode::NOT_FOUND, text)
}
