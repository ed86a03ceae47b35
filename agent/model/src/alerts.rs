//! The alerts: one file for the rules (`dashboards/src`), docs/ALERTS.md, and what the agent says of them.

use std::sync::LazyLock;

use serde::Deserialize;

/// An alert of `dashboards/rules/alerts.yaml`.
#[derive(Debug, Deserialize)]
pub struct Alert {
    /// Its name, which is also that of its runbook.
    pub name: &'static str,
    /// The metrics of a server without which it cannot fire, or not for every cause; none for an alert about the agent.
    pub needs: Vec<String>,
}

/// A number that an alert compares with.
#[derive(Debug, Deserialize)]
struct Threshold {
    name: &'static str,
    value: &'static str,
}

#[derive(Debug, Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
struct Table {
    thresholds: Vec<Threshold>,
    alerts: Vec<Alert>,
}

/// The file, read once; a test shows that it can be read.
static TABLE: LazyLock<Table> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../dashboards/src/alerts.json")).unwrap_or_default());

/// All of them, in the order of the rules.
pub static ALERTS: LazyLock<&[Alert]> = LazyLock::new(|| &TABLE.alerts);

/// Returns a number that an alert compares with, by its name in the file; `None` if that is not a plain number.
pub fn threshold(name: &str) -> Option<f64> {
    TABLE.thresholds.iter().find(|threshold| threshold.name == name)?.value.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{ALERTS, threshold};

    const RULES: &str = include_str!("../../../dashboards/rules/alerts.yaml");
    const RECORDED: &str = include_str!("../../../dashboards/rules/recording.yaml");
    const DOCUMENTED: &str = include_str!("../../../docs/ALERTS.md");

    /// Returns an alert's rule, with the recording rules that it uses.
    fn rule(alert: &str) -> String {
        let rest = RULES.split(&format!("- alert: {alert}\n")).nth(1);
        let mut rule = rest.and_then(|rest| rest.split("labels:").next()).unwrap_or_default().to_owned();
        let recorded = Vec::from_iter(RECORDED.split("- record: ").skip(1));
        // A recording rule may use an earlier one.
        for recorded in recorded.into_iter().rev() {
            if recorded.lines().next().is_some_and(|name| rule.contains(name)) {
                rule += recorded;
            }
        }
        rule
    }

    #[test]
    fn rules_and_documentation_have_these_alerts() {
        let names: Vec<&str> = ALERTS.iter().map(|alert| alert.name).collect();
        let rules: Vec<&str> = RULES.split("- alert: ").skip(1).filter_map(|rule| rule.lines().next()).collect();
        assert_eq!(names, rules);
        let rows = DOCUMENTED.lines().filter_map(|row| row.strip_prefix("| [")?.split(']').next());
        assert_eq!(names, rows.collect::<Vec<_>>());
        for name in names {
            assert!(DOCUMENTED.contains(&format!("(runbooks/{name}.md)")), "{name}");
        }
    }

    #[test]
    fn each_alert_about_a_server_asks_for_what_it_needs() {
        let about_servers = RULES.split("- name: evictscope-agent").next().unwrap_or_default();
        for alert in *ALERTS {
            let is_about_server = about_servers.contains(&format!("- alert: {}\n", alert.name));
            assert_eq!(is_about_server, !alert.needs.is_empty(), "{}", alert.name);
            let rule = rule(alert.name);
            for needed in &alert.needs {
                let family = needed.split('{').next().unwrap_or_default();
                assert!(rule.contains(family), "{}: {needed}", alert.name);
            }
        }
    }

    #[test]
    fn a_threshold_has_the_value_of_the_rules() {
        assert!(RULES.contains("evictscope_eviction_call_longest_seconds > 0.1"));
        assert_eq!(threshold("SlowCall"), Some(0.1));
        assert_eq!(threshold("Nothing"), None);
    }
}
