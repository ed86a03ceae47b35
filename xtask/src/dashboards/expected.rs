//! What rightly has no data, or does not fire, beside a server in the cycle of the lab.

/// Queries of dashboards, by their place.
pub const EMPTY_QUERIES: [(&str, &str); 2] = [
    (
        "evictscope / Agent / Refusals and withdrawals / A",
        "everything is found in Debian's redis-server",
    ),
    (
        "evictscope / Agent / Refusals and withdrawals / B",
        "no plan is withdrawn",
    ),
];

/// Series that alerts are about, and that are not there.
pub const EMPTY_SELECTORS: [(&str, &str); 2] = [
    (
        "evictscope_plan_refusals_total",
        "everything is found in Debian's redis-server",
    ),
    (
        "redis_instance_info{tcp_port!=\"0\"}",
        "no redis_exporter runs",
    ),
];

/// The alerts that must fire.
pub const FIRING: [&str; 2] = ["EvictscopeEvictionBurst", "EvictscopeBurstsRecurring"];

/// The alerts that need not: promtool's tests have them fire.
pub const NOT_FIRING: [(&str, &str); 8] = [
    (
        "EvictscopeClientBuffersSwelling",
        "buffers swell, but with evictions",
    ),
    ("EvictscopeMaxmemoryNear", "the server has evicted"),
    ("EvictscopeEvictionsFailing", "there are keys to evict"),
    (
        "EvictscopeOverheadOverBudget",
        "it takes half an hour over the budget",
    ),
    ("EvictscopePlanRefused", "nothing is refused"),
    ("EvictscopePlanWithdrawn", "nothing is withdrawn"),
    ("EvictscopeAgentDown", "the agent is up"),
    ("EvictscopeServerNotWatched", "no redis_exporter runs"),
];
