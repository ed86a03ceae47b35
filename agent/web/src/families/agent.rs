//! The families about the agent itself.

use std::time::Duration;

use evictscope_records::KeeperCounts;
use prometheus::proto::MetricFamily;

use super::family::{Family, Series, by, single};
use crate::published::unwatched::{Reason, Unwatched};
use crate::version;

/// Returns the family that says what this agent was built from.
pub fn build_info() -> MetricFamily {
    let built = [
        ("commit", version::COMMIT.unwrap_or_default()),
        ("version", version::NUMBER),
    ];
    exported(&Family::new(
        "evictscope_build_info",
        "1, with the version of this agent, and the commit that a packed one was built from.",
        [Series::number(&built, 1.0)],
    ))
}

/// Returns the family that counts the running servers that cannot be watched, by reason.
pub fn servers_unwatched(servers: &[Unwatched]) -> MetricFamily {
    let count = |reason| {
        let servers = servers.iter().filter(|server| server.reason == reason);
        servers.count() as f64
    };
    exported(&by(
        "evictscope_servers_unwatched",
        "Servers on this host that cannot be watched, by reason. /api/v1/unwatched has details of each.",
        "reason",
        Reason::ALL.map(|reason| (<&str>::from(reason), count(reason))),
    ))
}

/// Returns the family that says when the run loop last turned, since 1970.
pub fn loop_last_turn(unix_time: Duration) -> MetricFamily {
    exported(&single(
        "evictscope_loop_last_turn_timestamp_seconds",
        "When the loop that watches the servers last turned: seconds since 1970. It turns several \
         times a second; /-/healthy says whether it does.",
        Some(unix_time.as_secs_f64()),
    ))
}

/// Returns the families that say what the agent keeps on disk.
pub fn records(counts: KeeperCounts) -> [MetricFamily; 4] {
    let families = [
        (
            "evictscope_records",
            "Records of bursts, of stalls and of what was asked for that are kept.",
            counts.records,
        ),
        (
            "evictscope_records_bytes",
            "Size of the records on disk. At most --keep-records.",
            counts.bytes,
        ),
        (
            "evictscope_records_written_total",
            "Records that were written.",
            counts.written,
        ),
        (
            "evictscope_records_failed_total",
            "Records that were lost: the disk is full or too slow, or the record is larger than all that may be kept. The log says which.",
            counts.failed,
        ),
    ];
    families.map(|(name, help, value)| exported(&single(name, help, Some(value as f64))))
}

fn exported(family: &Family<'_>) -> MetricFamily {
    let mut exported = family.begun();
    family.add_to(&mut exported, None);
    exported
}
