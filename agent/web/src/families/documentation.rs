//! Tests that `docs/METRICS.md` describes all exported families, and no others: name, type, labels,
//! values of labels, unit, bounds of buckets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use evictscope_model::{Member, catalogue};
use evictscope_plan::{FunctionPlan, Method};
use evictscope_records::explain::CauseKind;
use evictscope_records::{Causes, Ending, KeeperCounts};
use evictscope_telemetry::{BrokenInvariant, Candidate, Snapshot, SocketLook, ThreadTimes};
use prometheus::core::Collector as _;
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::{Metric, MetricFamily};

use super::{families, loop_last_turn, of_server, records, servers_ended, servers_unwatched};
use crate::exported::ExportedServer;
use crate::fixture::{before_a_burst, busy_server, partial_server};

const METRICS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/METRICS.md");

/// A family as it is documented or exported.
#[derive(Debug, Default, PartialEq, Eq)]
struct Description {
    kind: String,
    /// Labels, and the values of each label that has a fixed set of them.
    labels: BTreeMap<String, BTreeSet<String>>,
    /// The bounds of a histogram, in words.
    bounds: Option<String>,
}

/// Returns servers that between them have a series of each family and each value of each label.
fn servers() -> Vec<Arc<ExportedServer>> {
    let mut busy = busy_server();
    busy.overhead_ratio = Some(0.001);
    busy.cycle = Some(before_a_burst());
    busy.state.apply(&Snapshot {
        at: Duration::from_secs(3),
        look: Some(SocketLook::default()),
        candidate: Some(Candidate::Ttl(Duration::ZERO)),
        ..Snapshot::default()
    });
    // A replica that spins, and of which that is not known afterwards.
    let mut replica = busy_server();
    for (second, threads) in [(4, 2), (5, 2), (6, 3)] {
        let own = [
            (Member::Maxmemory, 1),
            (Member::Masterhost, 1),
            (Member::ReplSlaveIgnoreMaxmemory, 1),
            (Member::Loading, 0),
            (Member::IoThreadsNum, threads),
        ];
        let active = (threads == 2).then_some((Member::StatActiveTime, second));
        replica.state.apply(&Snapshot {
            at: Duration::from_secs(second),
            members: Some(own.into_iter().chain(active).collect()),
            times: Some(ThreadTimes { cpu_ns: second * 1_000_000_000, waiting_ns: 0 }),
            ..Snapshot::default()
        });
    }
    let mut plan = (*busy.plan).clone();
    if let FunctionPlan::Eviction(planned) = &mut plan.functions[0].plan {
        for (quantity, method) in planned.iter_mut().zip([Method::Both, Method::Dwarf]) {
            quantity.method = method;
        }
    }
    if let FunctionPlan::Expire(planned) = &mut plan.functions[1].plan {
        for start in &mut planned.starts {
            start.job.clone_from(&start.cycle_type);
        }
    }
    busy.plan = Arc::new(plan);
    let counted = &mut busy.state.counted;
    for count in counted.evictions.evicting_results.iter_mut().chain(&mut counted.faults) {
        *count += 1;
    }
    let withdrawn = BrokenInvariant::ALL.map(|(reason, _)| ExportedServer { withdrawn: Some(reason), ..busy_server() });
    [busy, busy_server(), replica, partial_server()].into_iter().chain(withdrawn).map(Arc::new).collect()
}

fn exported() -> Vec<MetricFamily> {
    let mut all = families(&servers());
    all.push(servers_unwatched(&[]));
    let ended = ExportedServer { ended: Some((Duration::ZERO, Ending::Unknown)), ..busy_server() };
    all.extend(servers_ended(Ending::HOW.map(|how| (how, 1)), &[Arc::new(ended)]));
    all.push(loop_last_turn(Duration::from_secs(1_700_000_000)));
    all.extend(records(KeeperCounts::default(), &Causes::from([((String::new(), CauseKind::Data), 1)])));
    all.extend(ProcessCollector::for_self().collect());
    all
}

fn truth(family: &MetricFamily) -> Description {
    let mut labels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for pair in family.get_metric().iter().flat_map(|one| one.get_label()) {
        labels.entry(pair.name().to_owned()).or_default().insert(pair.value().to_owned());
    }
    let of_metric = |metric: &Metric| {
        let bounds = metric.get_histogram().get_bucket().iter().map(|bucket| bucket.upper_bound());
        bounds.filter(|bound| bound.is_finite()).collect()
    };
    let bounds = family.get_metric().iter().map(of_metric);
    let bounds = bounds.filter(|bounds: &Vec<f64>| !bounds.is_empty());
    let bounds: BTreeSet<String> = bounds.map(|bounds| in_words(&bounds)).collect();
    let bounds = Vec::from_iter(bounds).join(" or ");
    Description {
        kind: format!("{:?}", family.get_field_type()).to_lowercase(),
        labels,
        bounds: Some(bounds).filter(|bounds| !bounds.is_empty()),
    }
}

