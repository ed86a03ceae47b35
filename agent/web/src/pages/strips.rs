//! The strip of phases, which are told apart by height too.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use evictscope_telemetry::{Moment, Phase, StallCause, StallTime, stall_times};
use maud::{Markup, html};

use super::columns::{Columns, LONGEST_INTERVAL_US, runs};
use super::drawing::{Ink, Span, framed, swatch};
use super::facts;
use super::text::duration;

/// Draws the phases: `saturated` in full height, `reclaim` in half.
pub fn phases(columns: &Columns) -> Markup {
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

const ROW: u32 = 20;
/// Shapes are placed in this width. None is narrower than two of it, so that a short stall is visible.
const WIDTH: f64 = 1_000.0;
const NARROWEST: f64 = 2.0;

/// Returns the colour of a cause: the same as in the chart of the main thread, if that shows it.
fn ink(cause: StallCause) -> Ink {
    match cause {
        StallCause::Eviction => Ink::Red,
        StallCause::Expire => Ink::Green,
        StallCause::Commands => Ink::Blue,
        StallCause::Cpu => Ink::Teal,
        StallCause::Blocked => Ink::Orange,
        StallCause::Unknown => Ink::Grey,
    }
}

/// Draws when clients were stalled in a span, each cause in a row of its own.
pub fn stalls(moments: &[Moment], span: Span) -> Markup {
    if moments.iter().all(|moment| moment.stalled.is_none()) {
        return html! {
            figure {
                figcaption { strong { "Stalls" } }
                p.note { "How long clients waited is not known for this time." }
            }
        };
    }
    let stalls: Vec<_> = stall_times(moments.iter().copied()).filter_map(|stall| within(stall, span)).collect();
    let causes: Vec<_> = StallCause::ALL
        .into_iter()
        .map(|cause| (cause, stalls.iter().filter(move |stall| stall.by == cause)))
        .filter(|(_, stalls)| stalls.clone().next().is_some())
        .collect();
    let height = ROW * u32::try_from(causes.len().max(1)).unwrap_or(1);
    let unknown = outline(unknown(moments), span, 0, height);
    let shapes = html! {
        svg.plot width="100%" height=(height) viewBox={ "0 0 " (WIDTH) " " (height) } preserveAspectRatio="none" {
            @if !unknown.is_empty() { path fill=(Ink::Grey.text()) fill-opacity="0.2" d=(unknown) {} }
            @for ((cause, stalls), top) in causes.iter().zip((0..height).step_by(ROW as usize)) {
                @let times = stalls.clone().map(|stall| (stall.from_us, stall.to_us));
                path fill=(ink(*cause).text()) d=(outline(times, span, top + 1, ROW - 2)) {}
            }
        }
    };
    html! {
        figure {
            figcaption {
                strong { "Stalls" }
                @for (cause, stalls) in &causes {
                    @let us = stalls.clone().map(|stall| stall.length_us()).sum();
                    " " span.key {
                        (swatch(ink(*cause), true)) (facts::cause(*cause)) " " (duration(Duration::from_micros(us)))
                    }
                }
                @match causes.len() {
                    0 => { " " span.note { "No client was stalled in this time." } },
                    1 => {},
                    _ => { " " span.note { "From the top down, in this order." } },
                }
                @if !unknown.is_empty() { " " span.note { "pale: not known" } }
            }
            (framed("Stalls", span, height, &shapes, &[]))
        }
    }
}

fn within(stall: StallTime, span: Span) -> Option<StallTime> {
    let (from_us, to_us) = (stall.from_us.max(span.from_us), stall.to_us.min(span.to_us));
    (from_us < to_us).then_some(StallTime { from_us, to_us, ..stall })
}

fn unknown(moments: &[Moment]) -> impl Iterator<Item = (u64, u64)> {
    moments.windows(2).filter_map(|pair| {
        let [before, after] = pair else { return None };
        let is_known = before.stalled.is_some() && after.stalled.is_some();
        let elapsed = after.unix_us().saturating_sub(before.unix_us());
        (!is_known || elapsed > LONGEST_INTERVAL_US).then_some((before.unix_us(), after.unix_us()))
    })
}

/// Returns the outline of `times`, which come earliest first, as a path. Times that cannot be told apart are one shape.
fn outline(times: impl Iterator<Item = (u64, u64)>, span: Span, top: u32, height: u32) -> String {
    let mut shapes: Vec<(f64, f64)> = Vec::new();
    for (from, to) in times {
        let [from, to] = [from, to].map(|us| span.share_at(us) * WIDTH);
        let to = to.max(from + NARROWEST);
        match shapes.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => shapes.push((from, to)),
        }
    }
    let mut path = String::new();
    for (from, to) in shapes {
        // A string has room for everything.
        _ = write!(path, "M{from:.1} {top}H{to:.1}V{}H{from:.1}z", top + height);
    }
    path
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evictscope_records::fixture::burst_record;
    use evictscope_telemetry::{Moment, Phase, StallCause};

    use super::{phases, stalls};
    use crate::pages::columns::Columns;
    use crate::pages::drawing::Span;

    #[test]
    fn phases_are_told_by_height_too() {
        let mut columns = Columns::of(&[], Span::new(0, 2_000_000));
        columns.phases[1..].fill(Some(Phase::NotSaturated));
        columns.phases[4..6].fill(Some(Phase::Saturated));
        columns.phases[6..8].fill(Some(Phase::Reclaim));
        let drawn = phases(&columns).into_string();
        for shape in [
            "<rect x=\"4\" y=\"0\" width=\"2\" height=\"24\" fill=\"#9260CC\"",
            "<rect x=\"6\" y=\"12\" width=\"2\" height=\"12\" fill=\"#9260CC\"",
            "<rect x=\"0\" y=\"0\" width=\"1\" height=\"24\" fill=\"#808080\"",
        ] {
            assert!(drawn.contains(shape), "{shape} in {drawn}");
        }
    }

    const SECOND: u64 = 1_000_000;
    const BEGAN: u64 = 1_700_000_000 * SECOND;

    /// Returns ten seconds in which clients are stalled: in the fourth, the fifth and the eighth.
    fn moments() -> Vec<Moment> {
        let any = burst_record().moments.remove(0);
        let moment = |second: u64, stalled: u64, stalled_by| Moment {
            at: Duration::from_micros(BEGAN + second * SECOND),
            stalled: Some(Duration::from_secs(stalled)),
            stalled_by,
            ..any
        };
        (0..=10)
            .map(|second| match second {
                0..4 => moment(second, 0, None),
                4 | 5 => moment(second, second - 3, Some(StallCause::Eviction)),
                6..8 => moment(second, 2, None),
                8 => moment(second, 3, Some(StallCause::Cpu)),
                _ => moment(second, 3, None),
            })
            .collect()
    }

    fn drawn(moments: &[Moment]) -> String {
        stalls(moments, Span::new(BEGAN, BEGAN + 10 * SECOND)).into_string()
    }

    #[test]
    fn each_cause_has_a_colour_a_row_and_a_sum() {
        let drawn = drawn(&moments());
        for text in [
            "evictions 2.0 s</span>",
            "waiting for a CPU 1.0 s</span>",
            "fill=\"#D64541\" d=\"M300.0 1H500.0V19H300.0z\"",
            "fill=\"#008C96\" d=\"M700.0 21H800.0V39H700.0z\"",
            "From the top down",
        ] {
            assert!(drawn.contains(text), "{text} in {drawn}");
        }
        assert!(!drawn.contains("not known"), "{drawn}");
    }

    #[test]
    fn a_calm_time_is_told_from_an_unknown_one() {
        let mut moments = moments();
        let calm = drawn(&moments[..4]);
        assert!(calm.contains("No client was stalled") && !calm.contains("d=\"M"));
        // One second is not known, and nothing was read for four others.
        moments[9].stalled = None;
        moments.drain(1..4);
        let gaps = drawn(&moments);
        assert!(gaps.contains("pale: not known"), "{gaps}");
        assert!(gaps.contains("d=\"M0.0 0H400.0V40H0.0zM800.0 0H1000.0V40H800.0z\""), "{gaps}");
        for moment in &mut moments {
            moment.stalled = None;
        }
        let unknown = drawn(&moments);
        assert!(unknown.contains("How long clients waited is not known"), "{unknown}");
        assert!(!unknown.contains("No client"), "{unknown}");
    }

    #[test]
    fn a_short_stall_is_wide_enough_to_be_seen() {
        let mut moments = moments();
        let after = moments.split_off(1);
        let short = Moment {
            at: Duration::from_micros(BEGAN + 5 * SECOND),
            stalled: Some(Duration::from_millis(1)),
            stalled_by: Some(StallCause::Blocked),
            ..after[0]
        };
        moments.push(short);
        let drawn = drawn(&moments);
        assert!(drawn.contains("blocked 1.0 ms"), "{drawn}");
        assert!(drawn.contains("M499.9 1H501.9V19H499.9z"), "{drawn}");
    }
}
