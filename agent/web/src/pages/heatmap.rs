//! The sub-second-offset heat map of one server, as flamescope draws them.
//!
//! Each column is a second, each row 20 ms of it; the stronger the colour, the greater the share of the main thread.
//! One panel is for its evicting calls, one for everything else that it does on CPU. What recurs every second shows as
//! a horizontal line, a burst as a block.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::anyhow;
use evictscope_model::UnixTime;
use evictscope_telemetry::{BIN_NS, TimeBin, Timeline};
use maud::{Markup, html};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::drawing::{Span, framed};

const SIZE: (u32, u32) = (1_300, 700);
/// Rows in a second.
pub(super) const ROWS: u64 = 1_000_000_000 / BIN_NS;
/// The number of colours; neighbours of the same colour become one rectangle.
pub(super) const LEVELS: u32 = 10;
/// Between black and white, to be legible on both.
const INK: RGBColor = RGBColor(128, 128, 128);
/// Follows the colours that the reader prefers: the drawing itself has no background.
pub(super) const STYLE: &str = ":root{background:#fff;color-scheme:light dark}text{fill:#222}\
@media(prefers-color-scheme:dark){:root{background:#16181d}text{fill:#ddd}}";

/// A panel: what it shows, and in which colour.
pub(super) struct Panel {
    pub(super) title: &'static str,
    colour: RGBColor,
    /// Returns what it shows for a bin.
    pub(super) nanoseconds: fn(TimeBin) -> u32,
}

pub(super) const PANELS: [Panel; 2] = [
    Panel { title: "evicting calls", colour: RGBColor(214, 39, 40), nanoseconds: |bin| bin.evicting },
    Panel { title: "everything else on CPU", colour: RGBColor(31, 119, 210), nanoseconds: |bin| bin.cpu_other },
];

/// A rectangle of one colour: a column, and a range of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeatBlock {
    pub(super) second: u64,
    pub(super) rows: (u64, u64),
    /// 1 to [`LEVELS`]; 0 is not known.
    pub(super) level: u32,
}

/// Draws the heat map as SVG. The library escapes `server`, which anybody may have chosen.
pub(crate) fn svg(server: &str, timeline: &Timeline, since_1970: Duration) -> anyhow::Result<String> {
    let mut text = String::new();
    draw(server, timeline, since_1970, &mut text).map_err(|error| anyhow!("cannot draw the heat map: {error}"))?;
    let begin = text.find("<svg").unwrap_or(0);
    text.insert_str(text[begin..].find('>').map_or(0, |end| begin + end + 1), &format!("<style>{STYLE}</style>"));
    Ok(text)
}

fn draw(
    server: &str,
    timeline: &Timeline,
    since_1970: Duration,
    to: &mut String,
) -> Result<(), Box<dyn std::error::Error>> {
    let first = (since_1970 + timeline.start()).as_secs();
    let last = first + 1 + timeline.bins().count() as u64 / ROWS;
    let root = SVGBackend::with_string(to, SIZE).into_drawing_area();
    let font = ("sans-serif", 14).into_font().color(&INK);
    let title = format!("Main thread of server {server}, 20 ms by 20 ms, UTC");
    let root = root.titled(&title, ("sans-serif", 18).into_font().color(&INK))?;
    let (panels, legend) = root.split_vertically(SIZE.1 - 80);
    for (area, panel) in panels.split_evenly((2, 1)).iter().zip(PANELS) {
        let mut chart = ChartBuilder::on(area)
            .caption(panel.title, font.clone())
            .margin_right(20)
            .x_label_area_size(30)
            .y_label_area_size(80)
            .build_cartesian_2d(first..last, 0..ROWS)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .axis_style(INK)
            .label_style(font.clone())
            .x_labels(11)
            .x_label_formatter(&|second| time_of_day(*second))
            .y_labels(6)
            .y_label_formatter(&|row| format!("{} ms", row * BIN_NS / 1_000_000))
            .y_desc("within the second")
            .draw()?;
        chart.draw_series(blocks(timeline, since_1970, panel.nanoseconds).iter().map(|block| {
            let (top, bottom) = block.rows;
            let corners = [(block.second, top), (block.second + 1, bottom)];
            Rectangle::new(corners, colour(panel.colour, block.level).filled())
        }))?;
    }
    draw_legend(&legend, &font)?;
    root.present()?;
    Ok(())
}

