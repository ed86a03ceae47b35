//! `GET /api/v1/bursts`: the last finished bursts, as JSON.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Response};
use evictscope_records::RecordId;
use evictscope_telemetry::Burst;
use serde::Serialize;

use super::app::{App, Refusal, Which};
use crate::published::exported::ExportedServer;
use crate::rfc3339::rfc3339;

/// The answer.
#[derive(Debug, Serialize)]
pub(super) struct BurstList<'a> {
    bursts: Vec<Entry<'a>>,
}

/// A burst, and what follows from it.
#[derive(Debug, Serialize)]
struct Entry<'a> {
    server: &'a str,
    start: Option<String>,
    end: Option<String>,
    kind: String,
    reason: String,
    hint: Option<String>,
    record: Option<&'a RecordId>,
    reclaimed_bytes: Option<u64>,
    #[serde(flatten)]
    burst: Burst,
}

impl<'a> Entry<'a> {
    fn of(server: &'a ExportedServer, burst: Burst, record: Option<&'a RecordId>) -> Self {
        let (kind, reason) = burst.kind();
        Self {
            server: &server.label,
            start: rfc3339(burst.started),
            end: rfc3339(burst.started + burst.duration),
            kind: kind.to_string(),
            reason,
            hint: burst.expiry_behind(),
            record,
            reclaimed_bytes: burst.reclaimed(),
            burst,
        }
    }
}

impl<'a> BurstList<'a> {
    /// Lists the finished bursts of these servers, some of which may have ended; for each, the oldest first.
    pub(super) fn of(servers: &'a [Arc<ExportedServer>]) -> Self {
        let of_server = |server: &'a Arc<ExportedServer>| {
            let bursts = server.bursts();
            bursts.map(|(burst, record)| Entry::of(server, burst, record))
        };
        let bursts = servers.iter().flat_map(of_server).collect();
        Self { bursts }
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
    Ok(Json(BurstList::of(&servers)).into_response())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use evictscope_telemetry::BrokenInvariant;

    use super::BurstList;
    use crate::ExportedServer;
    use crate::fixture::{busy_server, new_server};

    #[test]
    fn the_list_of_a_made_up_server() -> serde_json::Result<()> {
        let servers = [Arc::new(busy_server())];
        let json = serde_json::to_string_pretty(&BurstList::of(&servers))?;
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(json) });
        Ok(())
    }

    #[test]
    fn only_what_is_trusted_is_listed() {
        let count = |server| BurstList::of(&[Arc::new(server)]).bursts.len();
        assert_eq!(count(new_server()), 0);
        assert_eq!(count(busy_server()), 1);
        let withdrawn = Some(BrokenInvariant::LostExit);
        assert_eq!(count(ExportedServer { withdrawn, ..busy_server() }), 0);
    }
}
