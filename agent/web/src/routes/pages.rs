//! Answers `/`, `/server/NAME` and `/bursts/ID`. What they show is copied first, and drawn in another thread.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{Html, Redirect, Response};
use serde::Deserialize;

use super::app::{App, Refusal, no_such_server};
use super::records::{listed, make, read};
use crate::pages::{self, ServerView};

/// A page is loaded again no more often than this, in seconds: drawing it takes CPU time.
const FASTEST_REFRESH: u32 = 5;

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
        let records = records.as_deref().map_err(String::as_str);
        Ok(Html(pages::overview(servers.as_deref(), &unwatched.unwrap_or_default(), records, shown.refresh())))
    })
    .await
}

pub(super) async fn server(State(app): State<App>, Path(label): Path<String>, Query(shown): Query<Shown>) -> Response {
    app.aside(move |shared| {
        let servers = shared.servers().unwrap_or_default();
        let server = servers.iter().find(|server| server.label == label);
        let timeline = server.and_then(|server| Some(server.timeline()?.clone()));
        let records = listed(shared).map(|mut records| {
            records.retain(|listed| listed.summary.as_ref().is_ok_and(|summary| summary.server == label));
            records
        });
        let has_records = records.as_ref().is_ok_and(|records| !records.is_empty());
        let ended = shared.ended(Some(&label));
        if server.is_none() && ended.is_empty() && !has_records {
            return Err(no_such_server(&label));
        }
        let view = ServerView {
            label: &label,
            server: server.map(Arc::as_ref),
            ended: ended.first().map(Arc::as_ref),
            timeline: timeline.as_ref(),
            records: records.as_deref().map_err(String::as_str),
        };
        Ok(Html(pages::server(&view, shown.refresh())))
    })
    .await
}

/// Has a record made of now, and then shows it.
pub(super) async fn make_record(State(app): State<App>, Path(label): Path<String>) -> Result<Redirect, Refusal> {
    let id = make(&app, Some(label)).await?;
    Ok(Redirect::to(&format!("/bursts/{id}")))
}

pub(super) async fn record(State(app): State<App>, Path(id): Path<String>) -> Response {
    app.aside(move |shared| Ok(Html(pages::record_page_among(&read(shared, id)?, &listed(shared).unwrap_or_default()))))
        .await
}

pub(super) async fn nothing() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "not found; / lists the servers, and metrics are at /metrics\n")
}
