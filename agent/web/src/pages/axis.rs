//! The time axis beneath a drawing, and its grid lines.

use maud::{Markup, html};

use super::span::Span;
use super::times;

/// The height beneath the shapes, for the times.
const TIMES: u32 = 20;

/// The width left of the shapes, for the values: as wide as `50.0 MiB`.
const VALUES: u32 = 60;
/// The height of the values' text.
const TEXT: f64 = 12.0;

/// Puts shapes over the time axis, with a grid: for each line, its distance from the top and the text beside it.
pub fn framed(title: &str, span: Span, height: u32, shapes: &Markup, grid: &[(f64, String)]) -> Markup {
    let description =
        format!("{title}, from {} to {} UTC", times::date_and_time(span.from_us), times::date_and_time(span.to_us));
    // Centred on its line, if there is room.
    let beside = |y: f64| (y + TEXT / 3.0).max(TEXT * 0.8);
    html! {
        div.framed {
            svg width=(VALUES) height=(height + TIMES) aria-hidden="true" {
                @for (y, text) in grid { text x=(VALUES - 6) y=(beside(*y)) text-anchor="end" { (text) } }
            }
            svg.chart role="img" height=(height + TIMES) aria-label=(description) {
                @for (y, _) in grid { line.grid x1="0" x2="100%" y1=(y) y2=(y) {} }
                (shapes)
                line.grid x1="0" x2="100%" y1=(height) y2=(height) {}
                @for (share, text) in ticks(span) {
                    @let x = format!("{:.2}%", share * 100.0);
                    line.tick x1=(x) x2=(x) y1=(height) y2=(height + 4) {}
                    text x=(x) y=(height + 16) text-anchor=(anchor(share)) { (text) }
                }
            }
        }
    }
}

/// Returns how to anchor a text, so that none is cut off.
fn anchor(share: f64) -> &'static str {
    match share {
        share if share < 0.08 => "start",
        share if share > 0.92 => "end",
        _ => "middle",
    }
}

/// Returns the times to write at an axis, up to four for spans of less than four days, and where in the span they are.
fn ticks(span: Span) -> Vec<(f64, String)> {
    const SECOND: u64 = 1_000_000;
    const STEPS: [u64; 17] =
        [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 21_600, 28_800];
    let fits = |step: &&u64| span.length_us() / (**step * SECOND) <= 3;
    let step = STEPS.iter().find(fits).unwrap_or(&86_400) * SECOND;
    let first = span.from_us.div_ceil(step).saturating_mul(step);
    let text = match step < 60 * SECOND {
        true => times::time_of_day,
        false => times::minute_of_day,
    };
    // More than four, at the longest step, would take most of a week.
    let all = (0..7).map(|index| first.saturating_add(index * step));
    all.take_while(|us| *us <= span.to_us).map(|us| (span.share_at(us), text(us))).collect()
}

#[cfg(test)]
mod tests {
    use super::ticks;
    use crate::pages::span::Span;

    #[test]
    fn there_are_a_few_round_times() {
        let of = |seconds: u64| {
            let from = 1_700_000_000_000_000;
            ticks(Span::new(from, from + seconds * 1_000_000))
        };
        let texts = |seconds| Vec::from_iter(of(seconds).into_iter().map(|(_, text)| text));
        assert_eq!(texts(100), ["22:13:30", "22:14:00", "22:14:30", "22:15:00"]);
        assert_eq!(texts(86_400), ["00:00", "08:00", "16:00"]);
        for seconds in [1, 7, 61, 600, 3_599, 86_400] {
            let ticks = of(seconds);
            assert!((1..=4).contains(&ticks.len()), "{seconds} s: {ticks:?}");
            assert!(ticks.iter().all(|(share, _)| (0.0..=1.0).contains(share)));
        }
    }
}
