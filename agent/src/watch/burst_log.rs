//! Logs finished bursts.

use std::time::Duration;

use evictscope_records::RecordId;
use evictscope_telemetry::{Burst, BurstKind};
use evictscope_web::rfc3339;

/// Shorter plain bursts are logged only at level debug: a small cache at its limit may have one every
/// few seconds forever.
const WORTH_A_LINE: Duration = Duration::from_millis(100);

/// Logs a finished burst in one line, with the name of its record. A value that is not known has no field.
pub fn log_burst(pid: u32, server: &str, burst: &Burst, record: Option<&RecordId>) {
    let (kind, reason) = burst.kind();
    macro_rules! log {
        ($level:ident) => {
            tracing::$level!(
                pid,
                server,
                %kind,
                record = record.map(RecordId::as_str),
                start = rfc3339(burst.started),
                end = rfc3339(burst.started + burst.duration),
                duration_seconds = burst.duration.as_secs_f64(),
                reclaim_seconds = burst.reclaim.as_secs_f64(),
                evicting_calls = burst.evicting_calls,
                observed_seconds = burst.observed.as_secs_f64(),
                evicted_keys = burst.evicted_keys,
                commands_per_second_before = burst.commands_per_second_before,
                commands_per_second_since_start = burst.commands_per_second_since_start,
                commands_per_second_during = burst.commands_per_second_during,
                commands_per_second_slowest = burst.commands_per_second_slowest,
                throughput_ratio = burst.throughput_ratio(),
                expired_share_before = burst.expired_share_before,
                stale_ratio_before = burst.stale_ratio_before,
                hint = burst.expiry_behind(),
                client_buffers_before_bytes = burst.client_buffers_before,
                client_buffers_peak_bytes = burst.client_buffers_peak,
                memory_start_bytes = burst.memory_start,
                memory_peak_bytes = burst.memory_peak,
                memory_end_bytes = burst.memory_end,
                memory_after_bytes = burst.memory_after,
                reclaimed_bytes = burst.reclaimed(),
                main_thread_cpu_share = burst.cpu_share,
                main_thread_waiting_share = burst.waiting_share,
                eviction_cpu_share = burst.eviction_cpu_share,
                "burst: {reason}"
            )
        };
    }
    match kind {
        BurstKind::SelfAmplifying => log!(warn),
        BurstKind::Plain if burst.duration < WORTH_A_LINE => log!(debug),
        BurstKind::Plain | BurstKind::Unknown => log!(info),
    }
}
