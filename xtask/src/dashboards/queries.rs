//! Finds the queries in the JSON of a dashboard, and fills in their variables.

use anyhow::{Context as _, Result, bail, ensure};
use evictscope_drawing::place;
use serde::Deserialize;

/// A query of a dashboard.
#[derive(Debug)]
pub struct Query {
    /// Its dashboard, panel and letter.
    pub place: String,
    /// PromQL, without variables.
    pub text: String,
    /// What it asks for.
    pub kind: Kind,
}

/// What a query asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    /// The present values.
    Now,
    /// Values over time.
    Range,
    /// The values that a label has among the series of the query.
    Label(String),
}

#[derive(Deserialize)]
struct Dashboard {
    title: String,
    panels: Vec<Panel>,
    templating: List<Variable>,
    annotations: List<Annotation>,
}

#[derive(Deserialize)]
struct List<T> {
    // A dashboard without annotations has no list of them.
    #[serde(default = "Vec::new")]
    list: Vec<T>,
}

#[derive(Deserialize)]
struct Panel {
    title: String,
    #[serde(default)]
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    expr: String,
    #[serde(rename = "refId")]
    letter: String,
    #[serde(default)]
    instant: bool,
}

#[derive(Deserialize)]
struct Variable {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    query: String,
}

#[derive(Deserialize)]
struct Annotation {
    name: String,
    target: Target,
}

/// Returns the queries of a dashboard about this server, for all jobs and instances, in a Prometheus that
/// scrapes once a second.
pub fn of_dashboard(json: &str, server: &str) -> Result<Vec<Query>> {
    let variables = &[
        // The longer names first: they begin with the shorter ones.
        ("__rate_interval", "4s"),
        ("__interval", "1s"),
        ("__range", "2m"),
        ("instance", ".+"),
        ("server", server),
        ("job", ".+"),
    ];
    let dashboard: Dashboard =
        serde_json::from_str(json).context("cannot understand a dashboard")?;
    let mut queries = Vec::new();
    let title = &dashboard.title;
    let panels = dashboard
        .panels
        .iter()
        .flat_map(|panel| panel.targets.iter().map(|target| (&panel.title, target)));
    let annotations = dashboard.annotations.list.iter();
    let annotations = annotations.map(|annotation| (&annotation.name, &annotation.target));
    for (name, target) in panels.chain(annotations) {
        queries.push(Query {
            place: place(title, name, &target.letter),
            text: filled_in(&target.expr, variables)?,
            kind: if target.instant {
                Kind::Now
            } else {
                Kind::Range
            },
        });
    }
    for variable in dashboard.templating.list {
        if variable.kind != "query" {
            continue;
        }
        let inner = variable.query.strip_prefix("label_values(");
        let inner = inner.and_then(|rest| rest.strip_suffix(')'));
        let (series, label) = inner
            .and_then(|inner| inner.rsplit_once(','))
            .with_context(|| format!("not label_values(series, label): {}", variable.query))?;
        queries.push(Query {
            place: format!("{title} / variable {}", variable.name),
            text: filled_in(series, variables)?,
            kind: Kind::Label(label.trim().to_owned()),
        });
    }
    ensure!(!queries.is_empty(), "{title} has no query");
    Ok(queries)
}

/// Fills the values of its variables into a query.
fn filled_in(query: &str, variables: &[(&str, &str)]) -> Result<String> {
    let mut text = query.to_owned();
    for (name, value) in variables {
        text = text.replace(&format!("${name}"), value);
    }
    if text.contains('$') {
        bail!("a variable is left in {text}");
    }
    Ok(text)
}

/// Returns the series that an expression of a rule selects.
pub fn selectors(expression: &str) -> Vec<String> {
    const NAMES: [&str; 4] = [
        "evictscope_",
        "server:evictscope_",
        "redis_instance_info",
        "up{",
    ];
    let in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_:".contains(&byte);
    let bytes = expression.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let begins = (at == 0 || !in_name(bytes[at - 1]))
            && NAMES
                .iter()
                .any(|name| bytes[at..].starts_with(name.as_bytes()));
        if !begins {
            at += 1;
            continue;
        }
        let mut end = at;
        while end < bytes.len() && in_name(bytes[end]) {
            end += 1;
        }
        if bytes.get(end) == Some(&b'{') {
            end += expression[end..].find('}').map_or(0, |length| length + 1);
        }
        found.push(expression[at..end].to_owned());
        at = end;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_of_panels_annotations_and_variables_are_found() -> Result<()> {
        let json = r#"{"title": "D",
            "panels": [{"title": "P", "targets": [
                {"expr": "rate(a{job=~\"$job\"}[$__rate_interval])", "refId": "A", "range": true},
                {"expr": "b", "refId": "B", "instant": true}]}],
            "templating": {"list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                {"name": "job", "type": "query", "query": "label_values(c{x=\"1\",y=\"2\"}, job)"}]},
            "annotations": {"list": [{"name": "N", "target": {"expr": "d", "refId": "Anno"}}]}}"#;
        let queries = of_dashboard(json, "6379")?;
        let seen: Vec<_> = queries
            .iter()
            .map(|query| (query.place.as_str(), query.text.as_str(), &query.kind))
            .collect();
        let label = Kind::Label("job".to_owned());
        assert_eq!(
            seen,
            [
                ("D / P / A", "rate(a{job=~\".+\"}[4s])", &Kind::Range),
                ("D / P / B", "b", &Kind::Now),
                ("D / N / Anno", "d", &Kind::Range),
                ("D / variable job", "c{x=\"1\",y=\"2\"}", &label),
            ]
        );
        assert!(of_dashboard(&json.replace("$job", "$unknown"), "6379").is_err());
        Ok(())
    }

    #[test]
    fn the_selectors_of_an_expression_are_found() {
        let text = "server:evictscope_a:p99 > 3 * evictscope_b{kind=\"x\"} and on (server) \
                    (rate(evictscope_c[5m]) == 0) unless up{job=~\"e.*\"} == 0";
        assert_eq!(
            selectors(text),
            [
                "server:evictscope_a:p99",
                "evictscope_b{kind=\"x\"}",
                "evictscope_c",
                "up{job=~\"e.*\"}"
            ]
        );
    }
}
