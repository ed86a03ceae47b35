//! `GET /debug/pprof/profile`: takes a profile of a server's main thread, for `go tool pprof` and Pyroscope.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use evictscope_records::profile::format::pprof;
use serde::Deserialize;

use super::app::{App, Refusal, Which};
use crate::published::requests::Request;

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

/// How to take it.
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
    let taken = app.ask(&server.label, length + EXTRA, "profile was taken", request);
    let profile = taken.await?;
    let packed = app.aside(move |_| {
        let headers = [
            (header::CONTENT_TYPE, "application/octet-stream"),
            (
                header::CONTENT_DISPOSITION,
                "attachment; filename=\"profile.pb.gz\"",
            ),
        ];
        let packed = pprof(&profile).map_err(|error| {
            let text = format!("cannot write the profile: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, text)
        })?;
        Ok((headers, packed))
    });
    Ok(packed.await)
}
