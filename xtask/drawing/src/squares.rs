//! State timelines and heat maps, which consist of rectangles over time.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use crate::{
    canvas::{AXIS, Area, INK, chart, font, legend, text_width},
    panel::Content,
    units,
};

/// The number of shades in a heat map.
const SHADES: u8 = 12;

/// Draws a row of states for each series.
pub fn states(area: &Area<'_>, content: &Content<'_>) -> Result<()> {
    let (series, times, step) = (&content.series, &content.times, content.step);
    let pixels = f64::from(area.dim_in_pixel().0 - AXIS) / (times.end - times.start);
    let rows = 0.0..series.len() as f64;
    let (mut chart, below) = chart(area, times, rows, 0, &|_| String::new())?;
    let left = font(12).pos(Pos::new(HPos::Left, VPos::Center));
    let right = font(12).pos(Pos::new(HPos::Right, VPos::Center));
    let mut entries: Vec<(String, RGBColor)> = Vec::new();
    for (row, named) in series.iter().rev().enumerate() {
        let (bottom, top) = (row as f64 + 0.12, row as f64 + 0.88);
        // The last word is the server; the host is the same in all rows.
        let name = named.name.rsplit(' ').next().unwrap_or("").to_owned();
        let at = (times.start - 8.0 / pixels, row as f64 + 0.5);
        chart.draw_series([Text::new(name, at, right.clone())])?;
        let points = &named.series.points;
        for part in points.chunk_by(|one, next| one.1 == next.1 && next.0 - one.0 < 2.5 * step) {
            let (first, last) = (part[0], part[part.len() - 1]);
            let mapped = content.panel.mapped(&named.name, &first.1.to_string());
            let Some((text, colour)) = mapped else {
                continue;
            };
            let (from, to) = (first.0, (last.0 + step).min(times.end));
            let bar = Rectangle::new([(from, bottom), (to, top)], colour.mix(0.8).filled());
            chart.draw_series([bar])?;
            if (to - from) * pixels > f64::from(text_width(&text, 12)) + 8.0 {
                let at = (from + 4.0 / pixels, row as f64 + 0.5);
                let ink = if colour == WHITE { INK } else { WHITE };
                chart.draw_series([Text::new(text.clone(), at, left.color(&ink))])?;
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
        let shades = points
            .iter()
            .map(|(time, value)| (*time, shade(value / most)));
        let shades: Vec<(f64, u8)> = shades.filter(|(_, shade)| *shade > 0).collect();
        // Cells of one shade side by side are one rectangle, which keeps the picture small.
        for part in
            shades.chunk_by(|one, next| one.1 == next.1 && next.0 - one.0 < 1.5 * content.step)
        {
            let (first, last) = (part[0], part[part.len() - 1]);
            let corners = [(first.0 - content.step, row), (last.0, row + 1)];
            let cells = Rectangle::new(corners, heat(first.1).filled());
            chart.draw_series([cells])?;
        }
    }
    let scale = [0.01, 0.1, 0.25, 0.5, 1.0];
    let scale = scale.map(|share| (units::text("cps", most * share), heat(shade(share))));
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

/// Returns how dark the cell of a share is, by its root, as the dashboard has it. Only an empty one is 0.
fn shade(share: f64) -> u8 {
    (share.clamp(0.0, 1.0).sqrt() * f64::from(SHADES)).ceil() as u8
}

/// Returns the colour of a shade, from pale to dark orange.
fn heat(shade: u8) -> RGBColor {
    let depth = f64::from(shade) / f64::from(SHADES);
    let mix = |pale: f64, dark: f64| (pale + (dark - pale) * depth) as u8;
    RGBColor(mix(255.0, 127.0), mix(238.0, 39.0), mix(215.0, 4.0))
}
