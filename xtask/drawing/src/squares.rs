//! State timelines and heat maps, which consist of rectangles over time.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use crate::{
    canvas::{AXIS, Area, chart, font, legend, text_width},
    panel::Content,
    units,
};

/// Seconds from one point to the next.
const STEP: f64 = 1.0;

/// Draws a row of states for each series.
pub fn states(area: &Area<'_>, content: &Content<'_>) -> Result<()> {
    let (series, times) = (&content.series, &content.times);
    let pixels = f64::from(area.dim_in_pixel().0 - AXIS) / (times.end - times.start);
    let rows = 0.0..series.len() as f64;
    let (mut chart, below) = chart(area, times, rows, 0, &|_| String::new())?;
    let left = font(11).pos(Pos::new(HPos::Left, VPos::Center));
    let right = font(11).pos(Pos::new(HPos::Right, VPos::Center));
    let mut entries: Vec<(String, RGBColor)> = Vec::new();
    for (row, named) in series.iter().rev().enumerate() {
        let (bottom, top) = (row as f64 + 0.12, row as f64 + 0.88);
        // The last word is the server; the host is the same in all rows.
        let name = named.name.rsplit(' ').next().unwrap_or("").to_owned();
        let at = (times.start - 8.0 / pixels, row as f64 + 0.5);
        chart.draw_series([Text::new(name, at, right.clone())])?;
        let points = &named.series.points;
        for part in points.chunk_by(|one, next| one.1 == next.1 && next.0 - one.0 < 2.5 * STEP) {
            let (first, last) = (part[0], part[part.len() - 1]);
            let mapped = content.panel.mapped(&named.name, &first.1.to_string());
            let Some((text, colour)) = mapped else {
                continue;
            };
            let (from, to) = (first.0, (last.0 + STEP).min(times.end));
            let bar = Rectangle::new([(from, bottom), (to, top)], colour.mix(0.8).filled());
            chart.draw_series([bar])?;
            if (to - from) * pixels > f64::from(text_width(&text, 11)) + 8.0 {
                let at = (from + 4.0 / pixels, row as f64 + 0.5);
                chart.draw_series([Text::new(text.clone(), at, left.color(&WHITE))])?;
            }
            if !entries.iter().any(|(known, _)| *known == text) {
                entries.push((text, colour));
            }
        }
    }
    legend(&below, &entries)
}

/// Draws the buckets of a histogram over time, the fuller the darker.
pub fn heat_map(area: &Area<'_>, content: &Content<'_>) -> Result<()> {
    let rows = buckets(content);
    let used = |row: &Row| row.1.iter().any(|(_, value)| *value > 0.0);
    let first = rows.iter().position(used);
    let last = rows.iter().rposition(used);
    ensure!(first.is_some(), "all buckets are empty");
    let range = first.unwrap_or(0) as i32..last.unwrap_or(0) as i32 + 1;
    let cells = rows.iter().flat_map(|(_, points)| points);
    let most = cells.fold(0.0, |most: f64, (_, value)| most.max(*value));
    let unit = content.panel.options["yAxis"]["unit"].as_str();
    let unit = unit.unwrap_or("none");
    // The lower edge of a row is the bound of the row below.
    let bound = |row: &i32| match usize::try_from(row - 1).ok().and_then(|row| rows.get(row)) {
        Some((bound, _)) if bound.is_finite() => units::text(unit, *bound),
        Some(_) => "+Inf".to_owned(),
        None => "0".to_owned(),
    };
    let (mut chart, below) = chart(area, &content.times, range, 8, &bound)?;
    for (row, (_, points)) in (0..).zip(&rows) {
        for (time, value) in points.iter().filter(|(_, value)| *value > 0.0) {
            let corners = [(time - STEP, row), (*time, row + 1)];
            let cell = Rectangle::new(corners, heat(value / most).filled());
            chart.draw_series([cell])?;
        }
    }
    let scale = [0.01, 0.1, 0.25, 0.5, 1.0];
    let scale = scale.map(|share| (units::text("cps", most * share), heat(share)));
    legend(&below, &scale)
}

/// The upper bound of a bucket, and at each time how many calls were between it and the bound below.
type Row = (f64, Vec<(f64, f64)>);

/// Returns the rows of a heat map, from the lowest. A bucket of Prometheus also counts all lower ones.
fn buckets(content: &Content<'_>) -> Vec<Row> {
    let series = content.series.iter().map(|named| named.series);
    let bounded = series.filter_map(|series| {
        let bound = series.labels.get("le")?.parse().ok()?;
        Some((bound, series.points.clone()))
    });
    let mut rows: Vec<Row> = bounded.collect();
    rows.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut below: BTreeMap<i64, f64> = BTreeMap::new();
    for (_, points) in &mut rows {
        for (time, value) in points {
            let before = below.insert((*time * 1000.0) as i64, *value);
            *value -= before.unwrap_or(0.0);
        }
    }
    rows
}

/// Returns a colour from pale to dark orange, by the root of the share, as the dashboard has it.
fn heat(share: f64) -> RGBColor {
    let depth = share.clamp(0.0, 1.0).sqrt();
    let mix = |pale: f64, dark: f64| (pale + (dark - pale) * depth) as u8;
    RGBColor(mix(255.0, 127.0), mix(238.0, 39.0), mix(215.0, 4.0))
}
