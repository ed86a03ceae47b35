//! The sub-second-offset heat map of one server, as flamescope draws them.
//!
//! Each column is a second, each row 20 ms of it; the stronger the colour, the greater the share of the main thread.
//! One panel is for its evicting calls, one for everything else that it does on CPU. What recurs every second shows as
//! a horizontal line, a burst as a block.

use std::fmt::Write as _;
use std::time::Duration;

use evictscope_telemetry::{BIN_NS, TimeBin, Timeline};
use maud::{Markup, PreEscaped, html};

use super::drawing::{Ink, Span, anchor, framed, ticks};

const ROWS: u64 = 1_000_000_000 / BIN_NS;
/// The number of colours; neighbours of the same colour become one rectangle.
const LEVELS: u32 = 10;
/// Follows the colours that the reader prefers: the drawing itself has no background.
pub(super) const STYLE: &str = ":root{background:#fff;color-scheme:light dark}text{fill:#222}\
@media(prefers-color-scheme:dark){:root{background:#16181d}text{fill:#ddd}}";

/// A panel: what it shows, and in which colour.
struct Panel {
    title: &'static str,
    colour: &'static str,
    nanoseconds: fn(TimeBin) -> u32,
}

const PANELS: [Panel; 2] = [
    Panel { title: "evicting calls", colour: "#D62728", nanoseconds: |bin| bin.evicting },
    Panel { title: "everything else on CPU", colour: "#1F77D2", nanoseconds: |bin| bin.cpu_other },
];

/// A rectangle of one colour: a column, and a range of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeatBlock {
    second: u64,
    rows: (u64, u64),
    /// 1 to [`LEVELS`]; 0 is not known.
    level: u32,
}

/// The places of a panel in the heat map of its own, and the width of a sample of a colour.
const LEFT: u32 = 80;
const PANEL: (u32, u32) = (1_200, 230);
const CELL: u32 = 26;

/// Draws the heat map as SVG. The library escapes `server`, which anybody may have chosen.
pub(crate) fn svg(server: &str, timeline: &Timeline, since_1970: Duration) -> String {
    let from = (since_1970 + timeline.start()).as_secs();
    let to = from + 1 + timeline.bins().count() as u64 / ROWS;
    let span = Span::new(from * 1_000_000, to * 1_000_000);
    let (width, height) = PANEL;
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1300 700" font-family="sans-serif" font-size="14" {
            style { (PreEscaped(STYLE)) }
            text x="650" y="24" font-size="18" text-anchor="middle" {
                "Main thread of server " (server) ", 20 ms by 20 ms, UTC"
            }
            @for (panel, top) in PANELS.iter().zip([60, 350]) {
                text x="650" y=(top - 8) text-anchor="middle" { (panel.title) }
                @for (y, text) in milliseconds(height) {
                    text x=(LEFT - 8) y=(f64::from(top) + y + 5.0) text-anchor="end" { (text) }
                }
                svg x=(LEFT) y=(top) width=(width) height=(height) viewBox={ "0 0 " (WIDTH) " " (ROWS) }
                    preserveAspectRatio="none" { (panel.cells(timeline, since_1970, span)) }
                @for (share, text) in ticks(span, 10) {
                    text x=(f64::from(LEFT) + share * f64::from(width)) y=(top + height + 18)
                        text-anchor=(anchor(share)) {
                        (text)
                    }
                }
            }
            @for (panel, top) in PANELS.iter().zip([632, 656]) {
                text x="60" y=(top + 14) { (panel.title) }
                @for level in 1..=LEVELS {
                    rect x=(230 + CELL * level) y=(top) width=(CELL) height="18" fill=(panel.colour)
                        fill-opacity=(opacity(level)) {}
                }
            }
            text x="225" y="658" { "0 %" }
            text x="530" y="658" { "100 % of the main thread" }
            rect x="746" y="644" width=(CELL) height="18" fill=(Ink::Grey.text()) fill-opacity=(opacity(0)) {}
            text x="780" y="658" { "not known" }
        }
    }
    .into_string()
}

/// Returns the opacity of a level, of which 0 is what is not known.
fn opacity(level: u32) -> f64 {
    if level == 0 { 0.25 } else { f64::from(level) / f64::from(LEVELS) }
}

/// Returns where in a height rows begin, and when in the second that is.
fn milliseconds(height: u32) -> Vec<(f64, String)> {
    let line = |ms: u32| (f64::from(height) * (1.0 - f64::from(ms) / 1_000.0), format!("{ms} ms"));
    [200, 400, 600, 800].map(line).into()
}

impl Panel {
    /// Draws its cells. `since_1970` dates the timeline.
    fn cells(&self, timeline: &Timeline, since_1970: Duration, span: Span) -> Markup {
        let blocks = blocks(timeline, since_1970, self.nanoseconds);
        html! {
            @for level in 0..=LEVELS {
                @let ink = if level == 0 { Ink::Grey.text() } else { self.colour };
                // One path for all blocks of a colour: a rectangle for each block would be megabytes.
                path fill=(ink) fill-opacity=(opacity(level)) d=(path(&blocks, level, span))
                    shape-rendering="crispEdges" {}
            }
        }
    }
}

/// Returns the blocks to draw; bins in which nothing happened have no block. `since_1970` dates the timeline.
fn blocks(timeline: &Timeline, since_1970: Duration, nanoseconds: fn(TimeBin) -> u32) -> Vec<HeatBlock> {
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
    let shapes = html! {
        svg.plot width="100%" height=(HEIGHT) viewBox={ "0 0 " (WIDTH) " " (ROWS) } preserveAspectRatio="none" {
            (panel.cells(timeline, Duration::ZERO, span))
        }
    };
    html! {
        figure {
            figcaption { strong { "Within each second: " (panel.title) } }
            (framed(panel.title, span, HEIGHT, &shapes, &milliseconds(HEIGHT)))
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
    fn the_drawing_has_axes_a_legend_and_no_raw_text() {
        let svg = svg("/run/<b>.sock", &timeline(), SINCE_1970);
        for text in
            ["<style>", "evicting calls", "everything else", "100 %", "22:13:2", "200 ms", "/run/&lt;b&gt;.sock"]
        {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        assert!(!svg.contains("<b>"));
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