fn colour(colour: RGBColor, level: u32) -> RGBAColor {
    if level == 0 { INK.mix(0.25) } else { colour.mix(f64::from(level) / f64::from(LEVELS)) }
}

impl Panel {
    /// Returns the colour of a level as SVG spells it, and its opacity.
    pub(super) fn paint(&self, level: u32) -> (String, f64) {
        let RGBAColor(red, green, blue, opacity) = colour(self.colour, level);
        (format!("#{red:02X}{green:02X}{blue:02X}"), opacity)
    }
}

fn draw_legend<DB: DrawingBackend>(
    area: &DrawingArea<DB, plotters::coord::Shift>,
    font: &TextStyle<'_>,
) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
    const CELL: i32 = 26;
    let font = font.pos(Pos::new(HPos::Left, VPos::Center));
    for (row, panel) in (0..).zip(PANELS) {
        let top = 6 + 24 * row;
        area.draw(&Text::new(panel.title, (60, top + 9), font.clone()))?;
        for level in 1..=LEVELS {
            let left = 230 + CELL * level as i32;
            let corners = [(left, top), (left + CELL, top + 18)];
            area.draw(&Rectangle::new(corners, colour(panel.colour, level).filled()))?;
        }
    }
    let right = 230 + CELL * (LEVELS as i32 + 1);
    for (text, left) in [("0 %", 225), ("100 % of the main thread", right + 8)] {
        area.draw(&Text::new(text, (left, 27), font.clone()))?;
    }
    let unknown = right + 230;
    area.draw(&Rectangle::new([(unknown, 18), (unknown + CELL, 36)], colour(INK, 0).filled()))?;
    area.draw(&Text::new("not known", (unknown + CELL + 8, 27), font))
}

/// Returns the blocks to draw; bins in which nothing happened have no block. `since_1970` dates the timeline.
pub(super) fn blocks(timeline: &Timeline, since_1970: Duration, nanoseconds: fn(TimeBin) -> u32) -> Vec<HeatBlock> {
    let bin_length = u128::from(BIN_NS);
    // A second need not begin with a bin, so each bin is in the row nearest to it.
    let first = ((since_1970 + timeline.start()).as_nanos() + bin_length / 2) / bin_length;
    let first = u64::try_from(first).unwrap_or(0);
    let mut blocks: Vec<HeatBlock> = Vec::new();
    for (index, bin) in (first..).zip(timeline.bins()) {
        // Level 0 is for what is not known.
        let level = bin.map_or(0, |bin| nanoseconds(bin).saturating_mul(LEVELS).div_ceil(BIN_NS as u32).min(LEVELS));
        if level == 0 && bin.is_some() {
            continue;
        }
        let (second, row) = (index / ROWS, index % ROWS);
        match blocks.last_mut() {
            Some(above) if (above.second, above.rows.1, above.level) == (second, row, level) => {
                above.rows.1 = row + 1;
            }
            _ => blocks.push(HeatBlock { second, rows: (row, row + 1), level }),
        }
    }
    blocks
}

fn time_of_day(second: u64) -> String {
    let text = UnixTime::new(Duration::from_secs(second)).map_or_else(String::new, |time| time.to_string());
    text.get(11..19).unwrap_or_default().to_owned()
}

const HEIGHT: u32 = 150;
/// The width that blocks are placed in.
const WIDTH: f64 = 10_000.0;

