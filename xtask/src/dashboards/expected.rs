//! Queries that have no data, and alerts that fire, while a server is stalled by evictions.

/// Queries of dashboards that have no data, by their place: everything is found in Debian's redis-server, no check
/// fails, every server can be watched, and there is no kube-state-metrics.
pub const EMPTY_QUERIES: [&str; 9] = [
    "evictscope / Eviction cycle / Not found / A",
    "evictscope / Fleet / Servers / K",
    "evictscope / Fleet / Servers / L",
    "evictscope / Fleet / variable namespace",
    "evictscope / Fleet / variable pod",
    "evictscope / Eviction cycle / Server / C",
    "evictscope / Agent / Not watched / A",
    "evictscope / Agent / Not found, or switched off / A",
    "evictscope / Agent / Not found, or switched off / B",
];

/// Queries that may or may not have data: they show what changed between two scrapes, what is known once memory has
/// grown for a minute without evictions, or a share of keys with a time to live, of which there are too few.
pub const UNCERTAIN_QUERIES: [&str; 4] = [
    "evictscope / Eviction cycle / Expired keys that are held / A",
    "evictscope / Eviction cycle / Client buffers / B",
    "evictscope / Eviction cycle / At the limit / B",
    "evictscope / Eviction cycle / At the limit / C",
];

/// Series in the rules of alerts that have no data, for the same reasons.
pub const EMPTY_SELECTORS: [&str; 4] = [
    "evictscope_not_found{item=~\"plan|eviction_call|eviction_goal|eviction_done|eviction_result|expire_cycle|\
     expire_start|expire_end|used_memory|stat_numcommands|stat_evictedkeys|stat_clients_type_memory|stat_total_error_replies|\
     stat_expired_stale_perc|stat_expired_time_cap_reached_count\"}",
    "evictscope_not_found{item=\"maxmemory\"}",
    "evictscope_plan_withdrawn",
    "evictscope_server_ended_timestamp_seconds{status!~\"0|unknown\"}",
];

/// Series in the rules of alerts that may or may not have data, for the same reason, or because too few keys have a
/// time to live.
pub const UNCERTAIN_SELECTORS: [&str; 3] = [
    "evictscope_expired_held_ratio",
    "evictscope_evictions_would_add_ratio",
    "evictscope_maxmemory_reached_seconds{estimate=\"likely\"}",
];

/// The alerts that must fire. promtool's tests say when the others do.
pub const FIRING: [&str; 1] = ["EvictscopeStalled"];
