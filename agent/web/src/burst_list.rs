//! `GET /api/v1/bursts`: the last finished bursts, as JSON.

use std::sync::Arc;
use std::time::Duration;

use evictscope_telemetry::Burst;
use jiff::{SignedDuration, Timestamp};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::server::ExportedServer;

/// The answer.
#[derive(Debug, Serialize)]
pub(super) struct BurstList<'a> {
    bursts: Vec<Entry<'a>>,
}

/// A burst, and its server.
#[derive(Debug)]
struct Entry<'a>(&'a ExportedServer, &'a Burst);

impl<'a> BurstList<'a> {
    /// Lists the finished bursts of all servers, or of the one with that label; each server's oldest
    /// first.
    pub(super) fn of(servers: &'a [Arc<ExportedServer>], only: Option<&str>) -> Self {
        let asked = servers
            .iter()
            .filter(|server| only.is_none_or(|label| server.label == label));
        let entries = asked.flat_map(|server| {
            let bursts = server.cycle().into_iter().flat_map(|cycle| cycle.recent());
            bursts.map(|burst| Entry(server, burst))
        });
        Self {
            bursts: entries.collect(),
        }
    }
}

/// Writes a value that is not known as `null`.
impl Serialize for Entry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(server, burst) = self;
        let (kind, reason) = burst.kind();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("server", &server.label)?;
        map.serialize_entry("start", &rfc3339(burst.started))?;
        map.serialize_entry("end", &rfc3339(burst.started + burst.duration))?;
        map.serialize_entry("duration_seconds", &burst.duration.as_secs_f64())?;
        map.serialize_entry("reclaim_seconds", &burst.reclaim.as_secs_f64())?;
        map.serialize_entry("evicting_calls", &burst.evicting_calls)?;
        map.serialize_entry("observed_seconds", &burst.observed.as_secs_f64())?;
        map.serialize_entry("evicted_keys", &burst.evicted_keys)?;
        map.serialize_entry(
            "commands_per_second_before",
            &burst.commands_per_second_before,
        )?;
        map.serialize_entry(
            "commands_per_second_since_start",
            &burst.commands_per_second_since_start,
        )?;
        map.serialize_entry(
            "commands_per_second_during",
            &burst.commands_per_second_during,
        )?;
        map.serialize_entry(
            "commands_per_second_slowest",
            &burst.commands_per_second_slowest,
        )?;
        map.serialize_entry("throughput_ratio", &burst.throughput_ratio())?;
        map.serialize_entry("expired_share_before", &burst.expired_share_before)?;
        map.serialize_entry("stale_ratio_before", &burst.stale_ratio_before)?;
        map.serialize_entry("client_buffers_before_bytes", &burst.client_buffers_before)?;
        map.serialize_entry("client_buffers_peak_bytes", &burst.client_buffers_peak)?;
        map.serialize_entry("memory_start_bytes", &burst.memory_start)?;
        map.serialize_entry("memory_peak_bytes", &burst.memory_peak)?;
        map.serialize_entry("memory_end_bytes", &burst.memory_end)?;
        map.serialize_entry("memory_after_bytes", &burst.memory_after)?;
        map.serialize_entry("reclaimed_bytes", &burst.reclaimed())?;
        map.serialize_entry("main_thread_cpu_share", &burst.cpu_share)?;
        map.serialize_entry("main_thread_waiting_share", &burst.waiting_share)?;
        map.serialize_entry("eviction_cpu_share", &burst.eviction_cpu_share)?;
        map.serialize_entry("kind", &kind.to_string())?;
        map.serialize_entry("reason", &reason)?;
        map.serialize_entry("hint", &burst.expiry_behind())?;
        map.serialize_entry("record", &server.record_of(burst))?;
        map.end()
    }
}

/// Formats a time since 1970 as RFC 3339, UTC, with milliseconds; `None` beyond the year 9999.
pub fn rfc3339(unix_time: Duration) -> Option<String> {
    let since = SignedDuration::try_from(unix_time).ok()?;
    let time = Timestamp::from_duration(since).ok()?;
    Some(format!("{time:.3}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use evictscope_telemetry::BrokenInvariant;

    use super::{BurstList, rfc3339};
    use crate::ExportedServer;
    use crate::fixture::{busy_server, new_server};

    #[test]
    fn the_list_of_a_made_up_server() -> serde_json::Result<()> {
        let servers = [Arc::new(busy_server())];
        let json = serde_json::to_string_pretty(&BurstList::of(&servers, Some("6379")))?;
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(json) });
        Ok(())
    }

    #[test]
    fn only_what_is_asked_for_and_trusted_is_listed() {
        let count = |server, only| BurstList::of(&[Arc::new(server)], only).bursts.len();
        assert_eq!(count(new_server(), None), 0);
        assert_eq!(count(busy_server(), None), 1);
        assert_eq!(count(busy_server(), Some("6380")), 0);
        let withdrawn = ExportedServer {
            withdrawn: Some(BrokenInvariant::LostExit),
            ..busy_server()
        };
        assert_eq!(count(withdrawn, None), 0);
    }

    #[test]
    fn times_have_milliseconds_and_are_utc() {
        let text = rfc3339(Duration::from_millis(1_700_000_000_250));
        assert_eq!(text.as_deref(), Some("2023-11-14T22:13:20.250Z"));
        assert_eq!(rfc3339(Duration::MAX), None);
    }
}
