//! `GET /debug/pprof/profile`: takes a profile of a server's main thread, for `go tool pprof` and Pyroscope.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use evictscope_records::profile::Profile;
use evictscope_records::profile::format::pprof;
use serde::Deserialize;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::app::{App, Which, too_many};
use super::requests::Request;

/// For how long a profile is taken where nothing else is asked for, in seconds, as Go's own servers do.
const SECONDS: u64 = 30;
/// The longest profile, in seconds.
const MOST_SECONDS: u64 = 120;
/// Samples a second of CPU time. Not 50, so as not to keep step with what a server does ten times a second.
const HZ: u32 = 49;
/// Each sample takes some 10 µs of the main thread.
const MOST_HZ: u32 = 99;
/// How long it may take to begin, to unwind the last samples and to find their names.
const EXTRA: Duration = Duration::from_secs(20);

/// What is asked for.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    server: Option<String>,
    seconds: Option<u64>,
    hz: Option<u32>,
}

pub(super) async fn profile(State(app): State<App>, Query(wanted): Query<Wanted>) -> Response {
    let (seconds, hz) = (wanted.seconds.unwrap_or(SECONDS), wanted.hz.unwrap_or(HZ));
    if !(1..=MOST_SECONDS).contains(&seconds) || !(1..=MOST_HZ).contains(&hz) {
        let text = format!("seconds is 1 to {MOST_SECONDS}, and hz is 1 to {MOST_HZ}\n");
        return (StatusCode::BAD_REQUEST, text).into_response();
    }
    let servers = app.shared.servers().unwrap_or_default();
    let which = Which {
        server: wanted.server,
    };
    let label = match which.of(&servers) {
        Ok(server) => server.label.clone(),
        Err(refusal) => return *refusal,
    };
    let Some(_permit) = app.long() else {
        return too_many();
    };
    let length = Duration::from_secs(seconds);
    let (answer, answered) = oneshot::channel();
    let request = Request::Profile { length, hz, answer };
    if !app.shared.requests().ask(&label, request) {
        return too_many();
    }
    let limit = length + EXTRA;
    let unavailable = |why: &str| (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"));
    match timeout(limit, answered).await {
        Ok(Ok(Ok(profile))) => app.aside(move |_| packed(&profile)).await,
        Ok(Ok(Err(why))) => unavailable(&why).into_response(),
        Ok(Err(_)) => {
            unavailable("the server has ended, or is not watched any more").into_response()
        }
        Err(_) => {
            let text = "no profile was taken in time; the agent's log may say why\n";
            (StatusCode::GATEWAY_TIMEOUT, text).into_response()
        }
    }
}

fn packed(profile: &Profile) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"profile.pb.gz\"",
        ),
    ];
    match pprof(profile) {
        Ok(bytes) => (headers, bytes).into_response(),
        Err(error) => {
            let text = format!("cannot write the profile: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    }
}
