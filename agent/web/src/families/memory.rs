//! The families about memory: its limit, client buffers, and what is evicted.
//!
//! Second observers: `used_memory`, `maxmemory` and `mem_not_counted_for_evict` of `INFO`, `mem_reported` and
//! `overhead` at each evicting call, `role` of `INFO`, and for the forecast what then happens. `mem_reported` is
//! watched (`BrokenInvariant::Allocator`); tests compare the others. That of the candidate is `OBJECT IDLETIME` or
//! `PTTL` of its key, in a test alone.

use std::time::Duration;

use evictscope_telemetry::{Candidate, CostOrigin, Margins};

use super::family::{Family, Series, Unit, by, histogram, single};
use crate::published::exported::ExportedServer;

pub fn client_buffers(server: &ExportedServer) -> Vec<Family<'_>> {
    let state = &server.state;
    let is_trusted = server.trusts_members();
    let samples = state.client_buffers().filter(|_| is_trusted);
    let peak = state.client_buffers_peak().filter(|_| is_trusted);
    let classes = server.members().client_buffers().map(|buffers| {
        [
            ("normal", buffers.normal as f64),
            ("replica", buffers.replica as f64),
            ("pubsub", buffers.pubsub as f64),
            ("primary", buffers.primary as f64),
        ]
    });
    vec![
        histogram(
            "evictscope_client_buffers_sample_bytes",
            "Total client buffers, 10 times a second at most.",
            samples,
            Unit::Bytes,
        ),
        by(
            "evictscope_client_buffers_bytes",
            "Client buffers (input and output buffers and client structs) by class of client, at \
             the last sample. The server brings its count up to date about once a second.",
            "class",
            classes.into_iter().flatten(),
        ),
        single(
            "evictscope_client_buffers_peak_bytes",
            "Highest total of client buffers since the process was found.",
            peak.map(|bytes| bytes as f64),
        ),
    ]
}

pub fn limit(server: &ExportedServer) -> [Family<'static>; 2] {
    let known = (server.members().is_replica()).zip(server.members().limit_applies());
    let info = known.map(|(is_replica, applies)| {
        let role = if is_replica { "replica" } else { "primary" };
        let applies = if applies { "yes" } else { "no" };
        Series::number(&[("role", role), ("applies", applies)], 1.0)
    });
    [
        single(
            "evictscope_not_counted_memory_bytes",
            "Memory that does not count against maxmemory, at the last sample: replication output buffers and AOF buffer, as \
             mem_not_counted_for_evict of INFO.",
            server.not_counted().map(|bytes| bytes as f64),
        ),
        Family::new(
            "evictscope_server_role_info",
            "1 for the server's role, and for whether maxmemory applies to it now: not without a limit, to a replica that \
             ignores it (replica-ignore-maxmemory), while the server loads, or while evictions are paused.",
            info,
        ),
    ]
}

pub fn policy(server: &ExportedServer) -> Family<'static> {
    let policy = server.members().policy();
    by(
        "evictscope_maxmemory_policy_info",
        "1 for the maxmemory-policy that is configured, at the last sample.",
        "policy",
        policy.map(|policy| (policy, 1.0)),
    )
}

pub fn candidate(server: &ExportedServer) -> [Family<'static>; 2] {
    let candidate = server.candidate();
    let seconds = |time: fn(Candidate) -> Option<Duration>| Some(time(candidate?)?.as_secs_f64());
    [
        single(
            "evictscope_candidate_idle_seconds",
            "Idle time of the longest-idle key in the server's eviction pool, from when it was taken in (policies by LRU). \
             What is evicted next may have been idle for longer.",
            seconds(Candidate::idle),
        ),
        single(
            "evictscope_candidate_ttl_seconds",
            "Time that the key in the server's eviction pool that expires first has to live (volatile-ttl). What is evicted next \
             may expire sooner.",
            seconds(Candidate::ttl),
        ),
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
        by(
            "evictscope_maxmemory_reached_seconds",
            "Time until the memory that counts is at maxmemory, if it grows on as in the last hour, since evictions ended, or since \
             the server was filled. No series where it does not grow, or the limit does not apply.",
            "estimate",
            reached.filter_map(|(estimate, seconds)| Some((estimate, seconds?))),
        ),
        by(
            "evictscope_evictions_would_add_ratio",
            "Share of the main thread that evictions would take at the limit: that growth, times the CPU time that they took for \
             each byte when the server last evicted, or, where it has not yet, in the lab.",
            "measured",
            load.map(|load| (measured(load.measured), load.share)),
        ),
    ]
}