/// Draws the panels of the heat map of a timeline whose times are since 1970.
pub fn figures(timeline: &Timeline, span: Span) -> Markup {
    html! {
        @for panel in PANELS { (figure(&panel, timeline, span)) }
        p.note {
            "Each column is a second, from its beginning at the bottom to its end at the top, and each cell 20 ms of it. The \
             stronger the colour, the greater the share of the main thread; grey is not known. What recurs within each second \
             is a line across."
        }
    }
}

fn figure(panel: &Panel, timeline: &Timeline, span: Span) -> Markup {
    let blocks = blocks(timeline, Duration::ZERO, panel.nanoseconds);
    let shapes = html! {
        svg.plot width="100%" height=(HEIGHT) viewBox={ "0 0 " (WIDTH) " " (ROWS) } preserveAspectRatio="none"
            shape-rendering="crispEdges" {
            @for level in 0..=LEVELS {
                @let (ink, opacity) = panel.paint(level);
                // One path for all blocks of a colour: a rectangle for each block would be megabytes.
                path fill=(ink) fill-opacity=(opacity) d=(path(&blocks, level, span)) {}
            }
        }
    };
    let grid: Vec<_> = [200, 400, 600, 800]
        .map(|ms| {
            let share = 1.0 - f64::from(ms) / 1_000.0;
            (f64::from(HEIGHT) * share, format!("{ms} ms"))
        })
        .into();
    html! {
        figure {
            figcaption { strong { "Within each second: " (panel.title) } }
            (framed(panel.title, span, HEIGHT, &shapes, &grid))
        }
    }
}

/// Returns the outlines of all blocks of a colour that are in the span.
fn path(blocks: &[HeatBlock], level: u32, span: Span) -> String {
    let left = |second: u64| span.share_at(second.saturating_mul(1_000_000)) * WIDTH;
    let mut path = String::new();
    for block in blocks.iter().filter(|block| block.level == level) {
        let (from, to) = (left(block.second), left(block.second + 1));
        let (low, high) = block.rows;
        if to <= 0.0 || from >= WIDTH {
            continue;
        }
        // A string has room for everything.
        _ = write!(path, "M{from:.0} {}H{to:.0}V{}H{from:.0}z", ROWS - low, ROWS - high);
    }
    path
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{HeatBlock, PANELS, blocks, figures, svg};
    use crate::fixture::timeline;
    use crate::pages::drawing::Span;

    const SINCE_1970: Duration = Duration::from_secs(1_700_000_000);

    #[test]
    fn neighbours_of_one_colour_are_one_block() {
        let block = |second: u64, rows, level| HeatBlock { second: 1_700_000_000 + second, rows, level };
        let evicting = blocks(&timeline(), SINCE_1970, PANELS[0].nanoseconds);
        assert_eq!(evicting, [block(1, (1, 3), 10), block(1, (3, 4), 1)]);
        assert_eq!(blocks(&timeline(), SINCE_1970, PANELS[1].nanoseconds), [block(1, (4, 5), 5)]);
    }

    #[test]
    fn the_drawing_has_axes_a_legend_and_no_raw_text() -> anyhow::Result<()> {
        let svg = svg("/run/<b>.sock", &timeline(), SINCE_1970)?;
        for text in
            ["<style>", "evicting calls", "everything else", "100 %", "22:13:2", "200 ms", "/run/&lt;b&gt;.sock"]
        {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        assert!(!svg.contains("<b>"));
        Ok(())
    }

    #[test]
    fn cells_are_where_they_belong() {
        let second = 1_000_000;
        let drawn = figures(&timeline(), Span::new(0, 10 * second)).into_string();
        for text in [
            // The whole second bin of second 1, and the one after it.
            "d=\"M1000 49H2000V47H1000z\"",
            "Within each second: evicting calls",
            ">200 ms</text>",
            "00:00:05",
        ] {
            assert!(drawn.contains(text), "{text} in {drawn}");
        }
        let later = Span::new(60 * second, 70 * second);
        assert!(!figures(&timeline(), later).into_string().contains("d=\"M"));
    }
}
