//! The strip of phases, which are told apart by height too.

use std::ops::Range;

use evictscope_telemetry::Phase;
use maud::{Markup, html};

use super::axis::framed;
use super::columns::{Columns, runs};
use super::ink::{Ink, swatch};

/// Draws the phases: `saturated` in full height, `reclaim` in half.
pub fn strip(columns: &Columns) -> Markup {
    const HEIGHT: u32 = 24;
    let bars = [(Phase::Saturated, 0.0), (Phase::Reclaim, f64::from(HEIGHT) / 2.0)];
    let unknown = runs(&columns.phases, Option::is_none);
    let shape = |at: &Range<usize>, top: f64, ink: Ink, opacity: &'static str| {
        html! {
            rect x=(at.start) y=(top) width=(at.len()) height=(f64::from(HEIGHT) - top) fill=(ink.text())
                fill-opacity=(opacity) {}
        }
    };
    let shapes = html! {
        svg width="100%" height=(HEIGHT) viewBox={ "0 0 " (columns.count()) " " (HEIGHT) }
            preserveAspectRatio="none" {
            @for at in &unknown { (shape(at, 0.0, Ink::Grey, "0.2")) }
            @for (phase, top) in bars {
                @for at in runs(&columns.phases, |known| *known == Some(phase)) { (shape(&at, top, Ink::Purple, "1")) }
            }
        }
    };
    html! {
        figure {
            figcaption {
                strong { "Phase" }
                " " span.key { (swatch(Ink::Purple, true)) "saturated (full height)" }
                " " span.key { (swatch(Ink::Purple, true)) "reclaim (half)" }
                @if !unknown.is_empty() { " " span.note { "pale: not known" } }
            }
            (framed("Phase", columns.span, HEIGHT, &shapes, &[]))
        }
    }
}

#[cfg(test)]
mod tests {
    use evictscope_telemetry::Phase;

    use super::strip;
    use crate::pages::columns::Columns;
    use crate::pages::span::Span;

    #[test]
    fn phases_are_told_by_height_too() {
        let mut columns = Columns::of(&[], Span::new(0, 2_000_000));
        columns.phases[1..].fill(Some(Phase::NotSaturated));
        columns.phases[4..6].fill(Some(Phase::Saturated));
        columns.phases[6..8].fill(Some(Phase::Reclaim));
        let drawn = strip(&columns).into_string();
        for shape in [
            "<rect x=\"4\" y=\"0\" width=\"2\" height=\"24\" fill=\"#9260CC\"",
            "<rect x=\"6\" y=\"12\" width=\"2\" height=\"12\" fill=\"#9260CC\"",
            "<rect x=\"0\" y=\"0\" width=\"1\" height=\"24\" fill=\"#808080\"",
        ] {
            assert!(drawn.contains(shape), "{shape} in {drawn}");
        }
    }
}
