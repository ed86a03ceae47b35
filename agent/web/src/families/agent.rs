//! The families about the agent itself.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use evictscope_model::answers::{UnwatchedReason, UnwatchedServer};
use evictscope_model::catalogue;
use evictscope_records::{Ending, KeeperCounts};
use prometheus::proto::MetricFamily;

use super::family::{Family, Series, by, single};
use crate::published::exported::ExportedServer;
use crate::version;

/// For how long a server that has ended has a series: long enough for a ticket that names it.
const ENDED_SHOWN: Duration = Duration::from_secs(3_600);

/// Returns the family that says what this agent was built from.
pub fn build_info() -> MetricFamily {
    let built = [("commit", version::COMMIT.unwrap_or_default()), ("version", version::NUMBER)];
    exported(&Family::new(&catalogue::BUILD_INFO, [Series::number(&built, 1.0)]))
}

/// Returns the family that counts the running servers that cannot be watched, by reason.
pub fn servers_unwatched(servers: &[UnwatchedServer]) -> MetricFamily {
    let count = |reason| {
        let servers = servers.iter().filter(|server| server.reason == reason);
        servers.count() as f64
    };
    exported(&by(&catalogue::SERVERS_UNWATCHED, UnwatchedReason::ALL.map(|reason| (reason.label(), count(reason)))))
}

/// Returns the families that say how servers ended. `ended` are the last ones.
///
/// Second observers: the parent of a server, which gets its exit code, and the kernel's log of the OOM killer. Neither
/// is watched.
pub fn servers_ended(
    counts: [(&'static str, u64); Ending::HOW.len()],
    ended: &[Arc<ExportedServer>],
) -> Vec<MetricFamily> {
    let counts = counts.map(|(how, count)| (how, count as f64));
    // The latest of each label comes first.
    let mut labels = HashSet::new();
    let last = ended.iter().filter(|server| server.ended.is_some());
    let last = last.filter(|server| labels.insert(&server.label));
    let last = last.filter(|server| server.read.elapsed() < ENDED_SHOWN);
    let series = last.filter_map(|server| {
        let (at, ending) = server.ended?;
        let (server, at) = (&server.label, server.since_1970 + at);
        let labels = [("how", ending.how()), ("server", server), ("status", &ending.status())];
        Some(Series::number(&labels, at.as_secs_f64()))
    });
    let mut families = vec![
        exported(&by(&catalogue::SERVERS_ENDED, counts)),
        exported(&Family::new(&catalogue::SERVER_ENDED, series)),
    ];
    families.retain(|family| !family.get_metric().is_empty());
    families
}

/// Returns the family that says when the run loop last turned, since 1970.
pub fn loop_last_turn(unix_time: Duration) -> MetricFamily {
    exported(&single(&catalogue::LOOP_LAST_TURN, Some(unix_time.as_secs_f64())))
}

/// Returns the families that say what the agent keeps on disk.
pub fn records(counts: KeeperCounts) -> [MetricFamily; 4] {
    [
        (catalogue::RECORDS, counts.records),
        (catalogue::RECORDS_BYTES, counts.bytes),
        (catalogue::RECORDS_WRITTEN, counts.written),
        (catalogue::RECORDS_FAILED, counts.failed),
    ]
    .map(|(metric, value)| exported(&single(&metric, Some(value as f64))))
}

fn exported(family: &Family<'_>) -> MetricFamily {
    let mut exported = family.begun();
    family.add_to(&mut exported, None);
    exported
}
