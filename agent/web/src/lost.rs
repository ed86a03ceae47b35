//! What is not exported of a server where an item was not found in its executable, and which alerts cannot fire for it
//! then.

use evictscope_abi::Variable;
use evictscope_plan::{EXPIRE_CYCLE, Item, Member};
use serde::Serialize;

/// What is lost, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Metrics that have no series, or lack a label.
    pub metrics: &'static [&'static str],
    /// Alerts of `dashboards/rules/alerts.yaml`.
    pub alerts: &'static [&'static str],
}

/// Returns what is lost where `item` was not found.
pub fn lost(item: Item) -> Lost {
    match item {
        Item::Plan => EVERYTHING,
        Item::Function(kind)
        | Item::Entry(kind)
        | Item::Inner(kind)
        | Item::Exits(kind)
        | Item::Result(kind)
            if kind.description == EXPIRE_CYCLE.description =>
        {
            match item {
                // Neither is probed.
                Item::Entry(_) | Item::Result(_) => Lost::default(),
                _ => EXPIRE_CYCLES,
            }
        }
        Item::Function(_) => EVERYTHING,
        Item::Inner(_) | Item::Exits(_) => EVICTING_CALLS,
        Item::Entry(_) => metrics(&[
            "evictscope_eviction_calls_total{kind=\"noop\"}",
            "evictscope_eviction_call_duration_seconds{kind=\"noop\"}",
        ]),
        Item::Result(_) => Lost {
            metrics: &["evictscope_eviction_calls_total{result}"],
            alerts: &["EvictscopeEvictionsFailing"],
        },
        Item::Version => metrics(&["evictscope_server_info{version}"]),
        Item::DebugInfo
        | Item::Quantity(Variable::Maxmemory | Variable::MemReported | Variable::MemUsed) => {
            Lost::default()
        }
        Item::Quantity(Variable::Overhead) => metrics(&["evictscope_not_counted_memory_bytes"]),
        Item::Quantity(Variable::MemTofree) => metrics(&["evictscope_mem_tofree_bytes"]),
        Item::CycleType => metrics(&["evictscope_expire_cycle_duration_seconds{type}"]),
        Item::KeysSampled => metrics(&["evictscope_expire_cycle_keys_sampled_total"]),
        Item::KeysExpired => metrics(&["evictscope_expire_cycle_keys_expired_total"]),
        Item::Member(member) => of_member(member),
    }
}

const fn metrics(metrics: &'static [&'static str]) -> Lost {
    let alerts = &[];
    Lost { metrics, alerts }
}

const fn of_member(member: Member) -> Lost {
    match member {
        Member::UsedMemory => Lost {
            metrics: &[
                "evictscope_used_memory_bytes",
                "evictscope_reclaim_duration_seconds",
                "evictscope_burst_reclaimed_bytes_total",
            ],
            alerts: &["EvictscopeMaxmemoryNear"],
        },
        Member::Maxmemory => Lost {
            metrics: &["evictscope_maxmemory_bytes"],
            alerts: &["EvictscopeMaxmemoryNear"],
        },
        Member::StatNumcommands => metrics(&["evictscope_commands_processed_total"]),
        // In the probe mode sampled, which a server that evicts without end is in, time in evicting calls is estimated from it.
        Member::StatEvictedkeys => Lost {
            metrics: &["evictscope_evicted_keys_total"],
            alerts: &[
                "EvictscopeStalled",
                "EvictscopeStallBudgetExceeded",
                "EvictscopeEvictionsCostly",
            ],
        },
        Member::StatExpiredkeys => metrics(&["evictscope_expired_keys_total"]),
        Member::StatClientsTypeMemory => Lost {
            metrics: &[
                "evictscope_client_buffers_sample_bytes",
                "evictscope_client_buffers_bytes",
                "evictscope_client_buffers_peak_bytes",
                "evictscope_burst_client_buffer_growth_bytes_total",
                "evictscope_bursts_total{kind=\"self_amplifying\"}",
            ],
            alerts: &[
                "EvictscopeEvictionBurst",
                "EvictscopeBurstsRecurring",
                "EvictscopeClientBuffersSwelling",
            ],
        },
        Member::MaxmemoryPolicy => metrics(&["evictscope_maxmemory_policy_info"]),
        Member::StatExpiredStalePerc => Lost {
            metrics: &["evictscope_expire_stale_ratio"],
            alerts: &["EvictscopeExpiryFallsBehind"],
        },
        Member::StatExpiredTimeCapReachedCount => Lost {
            metrics: &["evictscope_expire_cycle_time_limit_hits_total"],
            alerts: &["EvictscopeExpiryFallsBehind"],
        },
        Member::Port
        | Member::Maxclients
        | Member::ActiveExpireEffort
        | Member::ConfigHz
        | Member::StatExpireCycleTimeUsed
        | Member::StatExpiredSubkeys => metrics(&[]),
    }
}

