//! What a Prometheus answered to the queries of the dashboards, kept in a file to be drawn from.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::{
    monitor::{JOB, Prometheus, Series},
    queries::{self, Kind},
};

/// All answers of one time range.
#[derive(Serialize, Deserialize)]
pub struct Recording {
    /// Its beginning, seconds since 1970.
    pub start: f64,
    /// Its end.
    pub end: f64,
    /// The answers by the place of their query: dashboard, panel and letter.
    answers: BTreeMap<String, Vec<Series>>,
}

impl Recording {
    /// Asks every query of every dashboard in a directory for this server, from `start` (seconds since 1970) on, and
    /// keeps the answers.
    pub fn keep(
        prometheus: &Prometheus,
        dashboards: &Path,
        server: &str,
        start: f64,
    ) -> Result<()> {
        let up = prometheus.since(start, &format!("up{{job=\"{JOB}\"}} == 1"))?;
        let first = up.iter().flat_map(|series| series.points.first()).next();
        let (start, _) = *first.context("the agent was never scraped")?;
        let mut answers = BTreeMap::new();
        for file in super::files(dashboards)? {
            let json = fs::read_to_string(&file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            for query in queries::of_dashboard(&json, server)? {
                let mut series = match query.kind {
                    Kind::Now => prometheus.now(&query.text)?,
                    Kind::Range => prometheus.since(start, &query.text)?,
                    Kind::Label(_) => continue,
                };
                for one in &mut series {
                    one.points.retain(|(_, value)| value.is_finite());
                }
                answers.insert(query.place, series);
            }
        }
        let end = super::monitor::unix_time()?;
        let kept = Self {
            start,
            end,
            answers,
        };
        let path = path()?;
        fs::write(&path, serde_json::to_vec(&kept)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// What was kept last.
    pub fn load() -> Result<Self> {
        let path = path()?;
        let text = fs::read(&path).with_context(|| {
            format!(
                "cannot read {}: run `cargo xtask dashboards --live` first",
                path.display()
            )
        })?;
        serde_json::from_slice(&text)
            .with_context(|| format!("cannot understand {}", path.display()))
    }

    /// The answer to a query.
    pub fn answer(&self, dashboard: &str, panel: &str, letter: &str) -> &[Series] {
        let place = format!("{dashboard} / {panel} / {letter}");
        self.answers.get(&place).map_or(&[], Vec::as_slice)
    }
}

fn path() -> Result<PathBuf> {
    Ok(super::build_directory()?.join("answers.json"))
}
