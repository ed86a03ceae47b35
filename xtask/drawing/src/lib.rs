//! Draws Grafana dashboards as SVG, from what Prometheus answered to their queries.
//!
//! There is no Grafana here: the layout, titles, units, colours and thresholds are those of the
//! dashboard's JSON. Of Grafana's types of panels and transformations, only those that this
//! repository's dashboards use can be drawn. There is no I/O.

mod axis;
mod canvas;
mod lines;
mod panel;
mod squares;
mod table;
mod units;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use serde::{Deserialize, Serialize};

use self::{
    canvas::{Area, FRAME, font, say_no_data},
    panel::{Content, Panel},
};

/// The width of a dashboard in pixels.
const WIDTH: u32 = 1200;
/// The height of its heading in pixels.
const HEADING: u32 = 34;
/// The size of a cell of its grid in pixels.
const CELL: (u32, u32) = (50, 30);
const BACKGROUND: RGBColor = RGBColor(244, 245, 245);

/// One series of an answer.
#[derive(Serialize, Deserialize)]
pub struct Series {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its times, in seconds since 1970, and finite values.
    pub points: Vec<(f64, f64)>,
}

/// The answers to the queries of some dashboards, over one time range.
#[derive(Serialize, Deserialize)]
pub struct Recording {
    /// The beginning of the range, in seconds since 1970.
    pub start: f64,
    /// Its end.
    pub end: f64,
    /// The answer to each query, by its [`place`].
    pub answers: BTreeMap<String, Vec<Series>>,
}

impl Recording {
    fn answer(&self, dashboard: &str, panel: &str, letter: &str) -> &[Series] {
        let answer = self.answers.get(&place(dashboard, panel, letter));
        answer.map_or(&[], Vec::as_slice)
    }
}

/// Returns where a query is: the title of its dashboard, the title of its panel or annotation, and its
/// letter (`refId`).
pub fn place(dashboard: &str, panel: &str, letter: &str) -> String {
    format!("{dashboard} / {panel} / {letter}")
}

#[derive(Deserialize)]
struct Dashboard {
    title: String,
    panels: Vec<Panel>,
}

/// Draws a dashboard, given as Grafana's JSON, as SVG.
///
/// # Errors
///
/// Fails where the JSON is not a dashboard, or has a type of panel that cannot be drawn.
pub fn draw(dashboard: &str, recording: &Recording) -> Result<String> {
    let Dashboard { title, panels } =
        serde_json::from_str(dashboard).context("cannot understand the dashboard")?;
    let rows = panels.iter().map(|panel| panel.at.y + panel.at.h).max();
    let size = (WIDTH, HEADING + rows.unwrap_or(0) * CELL.1);
    // The annotation has the times at which bursts began as values, in milliseconds.
    let bursts = recording.answer(&title, "Bursts", "Anno").iter();
    let mut marks: Vec<f64> = bursts
        .flat_map(|series| series.points.iter().map(|(_, value)| value / 1000.0))
        .filter(|mark| (recording.start..recording.end).contains(mark))
        .collect();
    marks.dedup();
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    root.fill(&BACKGROUND)?;
    root.draw(&Text::new(title.as_str(), (10, 10), font(16)))?;
    let caption = format!(
        "{} to {} UTC, drawn from Prometheus' answers by cargo xtask dashboards --draw",
        units::text("time", recording.start),
        units::time_of_day(recording.end)
    );
    let right = font(12).pos(Pos::new(HPos::Right, VPos::Top));
    root.draw(&Text::new(caption, (WIDTH as i32 - 10, 12), right))?;
    for panel in &panels {
        let at = &panel.at;
        let corner = (at.x * CELL.0 + 3, HEADING + at.y * CELL.1 + 3);
        let size = (at.w * CELL.0 - 6, at.h * CELL.1 - 6);
        let answer = |letter: &str| recording.answer(&title, &panel.title, letter);
        let content = Content {
            panel,
            series: panel.series(answer),
            times: recording.start..recording.end,
            marks: &marks,
        };
        draw_panel(&root.clone().shrink(corner, size), &content)
            .with_context(|| format!("cannot draw the panel {}", panel.title))?;
    }
    root.present()?;
    drop(root);
    Ok(svg)
}

fn draw_panel(area: &Area<'_>, content: &Content<'_>) -> Result<()> {
    let Panel { title, kind, .. } = content.panel;
    let (width, height) = area.dim_in_pixel();
    let corners = [(0, 0), (width as i32 - 1, height as i32 - 1)];
    area.draw(&Rectangle::new(corners, WHITE.filled()))?;
    area.draw(&Rectangle::new(corners, FRAME.stroke_width(1)))?;
    area.draw(&Text::new(title.as_str(), (10, 8), font(13)))?;
    let inside = area.clone().shrink((8, 28), (width - 16, height - 32));
    match kind.as_str() {
        _ if content.series.is_empty() => say_no_data(&inside),
        "stat" => table::stat(&inside, content),
        "table" => table::draw(&inside, content),
        "timeseries" => lines::draw(&inside, content),
        "state-timeline" => squares::states(&inside, content),
        "heatmap" => squares::heat_map(&inside, content),
        _ => bail!("panels of type {kind} cannot be drawn"),
    }
}
