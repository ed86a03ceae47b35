//! `GET /api/v1/bursts`: the last finished bursts, as JSON.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::server::ExportedServer;
use crate::telemetry::Burst;

/// The answer.
#[derive(Debug, Serialize)]
pub(super) struct BurstList<'a> {
    bursts: Vec<Entry<'a>>,
}

/// One burst. What is not known is `null`.
#[derive(Debug, Serialize)]
struct Entry<'a> {
    server: &'a str,
    start: Option<String>,
    end: Option<String>,
    duration_seconds: f64,
    reclaim_seconds: f64,
    evicting_calls: u64,
    evicted_keys: Option<u64>,
    commands_per_second_before: Option<f64>,
    commands_per_second_during: Option<f64>,
    commands_per_second_slowest: Option<f64>,
    throughput_ratio: Option<f64>,
    client_buffers_before_bytes: Option<u64>,
    client_buffers_peak_bytes: Option<u64>,
    memory_start_bytes: Option<u64>,
    memory_peak_bytes: Option<u64>,
    memory_end_bytes: Option<u64>,
    memory_after_bytes: Option<u64>,
    reclaimed_bytes: Option<u64>,
    main_thread_cpu_share: Option<f64>,
    main_thread_waiting_share: Option<f64>,
    eviction_cpu_share: Option<f64>,
    kind: String,
    reason: String,
}

impl<'a> BurstList<'a> {
    /// The finished bursts of all servers, or of the one with that label; of each the oldest first.
    pub(super) fn of(servers: &'a [ExportedServer], only: Option<&str>) -> Self {
        let bursts = servers
            .iter()
            .filter(|server| only.is_none_or(|label| server.label == label))
            .flat_map(|server| {
                let bursts = server.cycle().into_iter().flat_map(|cycle| cycle.recent());
                bursts.map(|burst| Entry::new(&server.label, burst))
            })
            .collect();
        Self { bursts }
    }
}

impl<'a> Entry<'a> {
    fn new(server: &'a str, burst: &Burst) -> Self {
        let (kind, reason) = burst.kind();
        Self {
            server,
            start: rfc3339(burst.started),
            end: rfc3339(burst.started + burst.duration),
            duration_seconds: burst.duration.as_secs_f64(),
            reclaim_seconds: burst.reclaim.as_secs_f64(),
            evicting_calls: burst.evicting_calls,
            evicted_keys: burst.evicted_keys,
            commands_per_second_before: burst.commands_per_second_before,
            commands_per_second_during: burst.commands_per_second_during,
            commands_per_second_slowest: burst.commands_per_second_slowest,
            throughput_ratio: burst.throughput_ratio(),
            client_buffers_before_bytes: burst.client_buffers_before,
            client_buffers_peak_bytes: burst.client_buffers_peak,
            memory_start_bytes: burst.memory_start,
            memory_peak_bytes: burst.memory_peak,
            memory_end_bytes: burst.memory_end,
            memory_after_bytes: burst.memory_after,
            reclaimed_bytes: burst.reclaimed(),
            main_thread_cpu_share: burst.cpu_share,
            main_thread_waiting_share: burst.waiting_share,
            eviction_cpu_share: burst.eviction_cpu_share,
            kind: kind.to_string(),
            reason,
        }
    }
}

/// A time since 1970 as RFC 3339, UTC, with milliseconds; `None` beyond the year 9999.
pub fn rfc3339(unix_time: Duration) -> Option<String> {
    let since = SignedDuration::try_from(unix_time).ok()?;
    let time = Timestamp::from_duration(since).ok()?;
    Some(format!("{time:.3}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BurstList, rfc3339};
    use crate::export::ExportedServer;
    use crate::export::fixture::{busy_server, new_server};
    use crate::telemetry::BrokenInvariant;

    #[test]
    fn the_list_of_a_made_up_server() -> serde_json::Result<()> {
        let servers = [busy_server()];
        let json = serde_json::to_string_pretty(&BurstList::of(&servers, Some("6379")))?;
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(json) });
        Ok(())
    }

    #[test]
    fn only_what_is_asked_for_and_trusted_is_listed() {
        let count = |servers: &[ExportedServer], only| BurstList::of(servers, only).bursts.len();
        assert_eq!(count(&[new_server()], None), 0);
        assert_eq!(count(&[busy_server()], None), 1);
        assert_eq!(count(&[busy_server()], Some("6380")), 0);
        let withdrawn = ExportedServer {
            withdrawn: Some(BrokenInvariant::LostExit),
            ..busy_server()
        };
        assert_eq!(count(&[withdrawn], None), 0);
    }

    #[test]
    fn times_have_milliseconds_and_are_utc() {
        let text = rfc3339(Duration::from_millis(1_700_000_000_250));
        assert_eq!(text.as_deref(), Some("2023-11-14T22:13:20.250Z"));
        assert_eq!(rfc3339(Duration::MAX), None);
    }
}
