//! Charts over time, as SVG inside a page.
//!
//! The shapes fill the available width; the text keeps its size, so it is legible on a small screen and not huge on a
//! large one. Each kind of line or area can be told by its colour, and also by its dashes or its place.

use std::ops::Range;

use evictscope_telemetry::Phase;
use maud::{Markup, PreEscaped, html};
use plotters::coord::ranged1d::Ranged;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::columns::{Columns, runs};
use super::drawing::{Ink, framed, swatch};

/// The shapes are drawn this wide, and stretched.
const WIDTH: u32 = 1_200;
const HEIGHT: u32 = 110;
/// The least distance between two grid lines.
const GRID: u32 = 24;

/// A line or an area.
pub struct ChartSeries {
    /// What the legend says.
    pub name: &'static str,
    ink: Ink,
    /// A value for each column; `None` if it is not known.
    pub values: Vec<Option<f64>>,
}

impl ChartSeries {
    pub fn new(name: &'static str, ink: Ink, values: Vec<Option<f64>>) -> Self {
        Self { name, ink, values }
    }
}

/// What is drawn over the columns.
pub enum Shapes {
    /// A line for each.
    Lines(Vec<ChartSeries>),
    /// Areas, each on top of the one before.
    Areas(Vec<ChartSeries>),
}

pub struct Chart {
    pub title: &'static str,
    /// What else a reader must know.
    pub note: Option<&'static str>,
    pub shapes: Shapes,
    /// The values from the bottom to the top.
    pub values: Range<f64>,
    /// Writes a value of the grid.
    pub label: fn(f64) -> String,
    /// Grid lines are this far apart, or 2, 5, 10 and so on times as far: a power of 1,024 for bytes.
    pub unit: f64,
}

impl Chart {
    pub fn figure(&self, columns: &Columns) -> Markup {
        let (Shapes::Lines(all) | Shapes::Areas(all)) = &self.shapes;
        let is_stacked = matches!(self.shapes, Shapes::Areas(_));
        html! {
            figure {
                figcaption {
                    strong { (self.title) }
                    @for series in all {
                        " " span.key { (swatch(series.ink, is_stacked)) (series.name) }
                    }
                    @if let Some(note) = &self.note { " " span.note { (note) } }
                }
                @if all.iter().all(|series| series.values.iter().all(Option::is_none)) {
                    p.note { "Not known in this time." }
                } @else {
                    (framed(self.title, columns.span, HEIGHT, &self.plotted(columns), &self.grid()))
                }
            }
        }
    }

    /// Returns the grid lines: the distance of each from the top, and its text.
    fn grid(&self) -> Vec<(f64, String)> {
        let Range { start, end } = self.values;
        let lines = (HEIGHT / GRID) as usize;
        let points = RangedCoordf64::from(start / self.unit..end / self.unit).key_points(lines);
        let at = |value: f64| {
            let share = (value - start) / (end - start);
            (1.0 - share) * f64::from(HEIGHT)
        };
        let points = points.into_iter().map(|point| point * self.unit);
        let mut lines: Vec<_> = points.map(|value| (at(value), (self.label)(value))).collect();
        // Half a key has the same label as none.
        lines.dedup_by(|one, before| one.1 == before.1);
        lines
    }

    fn plotted(&self, columns: &Columns) -> Markup {
        let mut svg = String::new();
        // A string has room for everything, so it cannot fail.
        _ = self.draw(columns, &mut svg);
        stretched(&svg)
    }

    fn draw(&self, columns: &Columns, to: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::with_string(to, (WIDTH, HEIGHT)).into_drawing_area();
        let count = columns.count() as f64;
        let mut chart = ChartBuilder::on(&root).build_cartesian_2d(0.0..count, self.values.start..self.values.end)?;
        // The tint behind everything shows when evicting calls were made.
        for saturated in runs(&columns.phases, |phase| *phase == Some(Phase::Saturated)) {
            let corners = [(saturated.start as f64, self.values.start), (saturated.end as f64, self.values.end)];
            chart.draw_series([Rectangle::new(corners, Ink::Purple.colour().mix(0.1).filled())])?;
        }
        match &self.shapes {
            Shapes::Lines(all) => {
                for series in all {
                    let style = series.ink.colour().stroke_width(2);
                    for known in runs(&series.values, Option::is_some) {
                        chart.draw_series([PathElement::new(steps(&series.values, known), style)])?;
                    }
                }
            }
            Shapes::Areas(all) => {
                // The tallest first: each later area leaves visible only the earlier one's own part.
                for top in (0..all.len()).rev() {
                    let sums = stacked(&all[..=top]);
                    for known in runs(&sums, Option::is_some) {
                        let mut points = steps(&sums, known.clone());
                        points.push((known.end as f64, self.values.start));
                        points.push((known.start as f64, self.values.start));
                        chart.draw_series([Polygon::new(points, all[top].ink.colour().filled())])?;
                    }
                }
            }
        }
        root.present()?;
        Ok(())
    }
}

