//! `GET /api/v1/timeline`: the last ten minutes of one server, as JSON, and `GET /heatmap.svg`: the same as a drawing.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use evictscope_telemetry::{BIN_NS, ClientBuffers, TimeBin, Timeline, microseconds};
use serde::Serialize;

use super::app::{App, Refusal, Which};
use crate::pages::heatmap;
use crate::published::exported::ExportedServer;
use crate::published::shared::Shared;
use crate::rfc3339::rfc3339;

/// The answer. What is not known is `null`.
#[derive(Debug, Serialize)]
pub(super) struct TimelineAnswer<'a> {
    server: &'a str,
    start: Option<String>,
    bin_seconds: f64,
    eviction_call_seconds: Vec<Option<f64>>,
    cpu_eviction_seconds: Vec<Option<f64>>,
    cpu_other_seconds: Vec<Option<f64>>,
    samples: Vec<Sample>,
}

#[derive(Debug, Serialize)]
struct Sample {
    time: Option<String>,
    used_memory_bytes: Option<u64>,
    client_buffers_bytes: Option<u64>,
    commands_processed: Option<u64>,
    clients_waiting: Option<u64>,
    longest_wait_seconds: Option<f64>,
    stall_seconds: Option<f64>,
}

impl<'a> TimelineAnswer<'a> {
    pub(super) fn of(server: &'a str, timeline: &Timeline, since_1970: Duration) -> Self {
        let seconds = |part: fn(TimeBin) -> u32| {
            let bins = timeline.bins();
            bins.map(|bin| Some(f64::from(part(bin?)) / 1e9)).collect()
        };
        let seconds_of = |time: Option<Duration>| time.map(|time| microseconds(time) as f64 / 1e6);
        let samples = timeline.samples(since_1970).map(|moment| Sample {
            time: rfc3339(moment.at),
            used_memory_bytes: moment.used_memory,
            client_buffers_bytes: moment.client_buffers.map(ClientBuffers::total),
            commands_processed: moment.commands,
            clients_waiting: moment.clients_waiting,
            longest_wait_seconds: seconds_of(moment.longest_wait),
            stall_seconds: seconds_of(moment.stalled),
        });
        Self {
            server,
            start: rfc3339(since_1970 + timeline.start()),
            bin_seconds: BIN_NS as f64 / 1e9,
            eviction_call_seconds: seconds(|bin| bin.evicting),
            cpu_eviction_seconds: seconds(|bin| bin.cpu_eviction),
            cpu_other_seconds: seconds(|bin| bin.cpu_other),
            samples: samples.collect(),
        }
    }
}

pub(super) async fn timeline(State(app): State<App>, Query(which): Query<Which>) -> Response {
    app.aside(move |shared| {
        let (server, timeline) = last_minutes(shared, &which)?;
        let answer = TimelineAnswer::of(&server.label, &timeline, server.since_1970);
        Ok(Json(answer).into_response())
    })
    .await
}

pub(super) async fn heat_map(State(app): State<App>, Query(which): Query<Which>) -> Response {
    app.aside(move |shared| {
        let (server, timeline) = last_minutes(shared, &which)?;
        let svg = heatmap::svg(&server.label, &timeline, server.since_1970)
            .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")))?;
        Ok(([(header::CONTENT_TYPE, "image/svg+xml")], svg))
    })
    .await
}

/// Returns the server that is asked for, and a copy of its last ten minutes: its thread must not wait for the answer.
fn last_minutes(shared: &Shared, which: &Which) -> Result<(Arc<ExportedServer>, Timeline), Refusal> {
    let server = which.of(shared)?;
    let timeline = server.timeline().map(|timeline| timeline.clone());
    let timeline = timeline.ok_or_else(|| {
        let text = "the evicting calls of this server are not seen; / says why\n";
        (StatusCode::NOT_FOUND, text.to_owned())
    })?;
    Ok((server, timeline))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::TimelineAnswer;
    use crate::fixture::timeline;

    #[test]
    fn the_answer_about_a_made_up_server() -> serde_json::Result<()> {
        let json = serde_json::to_string(&TimelineAnswer::of("6379", &timeline(), Duration::from_secs(1_700_000_000)))?;
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(json) });
        Ok(())
    }
}
