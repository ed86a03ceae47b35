//! Queries that have no data, and alerts that do not fire, while a server goes through the lab's cycle.

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

/// Series in the rules of alerts that have no data, with the reason.
pub const EMPTY_SELECTORS: [(&str, &str); 3] = [
    (
        "evictscope_not_found{item=~\"plan|eviction_call|eviction_goal|eviction_done|eviction_result|expire_cycle|\
         expire_start|expire_end|used_memory|stat_numcommands|stat_evictedkeys|stat_clients_type_memory|stat_expired_stale_perc|\
         stat_expired_time_cap_reached_count\"}",
        "everything is found in Debian's redis-server",
    ),
    (
        "evictscope_not_found{item=\"maxmemory\"}",
        "everything is found in Debian's redis-server",
    ),
    ("evictscope_plan_withdrawn", "no check fails"),
];

/// The alerts that must fire.
pub const FIRING: [&str; 2] = ["EvictscopeEvictionBurst", "EvictscopeBurstsRecurring"];

/// The alerts that must not fire, with the reason. In promtool's tests they do.
pub const NOT_FIRING: [(&str, &str); 13] = [
    (
        "EvictscopeStalled",
        "the bursts take less than half of the time",
    ),
    (
        "EvictscopeStallBudgetExceeded",
        "all bursts lie within five minutes",
    ),
    ("EvictscopeEvictionsFailing", "there are keys to evict"),
    ("EvictscopeEvictionCallSlow", "Redis stops calls at 500 us"),
    (
        "EvictscopeClientBuffersSwelling",
        "buffers grow, but with evictions",
    ),
    ("EvictscopeMaxmemoryNear", "the server has evicted"),
    (
        "EvictscopeExpiryFallsBehind",
        "it takes ten minutes of time-limit hits",
    ),
    (
        "EvictscopeOverheadOverBudget",
        "in probe mode auto the overhead stays below the budget",
    ),
    ("EvictscopeAlertCannotFire", "everything is found"),
    ("EvictscopePlanWithdrawn", "no check fails"),
    ("EvictscopeAgentDown", "the agent is up"),
    ("EvictscopeAgentStale", "the agent's loop turns"),
    ("EvictscopeServerNotWatched", "each server can be watched"),
];
