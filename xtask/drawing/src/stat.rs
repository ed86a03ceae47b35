//! Single values, large.

use anyhow::Result;
use plotters::prelude::*;

use crate::{
    canvas::{Area, font, say_no_data, text_width},
    panel::{Content, Named},
    units,
};

/// The size of the largest font.
const LARGE: u32 = 38;
/// The size of the names, where there are several values.
const NAME: u32 = 14;

/// Draws the last value of each series. With several, each has its name above it.
pub fn draw(area: &Area<'_>, content: &Content<'_>) -> Result<()> {
    let several = content.panel.targets.len() > 1;
    let (width, height) = area.dim_in_pixel();
    let values: Vec<_> = match content.series.as_slice() {
        [] => return say_no_data(area),
        some => (some.iter())
            .map(|named| {
                let (text, colour) = last(content, named);
                (named.name.as_str(), text, colour)
            })
            .collect(),
    };
    let share = width as i32 / values.len() as i32;
    let (top, room) = match several {
        true => (NAME as i32, height - NAME),
        false => (0, height),
    };
    // All values of a panel have the same size.
    let fits = |text: &str| (share as u32 - 16) * LARGE / text_width(text, LARGE).max(1);
    let widest = values.iter().map(|(_, text, _)| fits(text)).min();
    let size = LARGE.min(room * 3 / 4).min(widest.unwrap_or(LARGE));
    for (number, (name, text, colour)) in (0..).zip(values) {
        let middle = share * number + share / 2;
        let centred = |text: &str, size: u32| middle - text_width(text, size) as i32 / 2;
        if several {
            let at = (centred(name, NAME), 0);
            area.draw(&Text::new(name, at, font(NAME)))?;
        }
        let at = (
            centred(&text, size),
            top + (room as i32 - size as i32) / 2 - 2,
        );
        area.draw(&Text::new(text, at, font(size).color(&colour)))?;
    }
    Ok(())
}

fn last(content: &Content<'_>, named: &Named<'_>) -> (String, RGBColor) {
    let (panel, field) = (content.panel, named.name.as_str());
    let (_, value) = named.series.points.last().copied().unwrap_or_default();
    if let Some(mapped) = panel.mapped(field, &value.to_string()) {
        return mapped;
    }
    let text = match panel.unit(field) {
        "dateTimeFromNow" => {
            let ago = (content.times.end - value / 1000.0).max(1.0);
            format!("{} ago", units::text("s", ago))
        }
        unit => units::text(unit, value),
    };
    (text, panel.threshold_colour(field, value))
}
