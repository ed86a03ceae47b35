//! Time series.

use std::{collections::BTreeMap, ops::Range};

use anyhow::Result;
use plotters::prelude::*;
use serde_json::Value;

use crate::{
    axis::Axis,
    canvas::{Area, chart, legend},
    panel::{Content, Named, Panel},
    units,
};

/// The steps between two points that make a gap: two scrapes were missed.
const GAP: f64 = 2.5;

/// The colour of a mark: the annotation's.
const MARK: RGBColor = RGBColor(235, 104, 16);

/// The points of a line: time, the value that the line is stacked on, and their sum.
type Stacked = Vec<(f64, f64, f64)>;

/// Draws all series as lines, with the colours, dashes and stacking of the panel.
pub fn draw(area: &Area<'_>, content: &Content<'_>) -> Result<()> {
    let (panel, times, series) = (content.panel, &content.times, &content.series);
    let stacked = stack(panel, series);
    let range = values(panel, &stacked);
    let unit = panel.unit("");
    let values = Axis::new(unit, range.clone());
    let label = |value: &f64| units::text(unit, *value);
    let (mut chart, below) = chart(area, times, values, 10, &label)?;
    let colours: Vec<RGBColor> = (0..)
        .zip(series)
        .map(|(index, named)| panel.colour(&named.name, index))
        .collect();
    // The first lines are drawn above the others.
    for ((named, points), colour) in series.iter().zip(&stacked).zip(&colours).rev() {
        let opacity = panel.number(&named.name, "custom.fillOpacity");
        let filling = colour.mix(opacity.unwrap_or(0.0) / 100.0);
        let width = panel.number(&named.name, "custom.lineWidth");
        let width = width.unwrap_or(1.0) as u32;
        let dashed = panel.property(&named.name, "custom.lineStyle");
        let dashed = dashed.is_some_and(|style| style["fill"] == "dash");
        for part in points.chunk_by(|one, next| next.0 - one.0 < GAP * content.step) {
            let line = part.iter().map(|(time, _, to)| (*time, *to));
            let base = part.iter().rev().map(|(time, from, _)| (*time, *from));
            if filling.alpha() > 0.0 {
                let outline: Vec<_> = line.clone().chain(base).collect();
                chart.draw_series([Polygon::new(outline, filling)])?;
            }
            if let [(time, _, value)] = part {
                chart.draw_series([Circle::new((*time, *value), 2, colour.filled())])?;
            } else if width == 0 {
                continue;
            } else if dashed {
                let style = colour.stroke_width(width);
                chart.draw_series(DashedLineSeries::new(line, 8, 6, style))?;
            } else {
                let path = PathElement::new(line.collect::<Vec<_>>(), colour.stroke_width(width));
                chart.draw_series([path])?;
            }
        }
    }
    let across = panel.property("", "custom.thresholdsStyle");
    if across.is_some_and(|style| style["mode"] == "dashed") {
        for (value, colour) in panel.thresholds("") {
            if let Some(value) = value.filter(|value| *value < range.end) {
                let ends = [(times.start, value), (times.end, value)];
                let style = colour.stroke_width(1);
                chart.draw_series(DashedLineSeries::new(ends, 8, 8, style))?;
            }
        }
    }
    for mark in content.marks {
        let ends = [(*mark, range.start), (*mark, range.end)];
        // Not dashed, because each dash would be an element of the picture.
        chart.draw_series([PathElement::new(ends, MARK.mix(0.6))])?;
    }
    let names = series.iter().map(|named| named.name.clone());
    legend(&below, &names.zip(colours).collect::<Vec<_>>())
}

/// Returns the points of each series, stacked where the panel says so.
fn stack(panel: &Panel, series: &[Named<'_>]) -> Vec<Stacked> {
    let mut tops: BTreeMap<i64, f64> = BTreeMap::new();
    let mut all = Vec::new();
    for named in series {
        let mode = panel.property(&named.name, "custom.stacking");
        let mode = mode.and_then(|stacking| stacking["mode"].as_str());
        let points = named.series.points.iter().map(|(time, value)| {
            if mode != Some("normal") {
                return (*time, 0.0, *value);
            }
            let top = tops.entry((time * 1000.0).round() as i64).or_default();
            let from = *top;
            *top += value;
            (*time, from, *top)
        });
        all.push(points.collect());
    }
    all
}

/// Returns the range of the axis of values: the panel's own, or else one with room for all.
fn values(panel: &Panel, all: &[Stacked]) -> Range<f64> {
    let tops = all.iter().flatten().map(|(_, _, to)| *to);
    let most = tops.clone().fold(f64::MIN, f64::max);
    let least = tops.fold(f64::MAX, f64::min);
    let soft = panel.property("", "custom.axisSoftMax");
    let soft = soft.and_then(Value::as_f64).unwrap_or(f64::MIN);
    // Where the panel has no limit, there is some room.
    let room = (most - panel.number("", "min").unwrap_or(least)) * 0.08;
    let low = panel.number("", "min").unwrap_or(least - room);
    let high = panel.number("", "max").unwrap_or((most + room).max(soft));
    match high > low {
        true => low..high,
        false => low..low + 1.0,
    }
}
