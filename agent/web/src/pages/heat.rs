//! The sub-second heat map inside a page, on the same time axis as the charts.

use std::fmt::Write as _;
use std::time::Duration;

use evictscope_telemetry::Timeline;
use maud::{Markup, html};

use super::axis::framed;
use super::heatmap::{Block, LEVELS, PANELS, Panel, ROWS, blocks};
use super::span::Span;

/// The height of a panel.
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
fn path(blocks: &[Block], level: u32, span: Span) -> String {
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
    use super::figures;
    use crate::fixture::timeline;
    use crate::pages::span::Span;

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
