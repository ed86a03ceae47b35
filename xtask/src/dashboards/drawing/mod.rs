//! `cargo xtask dashboards --draw`: the dashboards as SVG, in their own layout, from the answers that
//! `--live` kept. No Grafana is at hand here: what is drawn is what Prometheus answered to each panel's
//! queries, with the titles, units, colours and thresholds of its JSON.

mod axis;
mod lines;
mod panel;
mod squares;
mod table;
mod units;

use std::fs;

use anyhow::{Context as _, Result};
use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use self::panel::{Content, Dashboard, INK, Panel};
use super::recording::Recording;
use crate::workspace;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Pixels.
const WIDTH: u32 = 1200;
const HEADER: u32 = 34;
/// Of a cell of the grid.
const CELL: (u32, u32) = (50, 30);
/// Left of what has an axis of times, so that all of these stand above each other.
const AXIS: u32 = 80;
const BACKGROUND: RGBColor = RGBColor(244, 245, 245);
const FRAME: RGBColor = RGBColor(216, 217, 218);

/// Draws every dashboard into `docs/images`.
pub fn run() -> Result<()> {
    let recording = Recording::load()?;
    let directory = workspace::root().join("docs/images");
    for file in super::files(&super::directory())? {
        let json =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let dashboard: Dashboard = serde_json::from_str(&json)
            .with_context(|| format!("cannot understand {}", file.display()))?;
        let name = file.file_stem().context("a dashboard has no name")?;
        let to = directory.join(name).with_extension("svg");
        let svg = draw(&dashboard, &recording)
            .with_context(|| format!("cannot draw {}", file.display()))?;
        fs::write(&to, svg).with_context(|| format!("cannot write {}", to.display()))?;
        println!("written        {}", to.display());
    }
    Ok(())
}

fn draw(dashboard: &Dashboard, recording: &Recording) -> Result<String> {
    let rows = dashboard.panels.iter();
    let rows = rows.map(|panel| panel.grid_pos.y + panel.grid_pos.h).max();
    let size = (WIDTH, HEADER + rows.unwrap_or(0) * CELL.1);
    // The annotation has the times at which bursts began as values, in milliseconds.
    let marks = recording.answer(&dashboard.title, "Bursts", "Anno");
    let mut marks: Vec<f64> = marks
        .iter()
        .flat_map(|series| series.points.iter().map(|(_, value)| value / 1000.0))
        .filter(|mark| (recording.start..recording.end).contains(mark))
        .collect();
    marks.dedup();
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    root.fill(&BACKGROUND)?;
    root.draw(&Text::new(dashboard.title.as_str(), (10, 10), font(16)))?;
    let caption = format!(
        "{} to {} UTC, drawn from Prometheus' answers by cargo xtask dashboards --draw",
        units::text("time", recording.start),
        units::time_of_day(recording.end)
    );
    let right = font(12).pos(Pos::new(HPos::Right, VPos::Top));
    root.draw(&Text::new(caption, (WIDTH as i32 - 10, 12), right))?;
    for panel in &dashboard.panels {
        let at = &panel.grid_pos;
        let corner = (at.x * CELL.0 + 3, HEADER + at.y * CELL.1 + 3);
        let area = root
            .clone()
            .shrink(corner, (at.w * CELL.0 - 6, at.h * CELL.1 - 6));
        let content = Content {
            dashboard: &dashboard.title,
            panel,
            recording,
            marks: &marks,
        };
        draw_panel(&area, &content).with_context(|| format!("the panel {}", panel.title))?;
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
        "stat" => table::stat(&inside, content),
        "table" => table::draw(&inside, content),
        _ if content.series().is_empty() => empty(&inside),
        "timeseries" => lines::draw(&inside, content),
        "state-timeline" => squares::states(&inside, content),
        "heatmap" => squares::heat_map(&inside, content),
        _ => anyhow::bail!("panels of type {kind} cannot be drawn"),
    }
}

fn empty(area: &Area<'_>) -> Result<()> {
    let (width, height) = area.dim_in_pixel();
    let at = (width as i32 / 2 - 20, height as i32 / 2 - 8);
    Ok(area.draw(&Text::new("No data", at, font(13)))?)
}

/// A line of coloured squares with names.
fn legend(area: &Area<'_>, entries: &[(String, RGBColor)]) -> Result<()> {
    let (width, _) = area.dim_in_pixel();
    let mut left = 8;
    for (name, colour) in entries {
        let next = left + 34 + text_width(name, 11) as i32;
        if next > width as i32 {
            break;
        }
        let square = [(left, 6), (left + 12, 10)];
        area.draw(&Rectangle::new(square, colour.filled()))?;
        area.draw(&Text::new(name.as_str(), (left + 17, 2), font(11)))?;
        left = next;
    }
    Ok(())
}

fn font(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// About how wide a text is: the drawing does not know the reader's font.
fn text_width(text: &str, size: u32) -> u32 {
    text.chars().count() as u32 * size * 11 / 20
}
