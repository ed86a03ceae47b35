//! The families about memory: its limit, client buffers, and what is evicted.
//!
//! Second observers: `used_memory`, `maxmemory`, `used_memory_*`, `mem_*` and `mem_not_counted_for_evict` of `INFO`,
//! `mem_reported` and `overhead` at each evicting call, `role` of `INFO`, and for the forecast what then happens.
//! `mem_reported` is watched (`BrokenInvariant::Allocator`); tests compare the others. Of lost keys it is `DBSIZE`.
//! That of the candidate is `OBJECT IDLETIME` or `PTTL` of its key, in a test alone.

use std::time::Duration;

use evictscope_model::catalogue;
use evictscope_telemetry::{Candidate, CostOrigin, Margins, MemoryPart};

use super::family::{BYTES, Family, Series, by, histogram, single};
use crate::exported::ExportedServer;

pub fn client_buffers(server: &ExportedServer) -> Vec<Family<'_>> {
    let state = &server.state;
    let is_trusted = server.trusts_members();
    let samples = state.client_buffers().filter(|_| is_trusted);
    let peak = state.client_buffers_peak.filter(|_| is_trusted);
    let classes = server.members().client_buffers().map(|buffers| {
        [
            ("normal", buffers.normal as f64),
            ("replica", buffers.replica as f64),
            ("pubsub", buffers.pubsub as f64),
            ("primary", buffers.primary as f64),
        ]
    });
    vec![
        histogram(&catalogue::CLIENT_BUFFERS_SAMPLE, samples, BYTES),
        by(&catalogue::CLIENT_BUFFERS, classes.into_iter().flatten()),
        single(&catalogue::CLIENT_BUFFERS_PEAK, peak.map(|bytes| bytes as f64)),
    ]
}

pub fn limit(server: &ExportedServer) -> [Family<'static>; 2] {
    let info = (server.members().is_replica()).zip(server.members().limit_applies()).map(|(is_replica, applies)| {
        let role = if is_replica { "replica" } else { "primary" };
        let applies = if applies { "yes" } else { "no" };
        Series::number(&[("role", role), ("applies", applies)], 1.0)
    });
    [
        single(&catalogue::NOT_COUNTED_MEMORY, server.not_counted().map(|bytes| bytes as f64)),
        Family::new(&catalogue::SERVER_ROLE, info),
    ]
}

pub fn parts(server: &ExportedServer) -> Family<'static> {
    let parts = server.memory_parts();
    let known = |part: MemoryPart| Some((part.name(), parts?.get(part)? as f64));
    by(&catalogue::MEMORY_PART, MemoryPart::ALL.into_iter().filter_map(known))
}

pub fn losses(server: &ExportedServer) -> Family<'static> {
    let losses =
        server.key_losses.map(|of| [("evicted", of.evicted), ("expired", of.expired), ("removed", of.removed)]);
    by(&catalogue::KEY_LOSSES, losses.into_iter().flatten().map(|(how, count)| (how, count as f64)))
}

pub fn policy(server: &ExportedServer) -> Family<'static> {
    let policy = server.members().policy();
    by(&catalogue::MAXMEMORY_POLICY, policy.map(|policy| (policy, 1.0)))
}

pub fn candidate(server: &ExportedServer) -> [Family<'static>; 2] {
    let candidate = server.candidate();
    let seconds = |time: fn(Candidate) -> Option<Duration>| Some(time(candidate?)?.as_secs_f64());
    [
        single(&catalogue::CANDIDATE_IDLE, seconds(Candidate::idle)),
        single(&catalogue::CANDIDATE_TTL, seconds(Candidate::ttl)),
    ]
}

pub fn margins(server: &ExportedServer) -> [Family<'static>; 2] {
    let reached = ["earliest", "likely", "latest"].into_iter().zip(server.reaches_limit_in());
    let load = (server.forecasts()).and_then(Margins::evictions_would_add);
    let measured = |measured| match measured {
        CostOrigin::Here => "here",
        CostOrigin::InTheLab => "lab",
    };
    [
        by(&catalogue::MAXMEMORY_REACHED, reached.filter_map(|(estimate, seconds)| Some((estimate, seconds?)))),
        by(&catalogue::EVICTIONS_WOULD_ADD, load.map(|load| (measured(load.measured), load.share))),
    ]
}