/// Returns the corners of a line that keeps its value for the length of a column.
fn steps(values: &[Option<f64>], columns: Range<usize>) -> Vec<(f64, f64)> {
    let corners = columns.filter_map(|column| {
        let value = values[column]?;
        Some([(column as f64, value), (column as f64 + 1.0, value)])
    });
    corners.flatten().collect()
}

/// Returns the sum of the areas in each column in which the topmost is known: elsewhere the topmost has no area.
pub fn stacked(all: &[ChartSeries]) -> Vec<Option<f64>> {
    let tops = all.last().map_or(&[][..], |top| &top.values).iter().enumerate();
    let sum = |column: usize| all.iter().filter_map(|series| series.values[column]).sum();
    tops.map(|(column, top)| top.map(|_| sum(column))).collect()
}

/// Puts a drawing of plotters into another SVG, stretched to its width.
fn stretched(svg: &str) -> Markup {
    let begin = svg.find("<svg").unwrap_or(0);
    let inside = svg[begin..].find('>').map_or(0, |end| begin + end + 1);
    let end = svg.rfind("</svg>").unwrap_or(svg.len());
    let inside = svg.get(inside..end).unwrap_or_default();
    html! {
        svg.plot width="100%" height=(HEIGHT) viewBox={ "0 0 " (WIDTH) " " (HEIGHT) }
            preserveAspectRatio="none" {
            // Shapes of this module, which contain no foreign text.
            (PreEscaped(inside))
        }
    }
}

#[cfg(test)]
mod tests {
    use evictscope_records::text::count;

    use super::{Chart, ChartSeries, Ink, Shapes};
    use crate::pages::columns::Columns;
    use crate::pages::drawing::Span;

    fn drawn(shapes: fn(Vec<ChartSeries>) -> Shapes, known: std::ops::Range<usize>) -> String {
        let columns = Columns::of(&[], Span::new(1_700_000_000_000_000, 1_700_000_002_000_000));
        let series = |name, ink, known: std::ops::Range<usize>| {
            ChartSeries::new(name, ink, (0..10).map(|column| known.contains(&column).then_some(40.0)).collect())
        };
        let others = series("other", Ink::Red, known.start.max(2)..known.end.min(5));
        let chart = Chart {
            title: "Something",
            note: None,
            shapes: shapes(vec![series("one <b>", Ink::Blue, known), others]),
            values: 0.0..100.0,
            label: count,
            unit: 1.0,
        };
        chart.figure(&columns).into_string()
    }

    #[test]
    fn a_chart_has_a_legend_a_grid_and_times() {
        let drawn = drawn(Shapes::Lines, 0..10);
        for text in [
            "<strong>Something</strong>",
            "one &lt;b&gt;</span>",
            ">22:13:21</text>",
            ">50</text>",
            "aria-label=\"Something, from 2023-11-14 22:13:20 to 2023-11-14 22:13:22 UTC\"",
            // The second line ends where its value is not known.
            "points=\"239,66 359,66 359,66 479,66 479,66 599,66 \"",
        ] {
            assert!(drawn.contains(text), "{text} in {drawn}");
        }
        assert!(!drawn.contains("<b>"));
    }

    #[test]
    fn areas_stand_on_each_other() {
        let drawn = drawn(Shapes::Areas, 0..10);
        let (upper, lower) = (Ink::Red.text(), Ink::Blue.text());
        let at = |ink: &str, points: &str| {
            let polygon = format!("fill=\"{ink}\" points=\"{points}");
            drawn.find(&polygon).unwrap_or_else(|| unreachable!("{polygon} in {drawn}"))
        };
        // What is drawn later covers it.
        assert!(at(&upper, "239,22 359,22") < at(&lower, "0,66 119,66"));
    }

    #[test]
    fn nothing_known_is_said_in_words() {
        let drawn = drawn(Shapes::Lines, 0..0);
        assert!(drawn.contains("Not known in this time."), "{drawn}");
    }
}
