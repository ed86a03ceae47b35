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
mod stat;
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
    panel::{Content, Item, Panel, Place, Row},
};

/// The width of the screen in pixels. With the height of what is above the panels, 26 rows of the grid fill the
/// 1080 pixels of its height, as in Grafana.
const WIDTH: u32 = 1920;
/// The height of what is above the panels in pixels: Grafana's bar and the dashboard's variables.
const HEADING: u32 = 92;
/// The pixels on both sides of the panels.
const SIDE: u32 = 12;
/// The size of a cell of the grid in pixels, and the space between two panels.
const CELL: (u32, u32) = (79, 38);
const GAP: u32 = 8;
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
    /// From one point to the next, in seconds.
    pub step: f64,
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
    panels: Vec<Item>,
}

/// Which part of a dashboard is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// What is there when it opens: its rows are folded.
    Opened,
    /// The panels of its rows.
    Rows,
}

/// Draws a part of a dashboard, given as Grafana's JSON, as SVG. Returns nothing for the rows of a dashboard
/// that has none.
///
/// # Errors
///
/// Fails where the JSON is not a dashboard, or has a type of panel that cannot be drawn.
pub fn draw(dashboard: &str, recording: &Recording, part: Part) -> Result<Option<String>> {
    let Dashboard { title, panels } =
        serde_json::from_str(dashboard).context("cannot understand the dashboard")?;
    let items = match part {
        Part::Opened => panels,
        Part::Rows => unfolded(panels),
    };
    let Some(rows) = items.iter().map(Item::bottom).max() else {
        return Ok(None);
    };
    let size = (WIDTH, HEADING + rows * CELL.1);
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
    root.draw(&Text::new(title.as_str(), (SIDE as i32 + 8, 34), font(24)))?;
    let caption = format!(
        "{} to {} UTC, drawn from Prometheus' answers by cargo xtask dashboards --draw",
        units::text("time", recording.start),
        units::time_of_day(recording.end)
    );
    let right = font(14).pos(Pos::new(HPos::Right, VPos::Top));
    let corner = ((WIDTH - SIDE) as i32 - 8, 40);
    root.draw(&Text::new(caption, corner, right))?;
    for item in &items {
        match item {
            Item::Row(row) => draw_row(&area_at(&root, &row.at), row)?,
            Item::Panel(panel) => {
                let answer = |letter: &str| recording.answer(&title, &panel.title, letter);
                let content = Content {
                    panel,
                    series: panel.series(answer),
                    times: recording.start..recording.end,
                    step: recording.step,
                    marks: &marks,
                };
                draw_panel(&area_at(&root, &panel.at), &content)
                    .with_context(|| format!("cannot draw the panel {}", panel.title))?;
            }
        }
    }
    root.present()?;
    drop(root);
    Ok(Some(svg))
}

/// Returns the rows of a dashboard with their panels, one below the other.
fn unfolded(items: Vec<Item>) -> Vec<Item> {
    let mut all = Vec::new();
    let mut top = 0;
    for item in items {
        let Item::Row(mut row) = item else {
            continue;
        };
        let from = row.at.y;
        let moved = |at: &mut Place| at.y = at.y - from + top;
        moved(&mut row.at);
        let mut bottom = row.at.y + row.at.h;
        let panels = std::mem::take(&mut row.panels);
        all.push(Item::Row(row));
        for mut panel in panels {
            moved(&mut panel.at);
            bottom = bottom.max(panel.at.y + panel.at.h);
            all.push(Item::Panel(panel));
        }
        top = bottom;
    }
    all
}

/// Returns the part of the picture at a place in the grid.
fn area_at<'a>(root: &Area<'a>, at: &Place) -> Area<'a> {
    let corner = (SIDE + at.x * CELL.0, HEADING + at.y * CELL.1);
    root.clone()
        .shrink(corner, (at.w * CELL.0 - GAP, at.h * CELL.1 - GAP))
}

/// Draws the heading of a row that folds.
fn draw_row(area: &Area<'_>, row: &Row) -> Result<()> {
    let folded = !row.panels.is_empty();
    let text = match folded {
        true => format!("▸ {}  ({} panels)", row.title, row.panels.len()),
        false => format!("▾ {}", row.title),
    };
    Ok(area.draw(&Text::new(text, (10, 6), font(16)))?)
}

fn draw_panel(area: &Area<'_>, content: &Content<'_>) -> Result<()> {
    let Panel { title, kind, .. } = content.panel;
    let (width, height) = area.dim_in_pixel();
    let corners = [(0, 0), (width as i32 - 1, height as i32 - 1)];
    area.draw(&Rectangle::new(corners, WHITE.filled()))?;
    area.draw(&Rectangle::new(corners, FRAME.stroke_width(1)))?;
    area.draw(&Text::new(title.as_str(), (10, 8), font(14)))?;
    let inside = area.clone().shrink((8, 32), (width - 16, height - 36));
    match kind.as_str() {
        "stat" => stat::draw(&inside, content),
        _ if content.series.is_empty() => say_no_data(&inside),
        "table" => table::draw(&inside, content),
        "timeseries" => lines::draw(&inside, content),
        "state-timeline" => squares::states(&inside, content),
        "heatmap" => squares::heat_map(&inside, content),
        _ => bail!("panels of type {kind} cannot be drawn"),
    }
}
