use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use evictscope_abi::VARIABLES;
use evictscope_model::{Lost, Member, catalogue};
use evictscope_plan::{EVICTION_CALL, EXPIRE_CYCLE, FunctionKind, Item};
use evictscope_telemetry::{BrokenInvariant, ProbeMode};
use prometheus::TextEncoder;

use super::{Family, families, of_server};
use crate::ExportedServer;
use crate::fixture::{busy_server, complete_server, new_server, partial_server, server_without};

const RULES: &str = include_str!("../../../../dashboards/rules/alerts.yaml");

fn text_of(servers: impl IntoIterator<Item = ExportedServer>) -> prometheus::Result<String> {
    let servers: Vec<_> = servers.into_iter().map(Arc::new).collect();
    TextEncoder::new().encode_to_string(&families(&servers))
}

#[test]
fn the_text_of_made_up_servers() -> prometheus::Result<()> {
    let text = text_of([busy_server(), partial_server()])?;
    insta::with_settings!({ omit_expression => true }, {
        insta::assert_snapshot!(text.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    });
    Ok(())
}

#[test]
fn a_server_with_everything_has_225_series_at_most() -> prometheus::Result<()> {
    let text = text_of([ExportedServer { overhead_ratio: Some(0.001), ..busy_server() }])?;
    let series = text.lines().filter(|line| line.contains("server=\""));
    let count = series.count();
    assert!((170..=225).contains(&count), "{count} series");
    assert!(include_str!("../../../../dashboards/agent.json").contains("At most 225;"));
    Ok(())
}

/// Nothing that depends on a withdrawn plan is exported, nor are no-op calls while they are not counted; calls and
/// their variables are exported from the start.
#[test]
fn what_a_server_lacks_in_each_state() -> prometheus::Result<()> {
    let broken = [
        BrokenInvariant::Allocator,
        BrokenInvariant::Arithmetic,
        BrokenInvariant::Maxmemory,
        BrokenInvariant::LostExit,
    ];
    let withdrawn = broken.map(|broken| {
        let withdrawn = Some(broken);
        (format!("withdrawn: {broken}"), ExportedServer { withdrawn, ..busy_server() })
    });
    let (mode, cycles_withdrawn) = (ProbeMode::EvictingOnly, Some(BrokenInvariant::CycleTime));
    let others = [
        ("cycles withdrawn", ExportedServer { cycles_withdrawn, ..busy_server() }),
        ("evicting-only", ExportedServer { mode, ..busy_server() }),
        ("new", new_server()),
    ];
    let others = others.map(|(state, server)| (state.to_owned(), server));
    let whole = text_of([busy_server()])?;
    let series = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.contains("le=\""));
        lines.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let mut said = String::new();
    for (state, server) in withdrawn.into_iter().chain(others) {
        let (whole, text) = (series(&whole), series(&text_of([server])?));
        said += &format!("{state}:\n");
        whole.difference(&text).for_each(|line| said += &format!("- {line}\n"));
        text.difference(&whole).for_each(|line| said += &format!("+ {line}\n"));
    }
    insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(said) });
    Ok(())
}

fn items() -> Vec<Item> {
    let mut items = vec![Item::Plan, Item::DebugInfo, Item::Version];
    for (index, traced) in [EVICTION_CALL, EXPIRE_CYCLE].into_iter().enumerate() {
        let kind = FunctionKind { index, description: traced.description };
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
        let Lost { metrics, alerts } = item.lost();
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

/// Returns what `before` has of a family and `after` lacks: everything, labels, or values of labels.
fn gone(before: &Family<'_>, after: &Family<'_>) -> Vec<String> {
    let name = before.name;
    if after.series.is_empty() {
        return Vec::from_iter((!before.series.is_empty()).then(|| name.to_owned()));
    }
    let (before, after) = (labels(before), labels(after));
    let mut gone = Vec::new();
    for (label, values) in before {
        if values.is_disjoint(&after[label]) {
            gone.push(format!("{name}{{{label}}}"))
        } else {
            gone.extend(values.difference(&after[label]).map(|value| format!("{name}{{{label}={value:?}}}")));
        }
    }
    gone
}

fn labels<'a>(family: &'a Family<'_>) -> BTreeMap<&'static str, BTreeSet<&'a str>> {
    let mut values: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (label, value) in family.series.iter().flat_map(|series| &series.labels) {
        values.entry(*label).or_default().insert(value.as_str());
    }
    values
}

/// What the catalogue says that a metric needs is what it is not exported without.
#[test]
fn a_server_without_an_item_lacks_what_the_catalogue_says() {
    let complete = complete_server();
    let weaker = catalogue::ALL.iter().flat_map(|metric| {
        let needs = metric.needs.iter().filter(|needs| needs.is_weaker);
        needs.map(move |needs| format!("{}{}", metric.name, needs.part))
    });
    let weaker: BTreeSet<String> = weaker.collect();
    for item in items() {
        let Some(without) = server_without(item) else {
            assert_eq!(item.lost().metrics, ["evictscope_*"], "{item}");
            continue;
        };
        let families = of_server(&complete).into_iter().zip(of_server(&without));
        // Families about what was found have other series, not fewer.
        let families = families.filter(|(family, _)| !family.name.starts_with("evictscope_probe_"));
        let gone: BTreeSet<String> = families.flat_map(|(before, after)| gone(&before, &after)).collect();
        let lost = BTreeSet::from_iter(item.lost().metrics);
        assert!(gone.is_subset(&lost), "{item}: {gone:?}");
        assert!(lost.difference(&gone).all(|name| weaker.contains(name)), "{item}: {lost:?}");
    }
}

fn alerted_items() -> BTreeSet<String> {
    let after = RULES.split("evictscope_not_found{item=~\"").nth(1);
    after.and_then(|after| after.split('"').next()).unwrap_or_default().split('|').map(str::to_owned).collect()
}

#[test]
fn the_alert_on_what_was_not_found_is_about_what_costs_an_alert() {
    // The setting `maxmemory` has a clause of its own, because a goal variable has the same name.
    let maxmemory = Item::Member(Member::Maxmemory);
    let mut costly = items();
    costly.retain(|item| *item != maxmemory && !item.lost().alerts.is_empty());
    let costly: BTreeSet<String> = costly.iter().map(Item::to_string).collect();
    assert_eq!(alerted_items(), costly);
    assert!(!maxmemory.lost().alerts.is_empty());
    assert!(RULES.contains("evictscope_not_found{item=\"maxmemory\"}"));
}
