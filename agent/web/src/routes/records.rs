//! `/api/v1/records`: lists records, returns one as JSON, and has one made of now.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use evictscope_model::UnixTime;
use evictscope_model::answers::RecordMade;
use evictscope_records::profile::format::pprof;
use evictscope_records::{Listed, Record, RecordId, StoreError};
use serde::Deserialize;
use serde_json::{Value, json};

use super::app::{App, Refusal, Which, unavailable};
use crate::shared::{Request, Shared};

/// How long a record of now may take: the half minute that it still has to cover, and the disk.
const RECORD: Duration = Duration::from_secs(100);

/// Lists the records of all servers, or of one, and the files that are not records or damaged.
fn list_of(listed: &[Listed], only: Option<&str>) -> Value {
    let (mut records, mut unreadable) = (Vec::new(), Vec::new());
    for Listed { path, bytes, summary } in listed {
        match summary {
            Ok(summary) if only.is_none_or(|label| summary.server == label) => records.push(json!({
                "id": summary.id,
                "server": summary.server,
                "occasion": summary.occasion,
                "kind": summary.kind,
                "start": UnixTime::new(Duration::from_micros(summary.began_us)),
                "end": UnixTime::new(Duration::from_micros(summary.ended_us)),
                "bytes": bytes,
            })),
            Ok(_) => {}
            Err(why) => unreadable.push(json!({ "file": path.display().to_string(), "bytes": bytes, "why": why })),
        }
    }
    json!({ "records": records, "unreadable": unreadable })
}

pub(super) async fn list(State(app): State<App>, Query(which): Query<Which>) -> Response {
    app.aside(move |shared| {
        let listed = listed(shared).map_err(|why| unavailable(&why))?;
        Ok(Json(list_of(&listed, which.server.as_deref())))
    })
    .await
}

pub(super) async fn one(State(app): State<App>, Path(id): Path<String>) -> Response {
    app.aside(move |shared| read(shared, id).map(Json)).await
}

/// Asks a server's thread for a record of now, and waits until it is written.
pub(super) async fn make(app: &App, server: Option<String>) -> Result<RecordId, Refusal> {
    let server = Which { server }.of(&app.shared)?;
    app.shared.keeper().map_err(unavailable)?;
    app.ask(&server.label, RECORD, "record was written", Request::Record).await
}

pub(super) async fn post(State(app): State<App>, Query(which): Query<Which>) -> Result<impl IntoResponse, Refusal> {
    let id = make(&app, which.server).await?;
    Ok((StatusCode::CREATED, [(header::LOCATION, format!("/api/v1/records/{id}"))], Json(RecordMade { id })))
}

/// Returns all records, the newest first, or why there are none. Reads files.
pub(super) fn listed(shared: &Shared) -> Result<Vec<Listed>, String> {
    shared.keeper()?.store().list().map_err(|error| error.to_string())
}

/// Returns a record, or the answer that says why not. Reads a file.
pub(super) fn read(shared: &Shared, id: String) -> Result<Record, Refusal> {
    let not_found = |text| (StatusCode::NOT_FOUND, format!("{text}\n"));
    // Only a valid name ever gets into a path.
    let id = RecordId::try_from(id).map_err(|error| not_found(error.to_string()))?;
    shared.keeper().map_err(unavailable)?.store().read(&id).map_err(|error| match error {
        StoreError::NoSuchRecord(_) => not_found(format!("there is no record {id}")),
        error => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    })
}

/// How long a profile takes by default, in seconds, as in Go's own servers.
const SECONDS: u64 = 30;
/// The longest profile, in seconds.
const MOST_SECONDS: u64 = 120;
/// Samples a second of CPU time. Not 50, so as not to keep step with what a server does ten times a second.
const HZ: u32 = 49;
/// Each sample takes some 10 µs of the main thread.
const MOST_HZ: u32 = 99;
/// How long it may take to begin, to unwind the last samples and to find their names.
const EXTRA: Duration = Duration::from_secs(20);

#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    seconds: Option<u64>,
    hz: Option<u32>,
}

pub(super) async fn profile(
    State(app): State<App>,
    Query(which): Query<Which>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Refusal> {
    let (seconds, hz) = (wanted.seconds.unwrap_or(SECONDS), wanted.hz.unwrap_or(HZ));
    if !(1..=MOST_SECONDS).contains(&seconds) || !(1..=MOST_HZ).contains(&hz) {
        let text = format!("seconds is 1 to {MOST_SECONDS}, and hz is 1 to {MOST_HZ}\n");
        return Err((StatusCode::BAD_REQUEST, text));
    }
    let server = which.of(&app.shared)?;
    let length = Duration::from_secs(seconds);
    let request = |answer| Request::Profile { length, hz, answer };
    let profile = app.ask(&server.label, length + EXTRA, "profile was taken", request).await?;
    let packed = app.aside(move |_| {
        let headers = [
            (header::CONTENT_TYPE, "application/octet-stream"),
            (header::CONTENT_DISPOSITION, "attachment; filename=\"profile.pb.gz\""),
        ];
        let packed = pprof(&profile)
            .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, format!("cannot write the profile: {error}\n")))?;
        Ok((headers, packed))
    });
    Ok(packed.await)
}
