//! One server alone: what clients felt, where its time and memory went, who its clients are, what comes next, its last
//! minutes, expiry, histograms and bursts.

use std::time::Duration;

use evictscope_model::answers::{EvidenceAnswer, ListedBurst, ThenAndNow};
use evictscope_records::evidence::grew_most;
use evictscope_records::text::{bytes, count, or_unknown, percent, round, seconds, share};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::widgets::{Block, ListState};

use super::columns::{Cell, Column};
use super::drawing::{FRAME, SPARKLINES, TABLE_EXTRA, lines, sparklines, table};
use super::rates::{History, Rates};
use super::servers::{ServerRow, columns, stalls};
use crate::client::reading::*;
use crate::text::{self, HISTOGRAM_TEXT, wrapped};

const LONGEST_BAR: usize = 40;
/// Two histograms go side by side only if each has room for bars of this length.
const SHORTEST_BAR: usize = 10;
/// Lines kept for the bursts: two, below their headings.
const BURSTS: u16 = TABLE_EXTRA + 2;
/// Lines kept for the histograms before a sparkline has more than one line.
const HISTOGRAMS: u16 = 8;
/// The width of a column of the evidence, and the least and the most of that of its names.
const VALUES: u16 = 8;
const NAMES: [u16; 2] = [20, 30];
/// A share of the time below it is none.
const LEAST_TIME: f64 = 0.000_5;

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
    /// `None` if it is not known.
    pub evidence: Option<&'a EvidenceAnswer>,
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, server: &ShownServer<'_>) {
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
    let (time, memory) =
        server.evidence.map_or_else(Default::default, |evidence| (spent(evidence), &evidence.memory[..]));
    let who = server.evidence.map_or(&[][..], |evidence| &evidence.who);
    let who = who.iter().flat_map(|sentence| wrapped(sentence, usize::from(area.width.saturating_sub(1))));
    let known = [stalls(server.reading), limit(server.reading), expiry(server.reading, server.rates)];
    let said: Vec<_> = who.map(|line| format!(" {line}")).chain(known.into_iter().flatten()).collect();

    // What answers most comes first, and the drawings get what remains.
    let lines_of = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    let room = area.height.saturating_sub(TABLE_EXTRA + 1);
    let of_said = lines_of(said.len()).min(room);
    let of_evidence = match lines_of(time.len().max(memory.len())) {
        0 => 0,
        rows => rows.saturating_add(TABLE_EXTRA).min(room - of_said),
    };
    let room = room - of_said - of_evidence;
    let [high, low] = SPARKLINES;
    let height = match room {
        _ if room >= high + HISTOGRAMS + BURSTS => high,
        _ if room >= low => low,
        _ => 0,
    };
    let [top, evidence, between, upper, middle, bottom] = Layout::vertical([
        Constraint::Length(TABLE_EXTRA + 1),
        Constraint::Length(of_evidence),
        Constraint::Length(of_said),
        Constraint::Length(height),
        Constraint::Length(most.min(room.saturating_sub(height + BURSTS))),
        Constraint::Fill(1),
    ])
    .areas(area);
    let rows = [ServerRow::new(server.name, server.reading, server.rates)];
    let mut unselected = ListState::default();
    table(frame, top, server.name, &columns(&rows), &rows, &mut unselected);
    if of_evidence > 0 {
        let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).areas(evidence);
        let of_time = evidence_columns(
            left.width,
            ["WHAT", "NOW", "10 MIN"],
            [|row| cell(row.now, percent), |row| cell(row.then, percent)],
        );
        table(frame, left, "where the time went", &of_time, &time, &mut unselected);
        let of_memory = evidence_columns(
            right.width,
            ["PART", "NOW", "MIN AGO"],
            [|row| cell(row.now, bytes), |row| cell(row.then, bytes)],
        );
        let grown = grew_most(memory).map(|(part, by)| format!("memory: {} grew by {}", part.name, bytes(by)));
        table(frame, right, grown.as_deref().unwrap_or("where the memory is"), &of_memory, memory, &mut unselected);
    }
    lines(frame, between, said);
    if height > 0 {
        sparklines(frame, upper, server.name, server.history);
    }
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

/// Returns where the main thread's time went, the largest share first, and last what is part of the others.
fn spent(evidence: &EvidenceAnswer) -> Vec<ThenAndNow> {
    let Some((part, shares)) = evidence.time.split_last() else { return Vec::new() };
    let mut shares = Vec::from_iter(shares);
    shares.sort_by(|left, right| right.now.unwrap_or(-1.0).total_cmp(&left.now.unwrap_or(-1.0)));
    let is_some = |share: Option<f64>| share.is_none_or(|share| share >= LEAST_TIME);
    let all = shares.into_iter().chain([part]);
    all.filter(|row| is_some(row.now) || is_some(row.then)).cloned().collect()
}

/// Returns the columns of a table of evidence, whose names have what the others leave.
fn evidence_columns(
    width: u16,
    [what, now, then]: [&'static str; 3],
    [of_now, of_then]: [fn(&ThenAndNow) -> Cell; 2],
) -> [Column<ThenAndNow>; 3] {
    let value = VALUES + 1;
    let room = width.saturating_sub(FRAME);
    let names = if room >= NAMES[0] + 2 * value { room - 2 * value } else { room.saturating_sub(value) };
    let names = usize::from(names.min(NAMES[1]));
    [
        Column::text(what, names, |row: &ThenAndNow| row.name.clone().into()),
        Column::number(now, usize::from(VALUES), of_now),
        Column::number(then, usize::from(VALUES), of_then),
    ]
}

fn cell(value: Option<f64>, text: fn(f64) -> String) -> Cell {
    or_unknown(value, text).into()
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
