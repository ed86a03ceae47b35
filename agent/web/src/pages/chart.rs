//! Charts over time, as SVG inside a page.
//!
//! The shapes fill the available width; the text keeps its size, so it is legible on a small screen and not huge on a
//! large one. Each kind of line or area can be told by its colour, and also by its dashes or its place.

use std::ops::Range;

use evictscope_telemetry::Phase;
use maud::{Markup, html};

use super::columns::{Columns, runs};
use super::drawing::{Ink, framed, swatch};

const HEIGHT: u32 = 110;
/// Two grid lines are at least this share of the height apart.
const GRID: f64 = 0.22;

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
        let least = (end - start) / self.unit * GRID;
        let power = 10_f64.powf(least.log10().floor());
        let step = [1.0, 2.0, 5.0].into_iter().map(|by| by * power).find(|step| *step >= least);
        let step = step.unwrap_or(10.0 * power) * self.unit;
        let values = ((start / step).ceil() as i64..=(end / step).floor() as i64).map(|index| index as f64 * step);
        let mut lines: Vec<_> = values.map(|value| (self.top(value), (self.label)(value))).collect();
        // Half a key has the same label as none.
        lines.dedup_by(|one, before| one.1 == before.1);
        lines
    }

    fn top(&self, value: f64) -> f64 {
        let Range { start, end } = self.values;
        (1.0 - (value - start) / (end - start)) * f64::from(HEIGHT)
    }

    fn plotted(&self, columns: &Columns) -> Markup {
        html! {
            svg.plot width="100%" height=(HEIGHT) viewBox={ "0 0 " (columns.count()) " " (HEIGHT) }
                preserveAspectRatio="none" {
                // The tint behind everything shows when evicting calls were made.
                @for at in runs(&columns.phases, |phase| *phase == Some(Phase::Saturated)) {
                    rect x=(at.start) width=(at.len()) height=(HEIGHT) fill=(Ink::Purple.text()) fill-opacity="0.1" {}
                }
                @match &self.shapes {
                    Shapes::Lines(all) => @for series in all {
                        @for known in runs(&series.values, Option::is_some) {
                            polyline fill="none" stroke=(series.ink.text()) stroke-width="2"
                                points=(self.points(&series.values, known)) {}
                        }
                    },
                    // The tallest first: each later area leaves visible only the earlier one's own part.
                    Shapes::Areas(all) => @for top in (0..all.len()).rev() {
                        @let sums = stacked(&all[..=top]);
                        @for known in runs(&sums, Option::is_some) {
                            @let Range { start, end } = known;
                            polygon fill=(all[top].ink.text())
                                points={ (self.points(&sums, known)) (end) "," (HEIGHT) " " (start) "," (HEIGHT) } {}
                        }
                    },
                }
            }
        }
    }

    /// Returns the corners of a line that keeps its value for the length of a column.
    fn points(&self, values: &[Option<f64>], columns: Range<usize>) -> String {
        let known = columns.filter_map(|column| Some((column, self.top(values[column]?))));
        known.map(|(column, top)| format!("{column},{top:.1} {},{top:.1} ", column + 1)).collect()
    }
}

/// Returns the sum of the areas in each column in which the topmost is known: elsewhere the topmost has no area.
pub fn stacked(all: &[ChartSeries]) -> Vec<Option<f64>> {
    let tops = all.last().map_or(&[][..], |top| &top.values).iter().enumerate();
    let sum = |column: usize| all.iter().filter_map(|series| series.values[column]).sum();
    tops.map(|(column, top)| top.map(|_| sum(column))).collect()
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
            "points=\"2,66.0 3,66.0 3,66.0 4,66.0 4,66.0 5,66.0 \"",
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
        assert!(at(upper, "2,22.0 3,22.0") < at(lower, "0,66.0 1,66.0"));
    }

    #[test]
    fn nothing_known_is_said_in_words() {
        let drawn = drawn(Shapes::Lines, 0..0);
        assert!(drawn.contains("Not known in this time."), "{drawn}");
    }
}
