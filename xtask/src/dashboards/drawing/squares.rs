//! State timelines and heat maps: what is drawn in rectangles over time.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use plotters::{
    coord::{ranged1d::ValueFormatter, types::RangedCoordf64},
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{AXIS, Area, FRAME, font, legend, panel::Content, text_width, units};

/// Seconds from one point to the next.
const STEP: f64 = 1.0;
/// Pixels of the legend.
const LEGEND: u32 = 18;

/// Draws a row of states for each series.
pub fn states(area: &Area<'_>, content: &Content<'_>) -> Result<()> {
    let series = content.series();
    let (width, height) = area.dim_in_pixel();
    let (plot, below) = area.split_vertically(height - LEGEND);
    let seconds = content.times().end - content.times().start;
    let pixels = f64::from(width - AXIS) / seconds;
    let mut chart = ChartBuilder::on(&plot)
        .margin_right(12)
        .x_label_area_size(20)
        .y_label_area_size(AXIS)
        .build_cartesian_2d(content.times(), 0.0..series.len() as f64)?;
    axes(&mut chart, 0, &|_| String::new())?;
    let left = font(11).pos(Pos::new(HPos::Left, VPos::Center));
    let right = font(11).pos(Pos::new(HPos::Right, VPos::Center));
    let mut entries: Vec<(String, RGBColor)> = Vec::new();
    for (row, named) in series.iter().rev().enumerate() {
        let (bottom, top) = (row as f64 + 0.12, row as f64 + 0.88);
        // The last word is the server; the host is the same in all of them here.
        let name = named.name.rsplit(' ').next().unwrap_or("").to_owned();
        let at = (content.times().start - 8.0 / pixels, row as f64 + 0.5);
        chart.draw_series([Text::new(name, at, right.clone())])?;
        let points = &named.series.points;
        for part in points.chunk_by(|one, next| one.1 == next.1 && next.0 - one.0 < 2.5 * STEP) {
            let (Some(first), Some(last)) = (part.first(), part.last()) else {
                continue;
            };
            let value = first.1.to_string();
            let mapped = content.panel.mapped(&named.name, &value);
            let Some((text, colour)) = mapped else {
                continue;
            };
            let (from, to) = (first.0, (last.0 + STEP).min(content.times().end));
            let bar = Rectangle::new([(from, bottom), (to, top)], colour.mix(0.8).filled());
            chart.draw_series([bar])?;
            if (to - from) * pixels > f64::from(text_width(&text, 11)) + 8.0 {
                let at = (from + 4.0 / pixels, row as f64 + 0.5);
                let style = left.color(&WHITE);
                chart.draw_series([Text::new(text.clone(), at, style)])?;
            }
            if !entries.iter().any(|(known, _)| *known == text) {
                entries.push((text, colour));
            }
        }
    }
    legend(&below, &entries)
}

/// Draws the buckets of a histogram over time, the darker the more.
pub fn heat_map(area: &Area<'_>, content: &Content<'_>) -> Result<()> {
    let rows = buckets(content);
    let used = |row: &&(f64, Vec<(f64, f64)>)| row.1.iter().any(|(_, value)| *value > 0.0);
    let first = rows.iter().position(|row| used(&row));
    let last = rows.iter().rposition(|row| used(&row));
    ensure!(first.is_some(), "all buckets are empty");
    let range = first.unwrap_or(0) as i32..last.unwrap_or(0) as i32 + 1;
    let cells = rows.iter().flat_map(|(_, points)| points);
    let most = cells.fold(0.0, |most: f64, (_, value)| most.max(*value));
    let unit = content.panel.options["yAxis"]["unit"].as_str();
    let unit = unit.unwrap_or("none");
    let (_, height) = area.dim_in_pixel();
    let (plot, below) = area.split_vertically(height - LEGEND);
    let mut chart = ChartBuilder::on(&plot)
        .margin_right(12)
        .margin_top(6)
        .x_label_area_size(20)
        .y_label_area_size(AXIS)
        .build_cartesian_2d(content.times(), range.clone())?;
    // The lower edge of a row is the bound of the row below.
    let bound = |row: &i32| match usize::try_from(row - 1).ok().and_then(|row| rows.get(row)) {
        Some((bound, _)) if bound.is_finite() => units::text(unit, *bound),
        Some(_) => "+Inf".to_owned(),
        None => "0".to_owned(),
    };
    axes(&mut chart, 8, &bound)?;
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

/// Draws the axis of times, and another one on the left with so many labels.
fn axes<Y, V>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<RangedCoordf64, Y>>,
    labels: usize,
    text: &dyn Fn(&V) -> String,
) -> Result<()>
where
    Y: Ranged<ValueType = V> + ValueFormatter<V>,
{
    let mut mesh = chart.configure_mesh();
    mesh.disable_mesh()
        .axis_style(FRAME)
        .label_style(font(11))
        .x_labels(10)
        .y_labels(labels)
        .x_label_formatter(&|time| units::time_of_day(*time))
        .y_label_formatter(text);
    Ok(mesh.draw()?)
}

/// The rows of a heat map, from the lowest: the upper bound, and in each second how many calls were
/// between it and the bound below. Buckets of Prometheus hold all below their bound.
fn buckets(content: &Content<'_>) -> Vec<(f64, Vec<(f64, f64)>)> {
    let mut rows: Vec<(f64, Vec<(f64, f64)>)> = content
        .series()
        .iter()
        .filter_map(|named| {
            let bound = named.series.labels.get("le")?.parse().ok()?;
            Some((bound, named.series.points.clone()))
        })
        .collect();
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

/// From pale to dark orange, by the root of the share, as the dashboard has it.
fn heat(share: f64) -> RGBColor {
    let depth = share.clamp(0.0, 1.0).sqrt();
    let mix = |pale: f64, dark: f64| (pale + (dark - pale) * depth) as u8;
    RGBColor(mix(255.0, 127.0), mix(238.0, 39.0), mix(215.0, 4.0))
}
