//! Queries that have no data, and alerts that do not fire, while a server goes through the lab's cycle.

/// Queries of dashboards that have no data, by their place, with the reason.
pub const EMPTY_QUERIES: [(&str, &str); 2] = [
    (
        "evictscope / Agent / Not found, or switched off / A",
        "everything is found in Debian's redis-server",
    ),
    (
        "evictscope / Agent / Not found, or switched off / B",
        "no check fails",
    ),
];

/// Series in the rules of alerts that have no data, with the reason.
pub const EMPTY_SELECTORS: [(&str, &str); 2] = [
    (
        "evictscope_not_found",
        "everything is found in Debian's redis-server",
    ),
    (
        "redis_instance_info{tcp_port!=\"0\"}",
        "no redis_exporter runs",
    ),
];

/// The alerts that must fire.
pub const FIRING: [&str; 2] = ["EvictscopeEvictionBurst", "EvictscopeBurstsRecurring"];

/// The alerts that must not fire, with the reason. In promtool's tests they do.
pub const NOT_FIRING: [(&str, &str); 8] = [
    (
        "EvictscopeClientBuffersSwelling",
        "buffers grow, but with evictions",
    ),
    ("EvictscopeMaxmemoryNear", "the server has evicted"),
    ("EvictscopeEvictionsFailing", "there are keys to evict"),
    (
        "EvictscopeOverheadOverBudget",
        "the overhead must be over the budget for half an hour",
    ),
    ("EvictscopeItemNotFound", "everything is found"),
    ("EvictscopePlanWithdrawn", "no check fails"),
    ("EvictscopeAgentDown", "the agent is up"),
    ("EvictscopeServerNotWatched", "no redis_exporter runs"),
];
