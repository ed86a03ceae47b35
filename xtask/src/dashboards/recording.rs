//! The answers of a Prometheus, kept in a file, and the dashboards drawn from them.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};
use evictscope_drawing::{Part, Recording};
use evictscope_testkit::{
    clock::unix_time,
    prometheus::{JOB, Prometheus, Series},
    workspace,
};

use super::{answers::Answers, folders};

/// Keeps the answers to the queries of the dashboards, from the first scrape after `start` (seconds
/// since 1970) on.
pub fn keep(prometheus: &Prometheus, answers: Answers, start: f64) -> Result<()> {
    let up = prometheus.since(start, &format!("up{{job=\"{JOB}\"}} == 1"))?;
    let first = up.iter().flat_map(|series| series.points.first()).next();
    let (start, _) = *first.context("the agent was never scraped")?;
    let finite = |series: Series| {
        let points = series.points.into_iter();
        evictscope_drawing::Series {
            labels: series.labels,
            points: points.filter(|(_, value)| value.is_finite()).collect(),
        }
    };
    let answers = answers.into_iter().map(|(place, series)| {
        let series = series.into_iter().map(finite).collect();
        (place, series)
    });
    let kept = Recording {
        start,
        end: unix_time()?,
        step: prometheus.pace().as_secs_f64(),
        answers: answers.collect(),
    };
    let path = path()?;
    fs::write(&path, serde_json::to_vec(&kept)?)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Draws every dashboard into `docs/images`, from the answers that were kept last.
pub fn draw() -> Result<()> {
    let kept = folders::read(&path()?).context("run `cargo xtask dashboards --live` first")?;
    let recording = serde_json::from_str(&kept).context("cannot understand the kept answers")?;
    let images = workspace::root().join("docs/images");
    for file in folders::dashboards(&folders::sources())? {
        let (json, name) = (folders::read(&file)?, file.file_stem());
        let name = name.and_then(|name| name.to_str());
        let name = name.context("a dashboard has no name")?;
        for (part, suffix) in [(Part::Opened, ""), (Part::Rows, "-rows")] {
            let svg = evictscope_drawing::draw(&json, &recording, part)
                .with_context(|| format!("cannot draw {}", file.display()))?;
            let Some(svg) = svg else {
                continue;
            };
            let to = images.join(format!("{name}{suffix}.svg"));
            fs::write(&to, svg).with_context(|| format!("cannot write {}", to.display()))?;
            println!("written        {}", to.display());
        }
    }
    Ok(())
}

fn path() -> Result<PathBuf> {
    Ok(folders::built()?.join("answers.json"))
}
