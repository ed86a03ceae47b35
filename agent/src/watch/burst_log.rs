//! Logs finished bursts.

use std::time::Duration;

use evictscope_records::RecordId;
use evictscope_telemetry::{Burst, BurstKind};
use evictscope_web::rfc3339;

/// Shorter plain bursts are logged only at level debug: a small cache at its limit may have one every
/// few seconds forever.
const WORTH_A_LINE: Duration = Duration::from_millis(100);

/// Logs a finished burst in one line, with the name of its record. The rest of it is at `/api/v1/bursts`.
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
                duration_seconds = burst.duration.as_secs_f64(),
                evicted_keys = burst.evicted_keys,
                stalled_seconds = burst.stalled.map(|stalled| stalled.as_secs_f64()),
                hint = burst.expiry_behind(),
                "burst: {reason}"
            )
        };
    }
    match kind {
        BurstKind::SelfAmplifying => log!(warn),
        BurstKind::Plain if burst.duration < WORTH_A_LINE => log!(debug),
        BurstKind::Stalling | BurstKind::Plain | BurstKind::Unknown => log!(info),
    }
}
