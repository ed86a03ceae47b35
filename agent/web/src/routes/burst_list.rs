//! `GET /api/v1/bursts`: the last finished bursts, as JSON.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Response};
use evictscope_model::UnixTime;
use evictscope_model::answers::{BurstList, ListedBurst};
use evictscope_records::RecordId;
use evictscope_telemetry::Burst;

use super::app::{App, Refusal, Which};
use crate::published::exported::ExportedServer;

/// Lists the finished bursts of these servers, some of which may have ended; for each, the oldest first.
fn list(servers: &[Arc<ExportedServer>]) -> BurstList {
    let of_server = |server: &Arc<ExportedServer>| {
        server.bursts().map(|(burst, record)| listed(&server.label, &burst, record)).collect::<Vec<_>>()
    };
    BurstList { bursts: servers.iter().flat_map(of_server).collect() }
}

fn listed(server: &str, burst: &Burst, record: Option<&RecordId>) -> ListedBurst {
    let (kind, reason) = burst.kind();
    let optional = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    ListedBurst {
        server: server.to_owned(),
        start: UnixTime::new(burst.started),
        end: UnixTime::new(burst.started + burst.duration),
        kind: kind.to_string(),
        reason,
        hint: burst.expiry_behind(),
        record: record.map(RecordId::to_string),
        reclaimed_bytes: burst.reclaimed(),
        started_unix_seconds: burst.started.as_secs_f64(),
        duration_seconds: burst.duration.as_secs_f64(),
        reclaim_seconds: burst.reclaim.as_secs_f64(),
        evicting_calls: burst.evicting_calls,
        observed_seconds: burst.observed.as_secs_f64(),
        evicted_keys: burst.evicted_keys,
        commands_per_second: burst.commands_per_second,
        stalled_seconds: optional(burst.stalled),
        stalled_by_evictions_seconds: optional(burst.stalled_by_evictions),
        clients_waiting_before: burst.clients_waiting_before,
        clients_waiting_peak: burst.clients_waiting_peak,
        expired_share_before: burst.expired_share_before,
        stale_ratio_before: burst.stale_ratio_before,
        expired_held_before: burst.expired_held_before,
        client_buffers_before_bytes: burst.client_buffers_before,
        client_buffers_peak_bytes: burst.client_buffers_peak,
        memory_start_bytes: burst.memory_start,
        memory_peak_bytes: burst.memory_peak,
        memory_end_bytes: burst.memory_end,
        memory_after_bytes: burst.memory_after,
        main_thread_cpu_share: burst.cpu_share,
        main_thread_waiting_share: burst.waiting_share,
        eviction_cpu_share: burst.eviction_cpu_share,
    }
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
    Ok(Json(list(&servers)).into_response())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use evictscope_telemetry::BrokenInvariant;

    use super::list;
    use crate::ExportedServer;
    use crate::fixture::{busy_server, new_server};

    #[test]
    fn the_list_of_a_made_up_server() -> serde_json::Result<()> {
        let servers = [Arc::new(busy_server())];
        let json = serde_json::to_string_pretty(&list(&servers))?;
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(json) });
        Ok(())
    }

    #[test]
    fn only_what_is_trusted_is_listed() {
        let count = |server| list(&[Arc::new(server)]).bursts.len();
        assert_eq!(count(new_server()), 0);
        assert_eq!(count(busy_server()), 1);
        let withdrawn = Some(BrokenInvariant::LostExit);
        assert_eq!(count(ExportedServer { withdrawn, ..busy_server() }), 0);
    }
}
