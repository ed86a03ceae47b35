//! What is not exported for a server if an item was not found in its executable, and which alerts then cannot fire for
//! it.

use std::collections::{BTreeMap, BTreeSet};

use evictscope_model::Member;
use evictscope_plan::{EVICTION_CALL, Item};
use serde::Serialize;

use super::complete::{complete_server, server_without};
use crate::families::{Family, of_server};

/// What is lost, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Metrics that have no series, lack a label or one of its values, or do not count everything.
    pub metrics: Vec<String>,
    /// Alerts of `dashboards/rules/alerts.yaml`.
    pub alerts: Vec<&'static str>,
}

/// If the server is not watched.
const EVERYTHING: &str = "evictscope_*";
/// Families about what was found.
const ABOUT_PROBES: &str = "evictscope_probe_";

const CANDIDATE_TTL: &str = "evictscope_candidate_ttl_seconds";
const LIMIT_REACHED: &str = "evictscope_maxmemory_reached_seconds";
const WOULD_ADD: &str = "evictscope_evictions_would_add_ratio";
const BY_RESULT: &str = "evictscope_eviction_calls_total{result}";
const SELF_AMPLIFYING: &str = "evictscope_bursts_total{kind=\"self_amplifying\"}";
const CPU_BY_EVICTION: &str = "evictscope_main_thread_cpu_seconds_total{activity=\"eviction\"}";
const STALLS_BY_EVICTION: &str = "evictscope_stall_seconds_total{cause=\"eviction\"}";
const STALLS_BY_EXPIRY: &str = "evictscope_stall_seconds_total{cause=\"expire\"}";

/// The alerts about a server, and the metrics without which each cannot fire, or not for every cause.
const ALERTS: [(&str, &[&str]); 15] = [
    ("EvictscopeStalled", &[STALLS_BY_EVICTION, STALLS_BY_EXPIRY]),
    ("EvictscopeStallBudgetExceeded", &[STALLS_BY_EVICTION, STALLS_BY_EXPIRY]),
    ("EvictscopeNobodyAnswered", &["evictscope_unanswered_seconds"]),
    ("EvictscopeEvictionsFailing", &["evictscope_refused_commands_total"]),
    ("EvictscopeNothingToEvict", &[BY_RESULT]),
    ("EvictscopeClientsWaiting", &["evictscope_stall_seconds_total"]),
    ("EvictscopeEvictionsCostly", &[CPU_BY_EVICTION]),
    ("EvictscopeNoCpu", &["evictscope_main_thread_waiting_seconds_total"]),
    ("EvictscopeEvictionBurst", &[SELF_AMPLIFYING]),
    ("EvictscopeBurstsRecurring", &["evictscope_bursts_total", STALLS_BY_EVICTION]),
    ("EvictscopeEvictionCallSlow", &["evictscope_eviction_call_longest_seconds"]),
    ("EvictscopeClientBuffersSwelling", &["evictscope_client_buffers_sample_bytes", "evictscope_eviction_calls_total"]),
    ("EvictscopeMaxmemoryNear", &["evictscope_used_memory_bytes", LIMIT_REACHED]),
    ("EvictscopeLimitWouldStall", &[LIMIT_REACHED, WOULD_ADD]),
    (
        "EvictscopeExpiryFallsBehind",
        &["evictscope_expire_stale_ratio", "evictscope_expire_cycle_time_limit_hits_total"],
    ),
];

/// Returns what is lost if `item` was not found: what a complete server has and a server without it lacks.
pub fn lost(item: Item) -> Lost {
    let metrics = match server_without(item) {
        Some(without) => {
            let complete = complete_server();
            let families = of_server(&complete).into_iter().zip(of_server(&without));
            let families = families.filter(|(family, _)| !family.name.starts_with(ABOUT_PROBES));
            let gone = families.flat_map(|(before, after)| gone(&before, &after));
            let incomplete = incomplete(item).iter().map(|metric| (*metric).to_owned());
            gone.chain(incomplete).collect()
        }
        None => vec![EVERYTHING.to_owned()],
    };
    let is_lost = |needed: &str| {
        let family = needed.split('{').next().unwrap_or(needed);
        let mut lost = metrics.iter();
        lost.any(|lost| lost == needed || lost == family || lost == EVERYTHING)
    };
    let alerts = ALERTS.iter().filter(|(_, needed)| needed.iter().any(|one| is_lost(one)));
    Lost { alerts: alerts.map(|(alert, _)| *alert).collect(), metrics }
}

/// Returns what `before` has of a family and `after` lacks: everything, labels, or values of labels.
fn gone(before: &Family<'_>, after: &Family<'_>) -> Vec<String> {
    let name = before.name;
    if after.series.is_empty() {
        return Vec::from_iter((!before.series.is_empty()).then(|| name.to_owned()));
    }
    let (before, after) = (labels(before), labels(after));
    let mut gone = Vec::new();
    for (label, values) in before {
        match values.is_disjoint(&after[label]) {
            true => gone.push(format!("{name}{{{label}}}")),
            false => {
                let values = values.difference(&after[label]);
                gone.extend(values.map(|value| format!("{name}{{{label}={value:?}}}")));
            }
        }
    }
    gone
}

/// Returns the values of each label.
fn labels<'a>(family: &'a Family<'_>) -> BTreeMap<&'static str, BTreeSet<&'a str>> {
    let mut values: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (label, value) in family.series.iter().flat_map(|series| &series.labels) {
        values.entry(*label).or_default().insert(value.as_str());
    }
    values
}

