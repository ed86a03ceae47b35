//! What drawings share: the span of time that they show, its axis beneath them, their grid lines, and their colours.

use evictscope_telemetry::Moment;
use maud::{Markup, html};

use super::text;

/// The time that a drawing shows, since 1970, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from_us: u64,
    pub to_us: u64,
}

impl Span {
    /// Returns the time from one moment to another; a second of it at least.
    pub fn new(from_us: u64, to_us: u64) -> Self {
        Self { from_us, to_us: to_us.max(from_us.saturating_add(1_000_000)) }
    }

    pub fn of(moments: &[Moment]) -> Option<Self> {
        let (first, last) = (moments.first()?, moments.last()?);
        Some(Self::new(first.unix_us(), last.unix_us()))
    }

    pub fn length_us(self) -> u64 {
        self.to_us - self.from_us
    }

    /// Returns where a moment is in it: 0 at its beginning, 1 at its end.
    pub fn share_at(self, unix_us: u64) -> f64 {
        (unix_us as f64 - self.from_us as f64) / self.length_us() as f64
    }
}

/// The height beneath the shapes, for the times.
const TIMES: u32 = 20;

/// The width left of the shapes, for the values: as wide as `50.0 MiB`.
const VALUES: u32 = 60;
/// The height of the values' text.
const TEXT: f64 = 12.0;

/// Puts shapes over the time axis, with a grid: for each line, its distance from the top and the text beside it.
pub fn framed(title: &str, span: Span, height: u32, shapes: &Markup, grid: &[(f64, String)]) -> Markup {
    let description =
        format!("{title}, from {} to {} UTC", text::date_and_time(span.from_us), text::date_and_time(span.to_us));
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
                @for (share, text) in ticks(span, 3) {
                    @let x = format!("{:.2}%", share * 100.0);
                    line.tick x1=(x) x2=(x) y1=(height) y2=(height + 4) {}
                    text x=(x) y=(height + 16) text-anchor=(anchor(share)) { (text) }
                }
            }
        }
    }
}

/// Returns how to anchor a text, so that none is cut off.
pub fn anchor(share: f64) -> &'static str {
    match share {
        share if share < 0.08 => "start",
        share if share > 0.92 => "end",
        _ => "middle",
    }
}

/// Returns the times to write at an axis, one more than `steps` at most for spans of less than that many days, and
/// where in the span they are.
pub fn ticks(span: Span, steps: u64) -> Vec<(f64, String)> {
    const SECOND: u64 = 1_000_000;
    const STEPS: [u64; 17] =
        [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 21_600, 28_800];
    let step = STEPS.iter().find(|step| span.length_us() / (**step * SECOND) <= steps).unwrap_or(&86_400) * SECOND;
    let first = span.from_us.div_ceil(step).saturating_mul(step);
    let text = if step < 60 * SECOND { text::time_of_day } else { text::minute_of_day };
    // More, at the longest step, would take more than that.
    let all = (0..=2 * steps).map(|index| first.saturating_add(index * step));
    all.take_while(|us| *us <= span.to_us).map(|us| (span.share_at(us), text(us))).collect()
}

/// What a colour is for. The style sheet gives lines dashes by their colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Evictions.
    Red,
    /// What otherwise matters most.
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
    pub fn text(self) -> &'static str {
        match self {
            Self::Red => "#D64541",
            Self::Blue => "#2F7CD2",
            Self::Orange => "#CC7000",
            Self::Green => "#26945A",
            Self::Purple => "#9260CC",
            Self::Teal => "#008C96",
            Self::Grey => "#808080",
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::{Span, ticks};

    #[test]
    fn there_are_a_few_round_times() {
        let of = |seconds: u64| {
            let from = 1_700_000_000_000_000;
            ticks(Span::new(from, from + seconds * 1_000_000), 3)
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
