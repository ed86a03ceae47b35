//! `GET /api/v1/timeline`: the last ten minutes of one server, as JSON, and `GET /heatmap.svg`: the same as a drawing.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use evictscope_model::UnixTime;
use evictscope_model::answers::{TimelineAnswer, TimelineSample};
use evictscope_telemetry::{BIN_NS, ClientBuffers, TimeBin, Timeline, microseconds};

use super::app::{App, Refusal, Which};
use crate::pages::heatmap;
use crate::published::exported::ExportedServer;
use crate::published::shared::Shared;

fn answer(server: &str, timeline: &Timeline, since_1970: Duration) -> TimelineAnswer {
    let seconds = |part: fn(TimeBin) -> u32| timeline.bins().map(|bin| Some(f64::from(part(bin?)) / 1e9)).collect();
    let seconds_of = |time: Option<Duration>| time.map(|time| microseconds(time) as f64 / 1e6);
    let samples = timeline.samples(since_1970).map(|moment| TimelineSample {
        time: UnixTime::new(moment.at),
        used_memory_bytes: moment.used_memory,
        client_buffers_bytes: moment.client_buffers.map(ClientBuffers::total),
        commands_processed: moment.commands,
        clients_waiting: moment.clients_waiting,
        longest_wait_seconds: seconds_of(moment.longest_wait),
        stall_seconds: seconds_of(moment.stalled),
    });
    TimelineAnswer {
        server: server.to_owned(),
        start: UnixTime::new(since_1970 + timeline.start()),
        bin_seconds: BIN_NS as f64 / 1e9,
        eviction_call_seconds: seconds(|bin| bin.evicting),
        cpu_eviction_seconds: seconds(|bin| bin.cpu_eviction),
        cpu_other_seconds: seconds(|bin| bin.cpu_other),
        samples: samples.collect(),
    }
}

pub(super) async fn timeline(State(app): State<App>, Query(which): Query<Which>) -> Response {
    app.aside(move |shared| {
        let (server, timeline) = last_minutes(shared, &which)?;
        Ok(Json(answer(&server.label, &timeline, server.since_1970)))
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

    use super::answer;
    use crate::fixture::timeline;

    #[test]
    fn the_answer_about_a_made_up_server() -> serde_json::Result<()> {
        let json = serde_json::to_string(&answer("6379", &timeline(), Duration::from_secs(1_700_000_000)))?;
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(json) });
        Ok(())
    }
}
