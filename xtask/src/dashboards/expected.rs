//! Queries that have no data, and alerts that fire, while a server is stalled by evictions.

/// Queries of dashboards that have no data, by their place, with the reason.
pub const EMPTY_QUERIES: [(&str, &str); 9] = [
    (
        "evictscope / Eviction cycle / Not found / A",
        "everything is found in Debian's redis-server",
    ),
    (
        "evictscope / Fleet / Servers / K",
        "everything is found, and no check fails",
    ),
    (
        "evictscope / Fleet / Servers / L",
        "there is no kube-state-metrics",
    ),
    (
        "evictscope / Fleet / variable namespace",
        "there is no kube-state-metrics",
    ),
    (
        "evictscope / Fleet / variable pod",
        "there is no kube-state-metrics",
    ),
    (
        "evictscope / Eviction cycle / Server / C",
        "there is no kube-state-metrics",
    ),
    (
        "evictscope / Agent / Not watched / A",
        "every server can be watched",
    ),
    (
        "evictscope / Agent / Not found, or switched off / A",
        "everything is found in Debian's redis-server",
    ),
    (
        "evictscope / Agent / Not found, or switched off / B",
        "no check fails",
    ),
];

/// Queries that have data or not, as it happens: they show what changed between two scrapes.
pub const UNCERTAIN_QUERIES: [&str; 1] = ["evictscope / Eviction cycle / Client buffers / B"];

/// Series in the rules of alerts that have no data, with the reason.
pub const EMPTY_SELECTORS: [(&str, &str); 3] = [
    (
        "evictscope_not_found{item=~\"plan|eviction_call|eviction_goal|eviction_done|eviction_result|expire_cycle|\
         expire_start|expire_end|used_memory|stat_evictedkeys|stat_clients_type_memory|stat_expired_stale_perc|\
         stat_expired_time_cap_reached_count\"}",
        "everything is found in Debian's redis-server",
    ),
    (
        "evictscope_not_found{item=\"maxmemory\"}",
        "everything is found in Debian's redis-server",
    ),
    ("evictscope_plan_withdrawn", "no check fails"),
];

/// The alerts that must fire. Of the others, promtool's tests tell when they do.
pub const FIRING: [&str; 1] = ["EvictscopeStalled"];
