//! Tables.

use std::collections::BTreeMap;

use anyhow::Result;
use plotters::prelude::*;
use serde_json::Value;

use crate::{
    canvas::{Area, FRAME, INK, font, text_width},
    panel::Content,
    units,
};

/// The pixels of a row.
const ROW: i32 = 34;
/// The pixels of a line of the heading.
const HEADING: i32 = 18;
/// The size of the font.
const FONT: u32 = 14;

/// The content of a cell.
#[derive(Clone, PartialEq)]
enum Cell {
    Text(String),
    Number(f64),
}

type Row = BTreeMap<String, Cell>;

/// Draws the rows that Grafana's transformations `merge` and `organize` make of the answers.
pub fn draw(area: &Area<'_>, content: &Content<'_>) -> Result<()> {
    let mut rows = merged(content);
    let columns = organized(content, &rows);
    sort(content, &columns, &mut rows);
    let (width, height) = area.dim_in_pixel();
    let cells: Vec<Vec<(String, RGBColor)>> = rows
        .iter()
        .map(|row| {
            let cell = |(field, title): &(String, String)| match row.get(field) {
                Some(cell) => shown(content, field, title, cell),
                None => (String::new(), INK),
            };
            columns.iter().map(cell).collect()
        })
        .collect();
    let edges = edges(&columns, &cells, width);
    let headings: Vec<Vec<String>> = (columns.iter().zip(edges.windows(2)))
        .map(|((_, title), edge)| wrapped(title, edge[1] - edge[0]))
        .collect();
    let lines = headings.iter().map(Vec::len).max().unwrap_or(1) as i32;
    let bold = font(FONT).font.style(FontStyle::Bold);
    for (left, heading) in edges.iter().zip(&headings) {
        for (line, text) in (0..).zip(heading) {
            let at = (left + 4, line * HEADING);
            area.draw(&Text::new(text.as_str(), at, bold.clone()))?;
        }
    }
    let top = lines * HEADING + 4;
    let fits = ((height as i32 - top) / ROW).max(0) as usize;
    for (number, row) in (0..).zip(cells.iter().take(fits)) {
        let y = top + number * ROW;
        area.draw(&PathElement::new([(0, y), (width as i32, y)], FRAME))?;
        for (left, (text, colour)) in edges.iter().zip(row) {
            let style = font(FONT).color(colour);
            area.draw(&Text::new(text.as_str(), (left + 4, y + 9), style))?;
        }
    }
    Ok(())
}

/// Returns where each column begins, and where the last one ends. A column is as wide as its longest
/// cell or word of its heading, and has its share of the remaining width.
fn edges(columns: &[(String, String)], cells: &[Vec<(String, RGBColor)>], width: u32) -> Vec<i32> {
    let needed: Vec<u32> = (0..)
        .zip(columns)
        .map(|(column, (_, title)): (usize, _)| {
            let texts = cells.iter().map(|row| row[column].0.as_str());
            // Headings are bold.
            let words = title.split(' ').map(|word| text_width(word, FONT + 1));
            let widths = texts.map(|text| text_width(text, FONT)).chain(words);
            widths.max().unwrap_or(0) + 8
        })
        .collect();
    let scale = f64::from(width) / f64::from(needed.iter().sum::<u32>());
    let mut edges = vec![0];
    let mut edge = 0.0;
    for one in needed {
        edge += f64::from(one) * scale;
        edges.push(edge as i32);
    }
    edges
}

/// Makes one row of all answers whose labels and times agree.
fn merged(content: &Content<'_>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for named in &content.series {
        let value_name = match content.panel.targets.len() {
            1 => "Value".to_owned(),
            _ => format!("Value #{}", named.target.letter),
        };
        for (time, value) in &named.series.points {
            let labels = named.series.labels.iter();
            let mut row: Row = labels
                .map(|(label, value)| (label.clone(), Cell::Text(value.clone())))
                .collect();
            let time = match named.target.instant {
                true => content.times.end,
                false => *time,
            };
            row.insert("Time".to_owned(), Cell::Number(time));
            let fits = |known: &&mut Row| {
                let mut cells = row.iter();
                !known.contains_key(&value_name)
                    && cells.all(|(name, cell)| known.get(name).is_none_or(|other| other == cell))
            };
            let value = (value_name.clone(), Cell::Number(*value));
            match rows.iter_mut().find(fits) {
                Some(known) => known.extend(row.into_iter().chain([value])),
                None => {
                    row.extend([value]);
                    rows.push(row);
                }
            }
        }
    }
    rows
}

/// Returns the fields and titles of the columns, in their order.
fn organized(content: &Content<'_>, rows: &[Row]) -> Vec<(String, String)> {
    let mut steps = content.panel.transformations.iter();
    let options = steps.find(|step| step["id"] == "organize");
    let options = options.map_or(&Value::Null, |step| &step["options"]);
    let mut fields: Vec<&String> = rows.iter().flat_map(Row::keys).collect();
    fields.sort();
    fields.dedup();
    fields.retain(|field| options["excludeByName"][field.as_str()] != true);
    fields.sort_by_key(|field| options["indexByName"][field.as_str()].as_u64());
    let titled = fields.into_iter().map(|field| {
        let title = options["renameByName"][field.as_str()].as_str();
        (field.clone(), title.unwrap_or(field).to_owned())
    });
    titled.collect()
}

/// Sorts the rows by each column that the panel names, the last one first, so that the first one decides.
fn sort(content: &Content<'_>, columns: &[(String, String)], rows: &mut [Row]) {
    let all = content.panel.options["sortBy"].as_array();
    for by in all.into_iter().flatten().rev() {
        let mut columns = columns.iter();
        let Some((field, _)) = columns.find(|(_, title)| by["displayName"] == *title) else {
            continue;
        };
        let number = |row: &Row| match row.get(field) {
            Some(Cell::Number(number)) => *number,
            _ => f64::MIN,
        };
        rows.sort_by(|one, other| match by["desc"] == true {
            true => number(other).total_cmp(&number(one)),
            false => number(one).total_cmp(&number(other)),
        });
    }
}

fn shown(content: &Content<'_>, field: &str, title: &str, cell: &Cell) -> (String, RGBColor) {
    let panel = content.panel;
    let coloured = panel.property(title, "custom.cellOptions").is_some();
    let plain = INK;
    match cell {
        Cell::Text(text) => panel
            .mapped(title, text)
            .unwrap_or_else(|| (text.clone(), plain)),
        Cell::Number(time) if field == "Time" => (units::text("time", *time), plain),
        Cell::Number(value) if panel.mapped(title, &value.to_string()).is_some() => {
            panel.mapped(title, &value.to_string()).unwrap_or_default()
        }
        Cell::Number(value) => {
            let value = match panel.number(title, "decimals") {
                Some(0.0) => value.round(),
                _ => *value,
            };
            let colour = match coloured {
                true => panel.threshold_colour(title, value),
                false => plain,
            };
            (units::text(panel.unit(title), value), colour)
        }
    }
}

/// Breaks a heading into lines that fit.
fn wrapped(title: &str, width: i32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in title.split(' ') {
        match lines.last_mut() {
            Some(line) if (text_width(&format!("{line} {word}"), FONT) as i32) < width - 6 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
