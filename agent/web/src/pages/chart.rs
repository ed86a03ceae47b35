//! Charts over time, as SVG inside of a page.
//!
//! The shapes fill the width that there is; the text keeps its size, so it is legible on a small screen and not huge on a
//! large one. Colours are between black and white, to be told from both, and each kind of line or area is also told by its
//! dashes, or by its place.

use std::ops::Range;

use evictscope_telemetry::Phase;
use maud::{Markup, PreEscaped, html};
use plotters::coord::ranged1d::Ranged;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::columns::{Columns, Span};
use super::times;

/// The shapes are drawn this wide, and stretched.
pub const WIDTH: u32 = 1_200;
/// Beneath the shapes, for the times.
const TIMES: u32 = 20;
/// Between two lines of the grid, at least.
const GRID: u32 = 24;

/// What a colour is for. The style sheet gives lines dashes by their colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Evictions.
    Red,
    /// What matters most otherwise.
    Blue,
    /// Limits.
    Orange,
    /// Expiry.
    Green,
    /// Phases.
    Purple,
    /// Waiting for a CPU.
    Teal,
    /// What is not known, and the grid.
    Grey,
}

impl Ink {
    /// Returns the colour.
    pub fn colour(self) -> RGBColor {
        match self {
            Self::Red => RGBColor(214, 69, 65),
            Self::Blue => RGBColor(47, 124, 210),
            Self::Orange => RGBColor(204, 112, 0),
            Self::Green => RGBColor(38, 148, 90),
            Self::Purple => RGBColor(146, 96, 204),
            Self::Teal => RGBColor(0, 140, 150),
            Self::Grey => RGBColor(128, 128, 128),
        }
    }

    /// Returns the colour as SVG spells it.
    pub fn text(self) -> String {
        let RGBColor(red, green, blue) = self.colour();
        format!("#{red:02X}{green:02X}{blue:02X}")
    }
}

/// A line or an area: a value for each column, or `None` where it is not known.
pub struct Series {
    /// What the legend says.
    pub name: String,
    /// Its colour.
    pub ink: Ink,
    /// Its values.
    pub values: Vec<Option<f64>>,
}

/// What is drawn over the columns.
pub enum Shapes {
    /// A line for each.
    Lines(Vec<Series>),
    /// Areas, each on top of the one before.
    Areas(Vec<Series>),
}

/// A chart.
pub struct Chart {
    /// What it shows.
    pub title: &'static str,
    /// What else one has to know to read it.
    pub note: Option<String>,
    /// What is drawn.
    pub shapes: Shapes,
    /// The values from the bottom to the top.
    pub values: Range<f64>,
    /// Writes a value of the grid.
    pub label: fn(f64) -> String,
    /// The grid's lines are this, or 2, 5, 10 and so on times as far apart: 1,024 to a power, for bytes.
    pub unit: f64,
    /// The height of the shapes.
    pub height: u32,
}

