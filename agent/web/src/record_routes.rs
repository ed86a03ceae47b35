//! `/api/v1/records`: lists records, returns one as JSON, and has one made of now.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use evictscope_records::{Listed, Occasion, Record, RecordId, StoreError};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::app::{App, Refusal, Which, too_many};
use super::burst_list::rfc3339;
use super::requests::Request;
use super::server::Shared;

/// How long a record of now may take: half a minute that it is about, and the disk.
const RECORD: Duration = Duration::from_secs(100);

/// The answer to a list.
#[derive(Debug, Serialize)]
struct RecordList<'a> {
    records: Vec<Entry<'a>>,
    unreadable: Vec<Unreadable>,
}

/// A record.
#[derive(Debug, Serialize)]
struct Entry<'a> {
    id: &'a RecordId,
    server: &'a str,
    occasion: Occasion,
    kind: Option<&'a str>,
    start: Option<String>,
    end: Option<String>,
    bytes: u64,
}

/// A file that is no record, or a damaged one.
#[derive(Debug, Serialize)]
struct Unreadable {
    file: String,
    bytes: u64,
    why: String,
}

impl<'a> RecordList<'a> {
    /// Lists the records of all servers, or of one.
    fn of(listed: &'a [Listed], only: Option<&str>) -> Self {
        let mut list = Self {
            records: Vec::new(),
            unreadable: Vec::new(),
        };
        for listed in listed {
            let bytes = listed.bytes;
            match &listed.summary {
                Ok(summary) if only.is_none_or(|label| summary.server == label) => {
                    list.records.push(Entry {
                        id: &summary.id,
                        server: &summary.server,
                        occasion: summary.occasion,
                        kind: summary.kind.as_deref(),
                        start: rfc3339(Duration::from_micros(summary.began_us)),
                        end: rfc3339(Duration::from_micros(summary.ended_us)),
                        bytes,
                    });
                }
                Ok(_) => {}
                Err(why) => list.unreadable.push(Unreadable {
                    file: listed.path.display().to_string(),
                    bytes,
                    why: why.clone(),
                }),
            }
        }
        list
    }
}

pub(super) async fn list(State(app): State<App>, Query(which): Query<Which>) -> Response {
    app.aside(move |shared| match listed(shared) {
        Ok(listed) => Json(RecordList::of(&listed, which.server.as_deref())).into_response(),
        Err(why) => unavailable(&why),
    })
    .await
}

pub(super) async fn one(State(app): State<App>, Path(id): Path<String>) -> Response {
    app.aside(move |shared| match read(shared, id) {
        Ok(record) => Json(record).into_response(),
        Err(refusal) => *refusal,
    })
    .await
}

/// Asks the server's thread for a record of now, and answers when it is written.
pub(super) async fn make(State(app): State<App>, Query(which): Query<Which>) -> Response {
    let servers = app.shared.servers().unwrap_or_default();
    let label = match which.of(&servers) {
        Ok(server) => server.label.clone(),
        Err(refusal) => return *refusal,
    };
    if let Err(why) = app.shared.keeper() {
        return unavailable(why);
    }
    let Some(_permit) = app.long() else {
        return too_many();
    };
    let (answer, answered) = oneshot::channel();
    if !app.shared.requests().ask(&label, Request::Record(answer)) {
        return too_many();
    }
    match timeout(RECORD, answered).await {
        Ok(Ok(Ok(id))) => {
            let location = [(header::LOCATION, format!("/api/v1/records/{id}"))];
            let id = serde_json::json!({ "id": id });
            (StatusCode::CREATED, location, Json(id)).into_response()
        }
        Ok(Ok(Err(why))) => unavailable(&why),
        Ok(Err(_)) => unavailable("the server has ended, or is not watched any more"),
        Err(_) => {
            let text = "no record was written in time; the agent's log may say why\n";
            (StatusCode::GATEWAY_TIMEOUT, text).into_response()
        }
    }
}

fn unavailable(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}

/// Returns all records, the newest first, or why there are none. Reads files.
pub(super) fn listed(shared: &Shared) -> Result<Vec<Listed>, String> {
    let keeper = shared.keeper()?;
    keeper.store().list().map_err(|error| error.to_string())
}

/// Returns a record, or the answer that says why not. Reads a file.
pub(super) fn read(shared: &Shared, id: String) -> Result<Record, Refusal> {
    let refused =
        |status: StatusCode, text: String| Box::new((status, format!("{text}\n")).into_response());
    let not_found = |text| refused(StatusCode::NOT_FOUND, text);
    // What is no name never gets into a path.
    let id = RecordId::try_from(id).map_err(|error| not_found(error.to_string()))?;
    let keeper = shared.keeper().map_err(|why| Box::new(unavailable(why)))?;
    keeper.store().read(&id).map_err(|error| match error {
        StoreError::NoSuchRecord(_) => not_found(format!("there is no record {id}")),
        error => refused(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    })
}
