//! One server alone: what clients felt, what comes next, its last minutes, expiry, histograms and bursts.

use std::time::Duration;

use evictscope_model::answers::ListedBurst;
use evictscope_records::text::{bytes, count, or_unknown, round, seconds, share};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::widgets::{Block, ListState};

use super::columns::{Cell, Column};
use super::drawing::{FRAME, SPARKLINES, TABLE_EXTRA, lines, sparklines, table};
use super::rates::{History, Rates};
use super::servers::{ServerRow, columns, parts, stalls};
use crate::client::reading::*;
use crate::text::{self, HISTOGRAM_TEXT};

const LONGEST_BAR: usize = 40;
/// Two histograms go side by side only if each has room for bars of this length.
const SHORTEST_BAR: usize = 10;
/// Lines kept for the bursts: two, below their headings.
const BURSTS: u16 = TABLE_EXTRA + 2;
/// On a screen with fewer lines, a sparkline has one line.
const HIGH_SCREEN: u16 = 40;

/// The columns of bursts, the most important ones first.
const BURST_COLUMNS: [Column<ListedBurst>; 9] = [
    Column::text("START", "2026-11-21T08:14:23.070Z".len(), |listed| {
        or_unknown(listed.start, |start| start.to_string()).into()
    }),
    Column::text("KIND", SELF_AMPLIFYING.len(), |listed| Cell {
        text: listed.kind.clone(),
        is_alarming: listed.kind == SELF_AMPLIFYING,
    }),
    Column::number("LASTED", 7, |listed| seconds(listed.burst.duration.as_secs_f64()).into()),
    Column::number("EVICTED", 7, |listed| or_unknown(listed.burst.evicted_keys, |keys| count(keys as f64)).into()),
    Column::number("STALLED", 7, |listed| or_unknown(listed.burst.stalled, |time| seconds(time.as_secs_f64())).into()),
    Column::number("RECLAIM", 7, |listed| seconds(listed.burst.reclaim.as_secs_f64()).into()),
    Column::number("RECLAIMED", 9, |listed| or_unknown(listed.reclaimed_bytes, |size| bytes(size as f64)).into()),
    Column::number("BUFFERS", 8, |listed| {
        or_unknown(listed.burst.client_buffers_before, |size| bytes(size as f64)).into()
    }),
    Column::number("PEAK", 8, |listed| or_unknown(listed.burst.client_buffers_peak, |size| bytes(size as f64)).into()),
];

const SELF_AMPLIFYING: &str = "self_amplifying";

pub struct ShownServer<'a> {
    pub name: &'a str,
    pub reading: &'a ServerReading,
    pub rates: Option<Rates<'a>>,
    pub history: Option<&'a History>,
    /// The newest first.
    pub bursts: Vec<ListedBurst>,
    /// Whose requests wait, and who does not read answers.
    pub who: &'a [String],
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, server: &ShownServer<'_>) {
    let none = History::default();
    let history = server.history.unwrap_or(&none);
    let [high, low] = SPARKLINES;
    let height = if area.height >= HIGH_SCREEN { high } else { low };

    let inner = usize::from(area.width.saturating_sub(FRAME));
    let half = usize::from(area.width / 2).saturating_sub(usize::from(FRAME));
    let is_wide = half >= HISTOGRAM_TEXT + SHORTEST_BAR;
    let room = if is_wide { half } else { inner };
    let bar = room.saturating_sub(HISTOGRAM_TEXT).min(LONGEST_BAR);
    let drawn = |metric: Selector, bound| {
        text::histogram(&server.rates.map(|rates| rates.histogram(metric)).unwrap_or_default(), bound, bar)
    };
    let durations = drawn(DURATIONS, seconds);
    let goals = drawn(GOALS, bytes);
    let most = if is_wide { durations.len().max(goals.len()) } else { durations.len() };
    let most = u16::try_from(most).unwrap_or(u16::MAX).saturating_add(FRAME);
    let said =
        [stalls(server.reading), parts(server.reading), limit(server.reading), expiry(server.reading, server.rates)];
    let who = server.who.iter().map(|sentence| format!(" {sentence}"));
    let said: Vec<_> = said.into_iter().flatten().chain(who).collect();
    let of_said = u16::try_from(said.len()).unwrap_or(u16::MAX);
    let rest = area.height.saturating_sub(TABLE_EXTRA + 1 + height + of_said + BURSTS);

    let [top, upper, between, middle, bottom] = Layout::vertical([
        Constraint::Length(TABLE_EXTRA + 1),
        Constraint::Length(height),
        Constraint::Length(of_said),
        Constraint::Length(most.min(rest)),
        Constraint::Fill(1),
    ])
    .areas(area);
    let rows = [ServerRow::new(server.name, server.reading, server.rates)];
    let mut unselected = ListState::default();
    table(frame, top, server.name, &columns(&rows), &rows, &mut unselected);
    sparklines(frame, upper, server.name, history);
    lines(frame, between, said);
    let by_duration = ("evicting calls by duration, per second", durations);
    let by_goal = ("evicting calls by mem_tofree, per second", goals);
    if is_wide {
        let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).areas(middle);
        histogram(frame, left, by_duration);
        histogram(frame, right, by_goal);
    } else {
        histogram(frame, middle, by_duration);
    }
    table(frame, bottom, "bursts, the newest first", &BURST_COLUMNS, &server.bursts, &mut unselected);
}