/// Returns the metrics that keep all their series without `item` but do not count everything, and those that only a
/// server with another policy, or one watched for long enough, has.
fn incomplete(item: Item) -> &'static [&'static str] {
    match item {
        Item::Result(kind) if kind.description == EVICTION_CALL.description => &[BY_RESULT],
        Item::Function(kind) | Item::Inner(kind) if kind.description == EVICTION_CALL.description => {
            &[LIMIT_REACHED, WOULD_ADD]
        }
        Item::Member(Member::UsedMemory | Member::StatNumcommands) => &[LIMIT_REACHED, WOULD_ADD],
        Item::Member(Member::Maxmemory) => &[LIMIT_REACHED],
        Item::Member(Member::StatClientsTypeMemory) => &[SELF_AMPLIFYING, LIMIT_REACHED, WOULD_ADD],
        // A server that evicts all the time is in the probe mode sampled, in which these are estimated from it.
        Item::Member(Member::StatEvictedkeys) => &[CPU_BY_EVICTION, STALLS_BY_EVICTION, LIMIT_REACHED, WOULD_ADD],
        Item::Member(Member::EvictionPool | Member::MaxmemoryPolicy) => &[CANDIDATE_TTL],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    use evictscope_abi::VARIABLES;
    use evictscope_model::Member;
    use evictscope_plan::{EVICTION_CALL, EXPIRE_CYCLE, FunctionKind, Item};

    use super::{ALERTS, Lost, lost};

    const RULES: &str = include_str!("../../../../dashboards/rules/alerts.yaml");
    const RECORDED: &str = include_str!("../../../../dashboards/rules/recording.yaml");

    /// Returns every item that can be missing.
    fn items() -> Vec<Item> {
        let mut items = vec![Item::Plan, Item::DebugInfo, Item::Version];
        for (index, traced) in [EVICTION_CALL, EXPIRE_CYCLE].into_iter().enumerate() {
            let description = traced.description;
            let kind = FunctionKind { index, description };
            items.extend([Item::Function(kind), Item::Entry(kind), Item::Inner(kind)]);
            items.extend([Item::Exits(kind), Item::Result(kind)]);
        }
        items.extend(VARIABLES.map(Item::Quantity));
        items.extend([Item::CycleType, Item::KeysSampled, Item::KeysExpired]);
        items.extend(Member::ALL.iter().map(|member| Item::Member(*member)));
        items
    }

    #[test]
    fn what_is_lost_by_each_item() -> std::fmt::Result {
        let mut text = String::new();
        for item in items() {
            let Lost { metrics, alerts } = lost(item);
            writeln!(text, "{item}:")?;
            let alerts = alerts.into_iter().map(str::to_owned);
            for name in metrics.into_iter().chain(alerts) {
                writeln!(text, "  {name}")?;
            }
        }
        insta::with_settings!({ omit_expression => true }, {
            insta::assert_snapshot!(text);
        });
        Ok(())
    }

    /// Returns an alert's rule, with the recording rules that it uses.
    fn rule(alert: &str) -> String {
        let rest = RULES.split(&format!("- alert: {alert}\n")).nth(1);
        let rest = rest.unwrap_or_else(|| panic!("there is no alert {alert}"));
        let mut rule = rest.split("labels:").next().unwrap_or_default().to_owned();
        let recorded = Vec::from_iter(RECORDED.split("- record: ").skip(1));
        // A recording rule may use an earlier one.
        for recorded in recorded.into_iter().rev() {
            let name = recorded.lines().next().unwrap_or_default();
            if rule.contains(name) {
                rule += recorded;
            }
        }
        rule
    }

    #[test]
    fn each_alert_about_a_server_asks_for_what_it_needs() {
        let about_servers = RULES.split("- name: evictscope-agent").next();
        let alerts = about_servers.unwrap_or_default().split("- alert: ").skip(1);
        let names: Vec<&str> = alerts.filter_map(|alert| alert.lines().next()).collect();
        assert_eq!(names, ALERTS.map(|(alert, _)| alert));
        for (alert, needed) in ALERTS {
            let rule = rule(alert);
            for metric in needed {
                let family = metric.split('{').next().unwrap_or_default();
                assert!(rule.contains(family), "{alert}: {metric}");
            }
        }
    }

    /// Returns the items that the alert about items not found names.
    fn alerted_items() -> BTreeSet<String> {
        let after = RULES.split("evictscope_not_found{item=~\"").nth(1);
        let items = after.and_then(|after| after.split('"').next());
        let items = items.unwrap_or_default().split('|');
        items.map(str::to_owned).collect()
    }

    #[test]
    fn the_alert_on_what_was_not_found_is_about_what_costs_an_alert() {
        // The setting `maxmemory` has a clause of its own, because a goal variable has the same name.
        let maxmemory = Item::Member(Member::Maxmemory);
        let mut costly = items();
        costly.retain(|item| *item != maxmemory && !lost(*item).alerts.is_empty());
        let costly: BTreeSet<String> = costly.iter().map(Item::to_string).collect();
        assert_eq!(alerted_items(), costly);
        assert!(!lost(maxmemory).alerts.is_empty());
        assert!(RULES.contains("evictscope_not_found{item=\"maxmemory\"}"));
    }
}