/// Returns bounds as the documentation writes them: `powers of 4, 64 KiB … 64 GiB`, or
/// `1-2-5, 0.1 … 20, 30, 60`, or `0.05, 0.1 … 0.2 in steps of a tenth at most, 1`.
fn in_words(bounds: &[f64]) -> String {
    let fine = || bounds.windows(2).map(|pair: &[f64]| pair[1] / pair[0] < 1.1001);
    if let (Some(first), Some(last)) = (fine().position(|fine| fine), fine().rposition(|fine| fine)) {
        let list = |bounds: &[f64]| Vec::from_iter(bounds.iter().map(f64::to_string)).join(", ");
        let (from, to) = (list(&bounds[..=first]), list(&bounds[last + 1..]));
        let (end, rest) = to.split_once(", ").unwrap_or((&to, ""));
        assert!(fine().skip(first).take(last - first + 1).all(|fine| fine));
        return format!("{from} … {end} in steps of a tenth at most, {rest}");
    }
    let last = bounds[bounds.len() - 1];
    if bounds[0] >= 64.0 {
        let power = bounds[1] / bounds[0];
        assert!(bounds.windows(2).all(|pair| pair[1] / pair[0] == power), "no powers of {power}: {bounds:?}");
        return format!("powers of {power}, {} … {}", bytes(bounds[0]), bytes(last));
    }
    let step = |pair: &[f64]| (pair[1] / pair[0] * 2.0).round() / 2.0;
    let regular = bounds.windows(2).take_while(|pair| {
        let digit = pair[1] / 10_f64.powf(pair[1].log10().floor() + 1e-9);
        step(pair) == if digit.round() == 5.0 { 2.5 } else { 2.0 }
    });
    let last = regular.count();
    let mut words =
        if last == 0 { bounds[0].to_string() } else { format!("1-2-5, {} … {}", bounds[0], bounds[last]) };
    for bound in &bounds[last + 1..] {
        words += &format!(", {bound}");
    }
    words
}

fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (value.log2() / 10.0).floor();
    format!("{} {}", value / 1024_f64.powf(power), units[power as usize])
}

/// Returns the rows of the tables: the name, the description, and the unit.
fn documented(text: &str) -> Vec<(&str, Description, &str)> {
    let mut rows = Vec::new();
    let mut beside_server = false;
    for line in text.lines() {
        if line.starts_with("| name |") {
            beside_server = line.contains("beside `server`");
        }
        let cells: Vec<&str> = line.split(" | ").collect();
        let [first, kind, unit, ..] = cells.as_slice() else { continue };
        let Some(name) = first.strip_prefix("| `") else { continue };
        let (kind, labels) = kind.split_once(", ").unwrap_or((kind, ""));
        let mut labels = labels_of(labels);
        if beside_server {
            labels.insert("server".to_owned(), BTreeSet::new());
        }
        let bounds = unit.split_once("; ").map(|(_, bounds)| bounds.to_owned());
        let said = Description { kind: kind.to_owned(), labels, bounds: bounds.filter(|_| kind == "histogram") };
        rows.push((name.trim_end_matches('`'), said, *unit));
    }
    rows
}

/// Reads "`a`, `b` = `1`, `2`; `c` = whatever" as labels and the values that are listed.
fn labels_of(cell: &str) -> BTreeMap<String, BTreeSet<String>> {
    fn quoted(text: &str) -> impl Iterator<Item = String> {
        text.split('`').skip(1).step_by(2).map(str::to_owned)
    }
    let mut labels = BTreeMap::new();
    for group in cell.split("; ") {
        let (names, values) = group.split_once(" = ").unwrap_or((group, ""));
        labels.extend(quoted(names).map(|name| (name, BTreeSet::new())));
        if let Some(last) = quoted(names).last() {
            labels.insert(last, quoted(values).collect());
        }
    }
    labels
}

#[test]
fn the_documentation_describes_all_exported_families_and_no_others() -> std::io::Result<()> {
    let text = std::fs::read_to_string(METRICS)?;
    let rows = documented(&text);
    let exported = exported();
    let names: BTreeSet<&str> = exported.iter().map(|family| family.name()).collect();
    for family in of_server(&busy_server()) {
        assert!(names.contains(family.name), "no server has {}", family.name);
    }
    let said: BTreeSet<&str> = rows.iter().map(|(name, ..)| *name).collect();
    assert_eq!(said, names);
    assert_eq!(said.len(), rows.len(), "a family is documented twice");
    for (name, said, unit) in rows {
        let Some(family) = exported.iter().find(|one| one.name() == name) else { continue };
        let mut truth = truth(family);
        for (label, values) in &mut truth.labels {
            // If the documentation lists no values, any value is allowed, or another row lists them.
            if said.labels.get(label).is_some_and(BTreeSet::is_empty) {
                values.clear();
            }
        }
        assert_eq!(said, truth, "{name}");
        if let Some(metric) = catalogue::ALL.iter().find(|metric| metric.name == name) {
            assert!(unit == "likewise" || unit.split(';').next() == Some(metric.unit), "{name} is in {unit}");
            let labels: BTreeSet<&str> = truth.labels.keys().map(String::as_str).collect();
            let listed = metric.labels.iter().copied().chain(labels.get("server").copied());
            assert_eq!(labels, listed.collect(), "{name}");
        }
        for expected in ["seconds", "bytes"] {
            let in_name = name.trim_end_matches("_total").ends_with(expected);
            assert!(!in_name || unit.starts_with(expected), "{name} is in {unit}");
        }
    }
    Ok(())
}

#[test]
fn the_row_of_a_member_has_its_unit_and_what_info_calls_it() -> std::io::Result<()> {
    let text = std::fs::read_to_string(METRICS)?;
    let metric = |member: &Member| Some((*member, member.line().metric?));
    for (member, metric) in Member::ALL.iter().filter_map(metric) {
        let begin = format!("| `{}` |", metric.name);
        let row = text.lines().find(|line| line.starts_with(&begin));
        let cells: Vec<&str> = row.unwrap_or_default().split(" | ").collect();
        let [_, _, unit, meaning] = cells.as_slice() else { panic!("{}: {cells:?}", metric.name) };
        assert!(unit.starts_with(metric.unit), "{}: {unit}", metric.name);
        let shown = member.line().info.map(|shown| format!("`{shown}` of `INFO`"));
        assert!(shown.is_none_or(|shown| meaning.contains(&shown)), "{}: {meaning}", metric.name);
    }
    Ok(())
}