impl Chart {
    /// Draws it, and what a reader needs beside it.
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
                    (framed(self.title, columns.span, self.height, &self.plotted(columns), &self.grid()))
                }
            }
        }
    }

    /// Returns the lines of the grid: where they are, from the top, and what is written at them.
    fn grid(&self) -> Vec<(f64, String)> {
        let Range { start, end } = self.values;
        let lines = (self.height / GRID).max(2) as usize;
        let axis = RangedCoordf64::from(start / self.unit..end / self.unit);
        let points = axis.key_points(lines);
        let at = |value: f64| {
            let share = (value - start) / (end - start);
            (1.0 - share) * f64::from(self.height)
        };
        // What is at the very top would be cut off.
        let points = points.into_iter().map(|point| point * self.unit);
        points
            .map(|value| (at(value), (self.label)(value)))
            .filter(|(at, _)| *at >= 13.0)
            .collect()
    }

    fn plotted(&self, columns: &Columns) -> Markup {
        let mut svg = String::new();
        // A string has room for everything, so it cannot fail.
        _ = self.draw(columns, &mut svg);
        stretched(&svg, WIDTH, self.height)
    }

    fn draw(&self, columns: &Columns, to: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::with_string(to, (WIDTH, self.height)).into_drawing_area();
        let count = columns.all.len() as f64;
        let mut chart = ChartBuilder::on(&root)
            .build_cartesian_2d(0.0..count, self.values.start..self.values.end)?;
        // Behind everything, when evicting calls were made.
        for (from, to) in runs(columns, Phase::Saturated) {
            let corners = [
                (from as f64, self.values.start),
                (to as f64, self.values.end),
            ];
            let tint = Ink::Purple.colour().mix(0.1).filled();
            chart.draw_series([Rectangle::new(corners, tint)])?;
        }
        match &self.shapes {
            Shapes::Lines(all) => {
                for series in all {
                    let style = series.ink.colour().stroke_width(2);
                    for (first, known) in known_runs(&series.values) {
                        let points = steps(first, known);
                        chart.draw_series([PathElement::new(points, style)])?;
                    }
                }
            }
            Shapes::Areas(all) => {
                // The tallest first, so that each covers what is not its own of the ones above.
                for top in (0..all.len()).rev() {
                    let sums = (0..columns.all.len()).map(|column| {
                        let below = all.iter().take(top + 1);
                        let known = below.filter_map(|series| *series.values.get(column)?);
                        // Where this one is not known, it has no area.
                        let sum: f64 = known.sum();
                        all[top].values[column].map(|_| sum)
                    });
                    let sums: Vec<_> = sums.collect();
                    for (first, known) in known_runs(&sums) {
                        let mut points = steps(first, known);
                        points.push((first as f64 + known.len() as f64, self.values.start));
                        points.push((first as f64, self.values.start));
                        let style = all[top].ink.colour().filled();
                        chart.draw_series([Polygon::new(points, style)])?;
                    }
                }
            }
        }
        root.present()?;
        Ok(())
    }
}

/// Returns the corners of a line that keeps its value for the length of a column.
fn steps(first: usize, known: &[Option<f64>]) -> Vec<(f64, f64)> {
    let values = known.iter().flatten();
    let steps = values.zip(first..).flat_map(|(value, column)| {
        let column = column as f64;
        [(column, *value), (column + 1.0, *value)]
    });
    steps.collect()
}

/// Returns the values that are known, run by run, with the index of the first of each.
fn known_runs(values: &[Option<f64>]) -> impl Iterator<Item = (usize, &[Option<f64>])> {
    let mut first = 0;
    let runs = values.chunk_by(|one, next| one.is_some() == next.is_some());
    runs.filter_map(move |run| {
        let index = first;
        first += run.len();
        run.first()?.map(|_| (index, run))
    })
}

/// Returns from which column to which the server was in a phase.
fn runs(columns: &Columns, phase: Phase) -> Vec<(usize, usize)> {
    let is_in: Vec<_> = columns
        .all
        .iter()
        .map(|column| (column.phase == Some(phase)).then_some(0.0))
        .collect();
    known_runs(&is_in)
        .map(|(first, run)| (first, first + run.len()))
        .collect()
}

/// Draws the phases: `saturated` in full height, `reclaim` in half.
pub fn phase_strip(columns: &Columns) -> Markup {
    const HEIGHT: u32 = 24;
    let bars = [
        (Phase::Saturated, 0.0),
        (Phase::Reclaim, f64::from(HEIGHT) / 2.0),
    ];
    let unknown = columns.all.iter().map(|column| match column.phase {
        None => Some(0.0),
        Some(_) => None,
    });
    let unknown: Vec<_> = unknown.collect();
    let shape = |from: usize, to: usize, top: f64, ink: Ink, opacity: &'static str| {
        html! {
            rect x=(from) y=(top) width=(to - from) height=(f64::from(HEIGHT) - top) fill=(ink.text())
                fill-opacity=(opacity) {}
        }
    };
    let shapes = html! {
        svg width="100%" height=(HEIGHT) viewBox={ "0 0 " (columns.all.len()) " " (HEIGHT) }
            preserveAspectRatio="none" {
            @for (first, run) in known_runs(&unknown) {
                (shape(first, first + run.len(), 0.0, Ink::Grey, "0.2"))
            }
            @for (phase, top) in bars {
                @for (from, to) in runs(columns, phase) { (shape(from, to, top, Ink::Purple, "1")) }
            }
        }
    };
    html! {
        figure {
            figcaption {
                strong { "Phase" }
                " " span.key { (swatch(Ink::Purple, true)) "saturated (full height)" }
                " " span.key { "reclaim (half)" }
                @if unknown.iter().any(Option::is_some) { " " span.note { "pale: not known" } }
            }
            (framed("Phase", columns.span, HEIGHT, &shapes, &[]))
        }
    }
}

