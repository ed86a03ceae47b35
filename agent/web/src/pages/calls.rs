//! The evicting calls of a record: their durations, second by second, as a drawing and a table, and the slowest of
//! them.

use evictscope_abi::bounds;
use evictscope_records::text::seconds;
use evictscope_telemetry::{CallResult, LatencySecond, SlowCall};
use maud::{Markup, html};

use super::drawing::{Ink, Span, framed};
use super::text::{grouped, or_unknown, precise_time_of_day, size, table, time_of_day};

/// The height of a bucket.
const ROW: u32 = 7;

/// The bucket of the longest calls. A file could name a bucket that does not exist.
const LAST: u16 = bounds::INNER_NS.buckets() as u16 - 1;

pub fn by_second(latencies: &[LatencySecond], span: Span) -> Markup {
    let known = || latencies.iter().flat_map(|second| &second.counts);
    let buckets = || known().map(|(bucket, _)| (*bucket).min(LAST));
    let most = known().map(|(_, calls)| *calls).max().unwrap_or(0);
    let (Some(lowest), Some(highest)) = (buckets().min(), buckets().max()) else {
        return html! { p.note { "No evicting call was observed in it." } };
    };
    // A few more buckets than have calls, so that a drawing of one bucket is not a line.
    let (lowest, highest) = (lowest.saturating_sub(2), highest.max(lowest + 6) + 2);
    let height = (u32::from(highest - lowest) + 1) * ROW;
    let left = |second: u64| 1_000.0 * span.share_at(second.saturating_mul(1_000_000));
    let width = 1e9 / span.length_us() as f64;
    let top = |bucket: u16| u32::from(highest - bucket.min(LAST)) * ROW;
    let shapes = html! {
        svg.plot width="100%" height=(height) viewBox={ "0 0 1000 " (height) } preserveAspectRatio="none"
            shape-rendering="crispEdges" {
            @for second in latencies {
                @for (bucket, calls) in &second.counts {
                    rect x=(format!("{:.2}", left(second.unix_s))) y=(top(*bucket)) width=(format!("{width:.2}"))
                        height=(ROW) fill=(Ink::Red.text()) fill-opacity=(opacity(*calls, most)) {}
                }
            }
        }
    };
    let grid: Vec<_> = (lowest..highest)
        .filter(|bucket| bucket % 6 == 0)
        .filter_map(|bucket| {
            let bound = bounds::INNER_NS.bound(usize::from(bucket))?;
            Some((f64::from(top(bucket)), seconds(bound as f64 / 1e9)))
        })
        .collect();
    html! {
        figure {
            figcaption {
                strong { "Duration of evicting calls, by the second they ended in" }
                " " span.note { "The stronger, the more calls, up to " (grouped(most)) " a second." }
            }
            (framed("Duration of evicting calls", span, height, &shapes, &grid))
        }
        details {
            summary { "The same as a table" }
            (as_table(latencies))
        }
    }
}

/// Returns the strength of the colour: by the logarithm, because one call in a hundred is what a reader looks for.
fn opacity(calls: u64, most: u64) -> String {
    let share = (calls as f64).ln_1p() / (most as f64).ln_1p();
    format!("{:.2}", 0.15 + 0.85 * share)
}

fn as_table(latencies: &[LatencySecond]) -> Markup {
    let caption = "Each value is the bound of the bucket that the call fell into: no call took longer.";
    let columns =
        [("Second", false), ("Calls", true), ("Half of them", true), ("99 of 100", true), ("All of them", true)];
    let row = |second: &LatencySecond| {
        html! {
            td.time { (time_of_day(second.unix_s.saturating_mul(1_000_000))) }
            td.number { (grouped(calls(second))) }
            @for share in [0.5, 0.99, 1.0] { td.number { (within(second, share)) } }
        }
    };
    table(None, Some(caption), &columns, latencies.iter().map(row))
}

fn calls(second: &LatencySecond) -> u64 {
    second.counts.iter().map(|(_, calls)| *calls).fold(0, u64::saturating_add)
}

/// Returns the bound that this share of the calls did not exceed.
fn within(second: &LatencySecond, share: f64) -> String {
    let wanted = (share * calls(second) as f64).ceil() as u64;
    let mut counts = second.counts.clone();
    counts.sort_unstable();
    let mut seen = 0;
    for (bucket, calls) in counts {
        seen = calls.saturating_add(seen);
        if seen >= wanted {
            return match bounds::INNER_NS.bound(usize::from(bucket)) {
                Some(bound) => format!("≤ {}", seconds(bound as f64 / 1e9)),
                None => "more than the last bound".to_owned(),
            };
        }
    }
    "–".to_owned()
}

const SHOWN: usize = 10;

fn result_name(result: CallResult) -> &'static str {
    match result {
        CallResult::Ok => "within the limit",
        CallResult::Running => "stopped at its time limit",
        CallResult::Fail => "nothing could be evicted",
        CallResult::Unknown => "not known",
    }
}

/// Lists them; all after the first ten are folded away.
pub fn slowest(calls: &[SlowCall]) -> Markup {
    let (first, rest) = calls.split_at(calls.len().min(SHOWN));
    html! {
        @if !calls.is_empty() {
            h2 { "The slowest evicting calls" }
            (table_of(first))
        }
        @if !rest.is_empty() {
            details {
                summary { "The next " (rest.len()) }
                (table_of(rest))
            }
        }
    }
}

fn table_of(calls: &[SlowCall]) -> Markup {
    let row = |call: &SlowCall| {
        html! {
            td.time { (precise_time_of_day(call.unix_us)) }
            td.number { (seconds(call.duration_ns as f64 / 1e9)) }
            td.number { (or_unknown(call.goal, size)) }
            td { (result_name(call.result)) }
        }
    };
    let columns = [("Ended", false), ("Took", true), ("Had to free", true), ("Ended because", false)];
    table(None, Some("The slowest first."), &columns, calls.iter().map(row))
}

#[cfg(test)]
mod tests {
    use evictscope_telemetry::LatencySecond;

    use super::{by_second, within};
    use crate::pages::drawing::Span;

    fn second(counts: &[(u16, u64)]) -> LatencySecond {
        LatencySecond { unix_s: 1_700_000_000, counts: counts.to_vec() }
    }

    #[test]
    fn a_share_of_the_calls_is_within_a_bound() {
        // 5 µs, 20 µs, 100 µs.
        let second = second(&[(2, 1), (0, 50), (1, 49)]);
        assert_eq!(within(&second, 0.5), "≤ 5 µs");
        assert_eq!(within(&second, 0.99), "≤ 20 µs");
        assert_eq!(within(&second, 1.0), "≤ 100 µs");
    }

    #[test]
    fn a_record_without_calls_says_so() {
        let span = Span::new(1_700_000_000_000_000, 1_700_000_060_000_000);
        let none = by_second(&[second(&[])], span).into_string();
        assert!(none.contains("No evicting call was observed"), "{none}");
        let some = by_second(&[second(&[(u16::MAX, 1)])], span).into_string();
        assert!(some.contains("more than the last bound"), "{some}");
    }
}