/// Where the server is not watched.
const EVERYTHING: Lost = Lost {
    metrics: &["evictscope_*"],
    alerts: &[
        "EvictscopeStalled",
        "EvictscopeStallBudgetExceeded",
        "EvictscopeEvictionsFailing",
        "EvictscopeClientsWaiting",
        "EvictscopeEvictionsCostly",
        "EvictscopeEvictionBurst",
        "EvictscopeBurstsRecurring",
        "EvictscopeEvictionCallSlow",
        "EvictscopeClientBuffersSwelling",
        "EvictscopeMaxmemoryNear",
        "EvictscopeExpiryFallsBehind",
    ],
};

/// Where expire cycles are not seen.
const EXPIRE_CYCLES: Lost = Lost {
    metrics: &[
        "evictscope_expire_cycle_duration_seconds",
        "evictscope_expire_cycle_keys_sampled_total",
        "evictscope_expire_cycle_keys_expired_total",
        "evictscope_main_thread_cpu_seconds_total{activity=\"expire\"}",
        "evictscope_stall_seconds_total{cause=\"expire\"}",
    ],
    alerts: &["EvictscopeStalled", "EvictscopeStallBudgetExceeded"],
};

/// Where evicting calls are not seen.
const EVICTING_CALLS: Lost = Lost {
    metrics: &[
        "evictscope_eviction_call_duration_seconds",
        "evictscope_eviction_calls_total",
        "evictscope_eviction_call_longest_seconds",
        "evictscope_observed_seconds_total",
        "evictscope_mem_tofree_bytes",
        "evictscope_not_counted_memory_bytes",
        "evictscope_phase",
        "evictscope_phase_seconds_total",
        "evictscope_stall_seconds_total{cause=\"eviction\"}",
        "evictscope_bursts_total",
        "evictscope_burst_open",
        "evictscope_burst_duration_seconds",
        "evictscope_reclaim_duration_seconds",
        "evictscope_burst_client_buffer_growth_bytes_total",
        "evictscope_burst_reclaimed_bytes_total",
        "evictscope_last_burst_start_timestamp_seconds",
    ],
    alerts: &[
        "EvictscopeStalled",
        "EvictscopeStallBudgetExceeded",
        "EvictscopeEvictionsFailing",
        "EvictscopeEvictionsCostly",
        "EvictscopeEvictionBurst",
        "EvictscopeBurstsRecurring",
        "EvictscopeEvictionCallSlow",
        "EvictscopeClientBuffersSwelling",
    ],
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use evictscope_abi::Variable;
    use evictscope_plan::{EVICTION_CALL, EXPIRE_CYCLE, FunctionKind, Item, Member, ProbePlan};
    use evictscope_telemetry::Members;

    use super::{EVICTING_CALLS, EXPIRE_CYCLES, Lost, lost, of_member};
    use crate::ExportedServer;
    use crate::catalogue::{FAMILIES, families};
    use crate::fixture::busy_server;

    const RULES: &str = include_str!("../../../dashboards/rules/alerts.yaml");

    #[test]
    fn each_name_is_that_of_a_metric_or_an_alert() {
        let members = Member::OF_SERVER.map(of_member);
        for lost in members.iter().chain([&EVICTING_CALLS, &EXPIRE_CYCLES]) {
            for metric in lost.metrics {
                let name = metric.split('{').next();
                assert!(
                    FAMILIES.iter().any(|family| Some(family.name) == name),
                    "{metric}"
                );
            }
            for alert in lost.alerts {
                assert!(RULES.contains(&format!("- alert: {alert}\n")), "{alert}");
            }
        }
    }

    /// Returns the items that the alert on what was not found is about.
    fn alerted_items() -> BTreeSet<&'static str> {
        let after = RULES.split("evictscope_not_found{item=~\"").nth(1);
        let items = after.and_then(|after| after.split('"').next());
        items.unwrap_or_default().split('|').collect()
    }

    #[test]
    fn the_alert_on_what_was_not_found_is_about_what_costs_an_alert() {
        let description = EVICTION_CALL.description;
        let index = 0;
        let call = FunctionKind { index, description };
        let (index, description) = (1, EXPIRE_CYCLE.description);
        let cycle = FunctionKind { index, description };
        let parts = [
            Item::Function(call),
            Item::Entry(call),
            Item::Inner(call),
            Item::Exits(call),
            Item::Result(call),
            Item::Function(cycle),
            Item::Entry(cycle),
            Item::Inner(cycle),
            Item::Exits(cycle),
            Item::CycleType,
            Item::KeysSampled,
            Item::KeysExpired,
        ];
        let goal = [
            Variable::MemReported,
            Variable::Overhead,
            Variable::MemUsed,
            Variable::MemTofree,
        ];
        // The setting `maxmemory` has a clause of its own, because a goal variable has the same name.
        let members = Member::OF_SERVER.into_iter().chain([Member::UsedMemory]);
        let members = members.filter(|member| *member != Member::Maxmemory);
        let items = [Item::Plan, Item::DebugInfo, Item::Version].into_iter();
        let items = items.chain(parts).chain(goal.map(Item::Quantity));
        let items = items.chain(members.map(Item::Member));
        let costly = items.filter(|item| !lost(*item).alerts.is_empty());
        let costly: BTreeSet<String> = costly.map(|item| item.to_string()).collect();
        let costly: BTreeSet<&str> = costly.iter().map(String::as_str).collect();
        assert_eq!(alerted_items(), costly);
        assert!(!lost(Item::Member(Member::Maxmemory)).alerts.is_empty());
        assert!(RULES.contains("evictscope_not_found{item=\"maxmemory\"}"));
    }

    fn names(server: ExportedServer) -> BTreeSet<String> {
        let families = families(&[Arc::new(server)]).into_iter();
        families.map(|family| family.name().to_owned()).collect()
    }

    /// Returns the families that are gone when an item is lost, but for those that lack a label only.
    fn whole(lost: Lost) -> BTreeSet<&'static str> {
        let metrics = lost.metrics.iter().copied();
        metrics.filter(|metric| !metric.contains('{')).collect()
    }

    /// Returns the families that are gone where one traced function has no inner site.
    fn gone_without_inner_site(index: usize) -> BTreeSet<String> {
        let mut server = busy_server();
        let mut plan = ProbePlan::clone(&server.plan);
        plan.functions[index].inner = None;
        server.plan = Arc::new(plan);
        if index == 0 {
            server.cycle = None;
        }
        let (before, after) = (names(busy_server()), names(server));
        before.difference(&after).cloned().collect()
    }

    #[test]
    fn a_server_whose_calls_are_not_seen_has_none_of_their_metrics() {
        for (index, lost) in [EVICTING_CALLS, EXPIRE_CYCLES].into_iter().enumerate() {
            let gone = gone_without_inner_site(index);
            let gone: BTreeSet<&str> = gone.iter().map(String::as_str).collect();
            assert_eq!(gone, whole(lost));
        }
    }

    #[test]
    fn a_server_whose_member_is_not_known_lacks_its_metrics() {
        type Forget = fn(&mut Members);
        let forget: [(Member, Forget); 8] = [
            (Member::UsedMemory, |members| members.used_memory = None),
            (Member::Maxmemory, |members| members.maxmemory = None),
            (Member::MaxmemoryPolicy, |members| {
                members.maxmemory_policy = None
            }),
            (Member::StatNumcommands, |members| members.commands = None),
            (Member::StatEvictedkeys, |members| {
                members.evicted_keys = None
            }),
            (Member::StatExpiredkeys, |members| {
                members.expired_keys = None
            }),
            (Member::StatExpiredStalePerc, |members| {
                members.expiry.stale_ratio = None
            }),
            (Member::StatExpiredTimeCapReachedCount, |members| {
                members.expiry.time_limit_hits = None
            }),
        ];
        for (member, forget) in forget {
            let mut server = busy_server();
            server.state.members.as_mut().map(forget);
            let (before, after) = (names(busy_server()), names(server));
            let lost = whole(lost(Item::Member(member)));
            let gone: BTreeSet<&str> = before.difference(&after).map(String::as_str).collect();
            assert_eq!(gone, lost, "{member:?}");
        }
    }
}
