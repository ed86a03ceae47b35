//! What a Prometheus answered to the queries of the dashboards, kept in a file to be drawn from.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::monitor::{JOB, Prometheus, Series};

/// Series by the place of the query that they answer: dashboard, panel and letter.
pub type Answers = BTreeMap<String, Vec<Series>>;

/// All answers of one time range.
#[derive(Serialize, Deserialize)]
pub struct Recording {
    /// Its beginning, seconds since 1970.
    pub start: f64,
    /// Its end.
    pub end: f64,
    answers: Answers,
}

impl Recording {
    /// Keeps the answers to the queries of the dashboards, from the first scrape after `start` (seconds
    /// since 1970) on.
    pub fn keep(prometheus: &Prometheus, mut answers: Answers, start: f64) -> Result<()> {
        let up = prometheus.since(start, &format!("up{{job=\"{JOB}\"}} == 1"))?;
        let first = up.iter().flat_map(|series| series.points.first()).next();
        let (start, _) = *first.context("the agent was never scraped")?;
        for series in answers.values_mut().flatten() {
            series.points.retain(|(_, value)| value.is_finite());
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
