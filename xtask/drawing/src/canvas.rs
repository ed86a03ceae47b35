//! What the panels have in common: fonts, the axis of times, and legends.

use std::ops::Range;

use anyhow::Result;
use plotters::{
    coord::{
        Shift,
        ranged1d::{AsRangedCoord, ValueFormatter},
        types::RangedCoordf64,
    },
    prelude::*,
};

use crate::units;

/// A part of the picture.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Values over time.
pub type Chart<'a, 'b, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, Y>>;

/// The colour of text.
pub const INK: RGBColor = RGBColor(36, 41, 46);
/// The colour of frames and grids.
pub const FRAME: RGBColor = RGBColor(216, 217, 218);
/// The pixels left of every axis of times, so that all of these are aligned.
pub const AXIS: u32 = 90;

/// The pixels of a time on its axis, with the room beside it.
const TIME: usize = 90;

/// The pixels of a legend.
const LEGEND: u32 = 22;

/// Returns a font of this size in pixels.
pub fn font(size: u32) -> TextStyle<'static> {
    // Plotters divides sizes by 1.24.
    ("sans-serif", f64::from(size) * 1.24)
        .into_font()
        .color(&INK)
}

/// Estimates the width of a text in pixels: the reader's font is not known.
pub fn text_width(text: &str, size: u32) -> u32 {
    text.chars().count() as u32 * size * 6 / 10
}

/// Says that a panel has no data.
pub fn say_no_data(area: &Area<'_>) -> Result<()> {
    let (width, height) = area.dim_in_pixel();
    let at = (width as i32 / 2 - 20, height as i32 / 2 - 8);
    Ok(area.draw(&Text::new("No data", at, font(14)))?)
}

/// Draws the axes of a chart, with about this many labels for the values. Returns the chart and the area for
/// its legend.
pub fn chart<'a, 'b, Y, V>(
    area: &Area<'b>,
    times: &Range<f64>,
    values: Y,
    labels: usize,
    label: &dyn Fn(&V) -> String,
) -> Result<(Chart<'a, 'b, Y::CoordDescType>, Area<'b>)>
where
    Y: AsRangedCoord<Value = V>,
    Y::CoordDescType: Ranged<ValueType = V> + ValueFormatter<V>,
{
    let (width, height) = area.dim_in_pixel();
    let (plot, below) = area.split_vertically(height - LEGEND);
    let mut chart = ChartBuilder::on(&plot)
        .margin_right(12)
        .margin_top(4)
        .x_label_area_size(20)
        .y_label_area_size(AXIS)
        .build_cartesian_2d(times.clone(), values)?;
    chart
        .configure_mesh()
        .bold_line_style(FRAME)
        .light_line_style(TRANSPARENT)
        .axis_style(FRAME)
        .label_style(font(12))
        .x_labels((width as usize / TIME).clamp(2, 10))
        .y_labels(labels)
        .x_label_formatter(&|time| units::time_of_day(*time))
        .y_label_formatter(label)
        .draw()?;
    Ok((chart, below))
}

/// Draws a line of names, each behind a square of its colour.
pub fn legend(area: &Area<'_>, entries: &[(String, RGBColor)]) -> Result<()> {
    let (width, _) = area.dim_in_pixel();
    let mut left = 8;
    for (name, colour) in entries {
        let next = left + 34 + text_width(name, 12) as i32;
        if next > width as i32 {
            break;
        }
        let square = [(left, 6), (left + 12, 10)];
        area.draw(&Rectangle::new(square, colour.filled()))?;
        area.draw(&Text::new(name.as_str(), (left + 17, 2), font(12)))?;
        left = next;
    }
    Ok(())
}
