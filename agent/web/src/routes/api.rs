//! `GET /metrics`, in the text format of Prometheus; as JSON the last finished bursts, `/api/v1/bursts`, and of one
//! server the last ten minutes, `/api/v1/timeline`, of which `/heatmap.svg` is a drawing, its own counters of commands,
//! `/api/v1/commands`, who its clients are, `/api/v1/peers`, and where its time and memory went, `/api/v1/evidence`.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use evictscope_model::UnixTime;
use evictscope_model::answers::{
    BurstList, CommandTotals, CommandsAnswer, DatedPeers, ListedBurst, PeersAnswer, PeersSeen, TimelineAnswer,
    TimelineSample,
};
use evictscope_records::RecordId;
use evictscope_telemetry::{BIN_NS, ClientBuffers, CommandCounts, TimeBin, Timeline, microseconds};
use prometheus::core::Collector as _;
use prometheus::{TEXT_FORMAT, TextEncoder};

use super::app::{App, Refusal, Which};
use crate::exported::ExportedServer;
use crate::families::{families, loop_last_turn, records, servers_ended, servers_unwatched};
use crate::pages::{evidence as tables, heatmap};
use crate::shared::Shared;

pub(super) async fn metrics(State(app): State<App>) -> Response {
    let mut all = families(app.shared.servers().as_deref().unwrap_or_default());
    all.extend(app.shared.unwatched().as_deref().map(servers_unwatched));
    let (counts, ended) = (app.shared.endings(), app.shared.ended(None));
    all.extend(servers_ended(counts, &ended));
    all.extend(app.shared.last_turn().map(loop_last_turn));
    if let Ok(keeper) = app.shared.keeper() {
        all.extend(records(keeper.counts(), &keeper.causes()));
    }
    all.extend(app.process.collect());
    all.retain(|family| !family.get_metric().is_empty());
    match TextEncoder::new().encode_to_string(&all) {
        Ok(text) => ([(header::CONTENT_TYPE, format!("{TEXT_FORMAT}; charset=utf-8"))], text).into_response(),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("cannot encode the metrics: {error}\n")).into_response()
        }
    }
}

/// Lists the finished bursts of these servers, some of which may have ended; for each, the oldest first.
fn burst_list(servers: &[Arc<ExportedServer>]) -> BurstList {
    let of_server = |server: &Arc<ExportedServer>| {
        let listed = |(burst, record): (_, Option<&RecordId>)| {
            ListedBurst::new(&server.label, burst, record.map(RecordId::to_string))
        };
        server.bursts().map(listed).collect::<Vec<_>>()
    };
    BurstList { bursts: servers.iter().flat_map(of_server).collect() }
}

pub(super) async fn bursts(State(app): State<App>, Query(which): Query<Which>) -> Result<Response, Refusal> {
    // Ended servers come first: they ran earlier.
    let mut servers = app.shared.ended(which.server.as_deref());
    match which.server {
        None => servers.extend(app.shared.servers().unwrap_or_default()),
        Some(_) => match which.of(&app.shared) {
            Ok(server) => servers.push(server),
            Err(why) if servers.is_empty() => return Err(why),
            Err(_) => {}
        },
    }
    Ok(Json(burst_list(&servers)).into_response())
}

pub(super) async fn peers(State(app): State<App>, Query(which): Query<Which>) -> Result<Response, Refusal> {
    let server = which.of(&app.shared)?;
    let dated = |(at, seen): (Duration, &PeersSeen)| DatedPeers {
        time: UnixTime::new(server.since_1970 + at),
        seen: seen.clone(),
    };
    let peers = &server.state.peers;
    Ok(Json(PeersAnswer {
        server: server.label.clone(),
        now: peers.last().map(dated),
        worst: peers.worst.between(Duration::ZERO, Duration::MAX).into_iter().map(dated).collect(),
    })
    .into_response())
}

fn timeline_answer(server: &str, timeline: &Timeline, since_1970: Duration) -> TimelineAnswer {
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
        Ok(Json(timeline_answer(&server.label, &timeline, server.since_1970)))
    })
    .await
}

pub(super) async fn commands(State(app): State<App>, Query(which): Query<Which>) -> Result<Response, Refusal> {
    let server = which.of(&app.shared)?;
    let log = server.commands().ok_or_else(|| {
        (StatusCode::NOT_FOUND, "the counters of this server's commands are not known; its page says why\n".to_owned())
    })?;
    let totals = |(command, counts): (&str, CommandCounts)| CommandTotals {
        command: command.to_owned(),
        calls: counts.calls,
        microseconds: counts.us,
        rejected_calls: counts.rejected,
        failed_calls: counts.failed,
    };
    let answer = CommandsAnswer {
        server: server.label.clone(),
        time: log.at.and_then(|at| UnixTime::new(server.since_1970 + at)),
        commands: log.counts().filter(|(_, counts)| *counts != CommandCounts::default()).map(totals).collect(),
        other_calls: log.others(),
    };
    Ok(Json(answer).into_response())
}

pub(super) async fn evidence(State(app): State<App>, Query(which): Query<Which>) -> Response {
    app.aside(move |shared| {
        let server = which.of(shared)?;
        let timeline = server.timeline().map(|timeline| timeline.clone());
        let moments = timeline.map(|timeline| timeline.moments(Duration::ZERO, Duration::MAX, server.since_1970));
        Ok(Json(tables::answer(&server, &moments.unwrap_or_default())))
    })
    .await
}

pub(super) async fn heat_map(State(app): State<App>, Query(which): Query<Which>) -> Response {
    app.aside(move |shared| {
        let (server, timeline) = last_minutes(shared, &which)?;
        let svg = heatmap::svg(&server.label, &timeline, server.since_1970);
        Ok(([(header::CONTENT_TYPE, "image/svg+xml")], svg))
    })
    .await
}

/// Returns the server that is asked for, and a copy of its last ten minutes: its thread must not wait for the answer.
fn last_minutes(shared: &Shared, which: &Which) -> Result<(Arc<ExportedServer>, Timeline), Refusal> {
    let server = which.of(shared)?;
    let timeline = server.timeline().map(|timeline| timeline.clone()).ok_or_else(|| {
        (StatusCode::NOT_FOUND, "the evicting calls of this server are not seen; / says why\n".to_owned())
    })?;
    Ok((server, timeline))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use evictscope_telemetry::BrokenInvariant;

    use super::{burst_list, timeline_answer};
    use crate::ExportedServer;
    use crate::fixture::{busy_server, new_server, timeline};

    #[test]
    fn the_list_of_a_made_up_server() -> serde_json::Result<()> {
        let servers = [Arc::new(busy_server())];
        let json = serde_json::to_string_pretty(&burst_list(&servers))?;
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(json) });
        Ok(())
    }

    #[test]
    fn only_what_is_trusted_is_listed() {
        let count = |server| burst_list(&[Arc::new(server)]).bursts.len();
        assert_eq!(count(new_server()), 0);
        assert_eq!(count(busy_server()), 1);
        assert_eq!(count(ExportedServer { withdrawn: Some(BrokenInvariant::LostExit), ..busy_server() }), 0);
    }

    #[test]
    fn the_answer_about_a_made_up_server() -> serde_json::Result<()> {
        let json = serde_json::to_string(&timeline_answer("6379", &timeline(), Duration::from_secs(1_700_000_000)))?;
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(json) });
        Ok(())
    }
}