/// Returns a small sample of a line, or of an area, for a legend.
pub fn swatch(ink: Ink, is_area: bool) -> Markup {
    html! {
        svg.swatch width="22" height="10" aria-hidden="true" {
            @if is_area {
                rect width="22" height="10" fill=(ink.text()) {}
            } @else {
                polyline points="0,5 22,5" fill="none" stroke=(ink.text()) stroke-width="2" {}
            }
        }
    }
}

/// Puts shapes over the axis of time, with a grid: lines at these places from the top, and what is written at them.
pub fn framed(
    title: &str,
    span: Span,
    height: u32,
    shapes: &Markup,
    grid: &[(f64, String)],
) -> Markup {
    let description = format!(
        "{title}, from {} to {} UTC",
        times::date_and_time(span.from_us),
        times::date_and_time(span.to_us)
    );
    html! {
        svg.chart role="img" width="100%" height=(height + TIMES) aria-label=(description) {
            @for (y, _) in grid { line.grid x1="0" x2="100%" y1=(y) y2=(y) {} }
            (shapes)
            line.grid x1="0" x2="100%" y1=(height) y2=(height) {}
            @for (y, text) in grid { text x="3" y=(y - 3.0) { (text) } }
            @for (share, text) in ticks(span) {
                @let x = format!("{:.2}%", share * 100.0);
                line.tick x1=(x) x2=(x) y1=(height) y2=(height + 4) {}
                text.time x=(x) y=(height + 16) text-anchor=(anchor(share)) { (text) }
            }
        }
    }
}

/// Returns on which side of its place a text is, so that none is cut off.
fn anchor(share: f64) -> &'static str {
    match share {
        share if share < 0.08 => "start",
        share if share > 0.92 => "end",
        _ => "middle",
    }
}

/// Returns up to five times to write at an axis, and where they are in the span.
fn ticks(span: Span) -> Vec<(f64, String)> {
    const SECOND: u64 = 1_000_000;
    const STEPS: [u64; 16] = [
        1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 21_600,
    ];
    let fits = |step: &&u64| span.length_us() / (**step * SECOND) <= 4;
    let step = STEPS.iter().find(fits).unwrap_or(&86_400) * SECOND;
    let first = span.from_us.div_ceil(step).saturating_mul(step);
    let text = match step < 60 * SECOND {
        true => times::time_of_day,
        false => times::minute_of_day,
    };
    // More than five of the longest steps would be most of a week.
    let all = (0..7).map(|index| first.saturating_add(index * step));
    all.take_while(|us| *us <= span.to_us)
        .map(|us| (span.share_at(us), text(us)))
        .collect()
}

/// Puts a drawing of plotters into another SVG, stretched to its width.
fn stretched(svg: &str, width: u32, height: u32) -> Markup {
    let begin = svg.find("<svg").unwrap_or(0);
    let inside = svg[begin..].find('>').map_or(0, |end| begin + end + 1);
    let end = svg.rfind("</svg>").unwrap_or(svg.len());
    let inside = svg.get(inside..end).unwrap_or_default();
    html! {
        svg.plot width="100%" height=(height) viewBox={ "0 0 " (width) " " (height) }
            preserveAspectRatio="none" {
            // Shapes of this module, which have no text of others in them.
            (PreEscaped(inside))
        }
    }
}

#[cfg(test)]
mod tests {
    use evictscope_records::text::count;
    use evictscope_telemetry::Phase;

    use super::{Chart, Ink, Series, Shapes, known_runs, phase_strip, ticks};
    use crate::pages::columns::{Column, Columns, Span};

    fn columns() -> Columns {
        let mut all = vec![Column::default(); 10];
        for (index, column) in all.iter_mut().enumerate().skip(1) {
            column.phase = Some(match index {
                4..6 => Phase::Saturated,
                6..8 => Phase::Reclaim,
                _ => Phase::NotSaturated,
            });
        }
        let span = Span::new(1_700_000_000_000_000, 1_700_000_100_000_000);
        Columns { span, all }
    }