/// Draws a histogram. If there is no room for all of it, drops the smallest values, which matter least.
fn histogram(frame: &mut Frame<'_>, area: Rect, (title, mut text): (&str, Vec<String>)) {
    let block = Block::bordered().title(format!(" {title} "));
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let room = usize::from(inside.height);
    if text.len() > room {
        let hidden = text.len() - room + 1;
        text.drain(..hidden.min(text.len()));
        text.insert(0, format!("… {hidden} lines of smaller ones"));
    }
    lines(frame, inside, text);
}

const LIMIT_EARLIEST: Selector = LIMIT_REACHED.with(&[("estimate", "earliest")]);
const LIMIT_LIKELY: Selector = LIMIT_REACHED.with(&[("estimate", "likely")]);
const LIMIT_LATEST: Selector = LIMIT_REACHED.with(&[("estimate", "latest")]);

/// Returns when memory will be at its limit if it keeps growing, and what share of the thread evictions would take
/// then. Returns `None` if it does not grow.
pub fn limit(reading: &ServerReading) -> Option<String> {
    let time = |metric| Duration::try_from_secs_f64(reading.get(metric)?).ok().map(round);
    let likely = time(LIMIT_LIKELY)?;
    let [earliest, latest] = [LIMIT_EARLIEST, LIMIT_LATEST].map(time);
    let never = || "never".to_owned();
    let mut line =
        format!(" maxmemory in {likely} ({} to {})", earliest.unwrap_or_else(never), latest.unwrap_or_else(never));
    if let Some((measured, added)) = reading.by(EVICTIONS_WOULD_ADD, "measured").next() {
        let of = match measured {
            "lab" => "(lab's costs)",
            _ => "of the thread",
        };
        line += &format!("; evictions would add {} {of}", share(added));
    }
    Some(line)
}

/// A lower stale ratio is shown as 0: a moving average takes long to get there.
const LEAST_SHOWN: f64 = 0.000_5;

/// Returns how often expire cycles run, what they take and what they leave. Returns `None` if no key has a time to
/// live, or nothing is known about expiry.
pub fn expiry(reading: &ServerReading, rates: Option<Rates<'_>>) -> Option<String> {
    let a_second = |metric| rates?.a_second(metric);
    let stale = reading.get(STALE_RATIO);
    let is_stale = stale.is_some_and(|ratio| ratio >= LEAST_SHOWN);
    (is_stale || a_second(SAMPLED_KEYS) > Some(0.0)).then(|| {
        format!(
            " expire cycles {}/s, {} of the thread; stale {}; time limits hit {}/s",
            or_unknown(a_second(CYCLES), count),
            or_unknown(a_second(CYCLE_SECONDS), share),
            or_unknown(stale, share),
            or_unknown(a_second(TIME_LIMIT_HITS), count),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::reading::tests::server;

    #[test]
    fn the_line_fits_and_is_there_only_where_memory_grows() {
        let growing = [(LIMIT_EARLIEST, 172_900.0), (LIMIT_LIKELY, 259_300.0)];
        assert_eq!(limit(&server(&growing[..1])), None);
        assert_eq!(limit(&server(&growing)).as_deref(), Some(" maxmemory in 3 days (2 days to never)"));
        const HERE: Selector = EVICTIONS_WOULD_ADD.with(&[("measured", "here")]);
        const LAB: Selector = EVICTIONS_WOULD_ADD.with(&[("measured", "lab")]);
        for (added, of) in [(HERE, "of the thread"), (LAB, "(lab's costs)")] {
            let known = [&growing[..], &[(added, 0.4512)]].concat();
            let longest = limit(&server(&known)).unwrap_or_default();
            assert_eq!(longest, format!(" maxmemory in 3 days (2 days to never); evictions would add 45.1 % {of}"));
            assert!(longest.chars().count() <= 80);
        }
    }

    /// Returns the line of a server with this stale ratio, whose counters have risen by `risen` in a second.
    fn after(stale: f64, risen: &[(Selector, f64)]) -> Option<String> {
        let before: Vec<_> = risen.iter().map(|(metric, _)| (*metric, 0.0)).collect();
        let before = &server(&before);
        let now = &server(&[risen, &[(STALE_RATIO, stale)]].concat());
        expiry(now, Some(Rates::new(before, now, 1.0)))
    }

    #[test]
    fn the_line_fits_and_is_there_only_where_keys_expire() {
        assert_eq!(expiry(&ServerReading::default(), None), None, "nothing is known");
        assert_eq!(after(1e-9, &[(SAMPLED_KEYS, 0.0), (CYCLES, 10.0)]), None, "no key has a time to live");
        assert_eq!(
            after(1e-9, &[(SAMPLED_KEYS, 200.0), (CYCLES, 10.0)]).as_deref(),
            Some(" expire cycles 10/s, - of the thread; stale 0.0 %; time limits hit -/s")
        );
        let busy = [(CYCLES, 510.0), (CYCLE_SECONDS, 0.2525), (TIME_LIMIT_HITS, 500.0)];
        let longest = after(0.416, &busy).unwrap_or_default();
        assert_eq!(longest, " expire cycles 510/s, 25.2 % of the thread; stale 41.6 %; time limits hit 500/s");
        assert!(longest.chars().count() <= 80);
    }
}
