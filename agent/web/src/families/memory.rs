//! The families about client buffers, and about the policy of eviction.

use super::family::{Family, Unit, by, histogram, single};
use crate::exported::ExportedServer;

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

pub fn policy(server: &ExportedServer) -> Family<'static> {
    let policy = server.members().policy();
    by(
        "evictscope_maxmemory_policy_info",
        "1 for the maxmemory-policy that is configured, at the last sample.",
        "policy",
        policy.map(|policy| (policy, 1.0)),
    )
}