    fn chart(shapes: fn(Vec<Series>) -> Shapes) -> Chart {
        let series = |name: &str, ink, known: std::ops::Range<usize>| Series {
            name: name.to_owned(),
            ink,
            values: (0..10)
                .map(|column| known.contains(&column).then_some(40.0))
                .collect(),
        };
        Chart {
            title: "Something",
            note: None,
            shapes: shapes(vec![
                series("one <b>", Ink::Blue, 0..10),
                series("other", Ink::Red, 2..5),
            ]),
            values: 0.0..100.0,
            label: count,
            unit: 1.0,
            height: 100,
        }
    }

    #[test]
    fn a_chart_has_a_legend_a_grid_and_times() {
        let drawn = chart(Shapes::Lines).figure(&columns()).into_string();
        for text in [
            "<strong>Something</strong>",
            "one &lt;b&gt;</span>",
            ">22:13:30</text>",
            ">50</text>",
            "aria-label=\"Something, from 2023-11-14 22:13:20 to 2023-11-14 22:15:00 UTC\"",
            // The line of the second ends where it is not known.
            "points=\"239,60 359,60 359,60 479,60 479,60 599,60 \"",
        ] {
            assert!(drawn.contains(text), "{text} in {drawn}");
        }
        assert!(!drawn.contains("<b>"));
    }

    #[test]
    fn areas_stand_on_each_other() {
        let drawn = chart(Shapes::Areas).figure(&columns()).into_string();
        let (upper, lower) = (Ink::Red.text(), Ink::Blue.text());
        let at = |ink: &str, points: &str| {
            let polygon = format!("fill=\"{ink}\" points=\"{points}");
            drawn
                .find(&polygon)
                .unwrap_or_else(|| unreachable!("{polygon} in {drawn}"))
        };
        // What is drawn later covers it.
        assert!(at(&upper, "239,20 359,20") < at(&lower, "0,60 119,60"));
    }

    #[test]
    fn nothing_known_is_said_in_words() {
        let mut chart = chart(Shapes::Lines);
        chart.shapes = Shapes::Lines(vec![Series {
            name: "nothing".to_owned(),
            ink: Ink::Blue,
            values: vec![None; 10],
        }]);
        let drawn = chart.figure(&columns()).into_string();
        assert!(drawn.contains("Not known in this time."), "{drawn}");
    }

    #[test]
    fn phases_are_told_by_height_too() {
        let drawn = phase_strip(&columns()).into_string();
        for shape in [
            "<rect x=\"4\" y=\"0\" width=\"2\" height=\"24\" fill=\"#9260CC\"",
            "<rect x=\"6\" y=\"12\" width=\"2\" height=\"12\" fill=\"#9260CC\"",
            "<rect x=\"0\" y=\"0\" width=\"1\" height=\"24\" fill=\"#808080\"",
        ] {
            assert!(drawn.contains(shape), "{shape} in {drawn}");
        }
    }

    #[test]
    fn there_are_a_few_round_times() {
        let of = |seconds: u64| {
            let from = 1_700_000_000_000_000;
            ticks(Span::new(from, from + seconds * 1_000_000))
        };
        let texts = |seconds| of(seconds).into_iter().map(|(_, text)| text);
        let minute: Vec<_> = texts(100).collect();
        assert_eq!(minute, ["22:13:30", "22:14:00", "22:14:30", "22:15:00"]);
        let day: Vec<_> = texts(86_400).collect();
        assert_eq!(day, ["00:00", "06:00", "12:00", "18:00"]);
        for seconds in [1, 7, 61, 600, 3_599, 86_400] {
            let ticks = of(seconds);
            assert!((1..=5).contains(&ticks.len()), "{seconds} s: {ticks:?}");
            assert!(ticks.iter().all(|(share, _)| (0.0..=1.0).contains(share)));
        }
    }

    #[test]
    fn runs_of_known_values() {
        let values = [None, Some(1.0), Some(2.0), None, Some(3.0)];
        let runs: Vec<_> = known_runs(&values).collect();
        assert_eq!(runs, [(1, &values[1..3]), (4, &values[4..])]);
    }
}
