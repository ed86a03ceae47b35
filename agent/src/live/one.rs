//! One server alone: what clients felt, what comes next, its last minutes, expiry, histograms and bursts.

use evictscope_records::text::{bytes, seconds};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::widgets::{Block, ListState};

use super::bursts::{Burst, COLUMNS};
use super::drawing::{FRAME, SPARKLINES, TABLE_EXTRA, lines, sparklines, table};
use super::expiry;
use super::history::History;
use super::margins;
use super::rates::Rates;
use super::reading::{DURATIONS, GOALS, Metric, ServerReading};
use super::servers::{Row, columns, stalls};
use crate::text::{self, HISTOGRAM_TEXT};

/// The longest bars of a histogram.
const LONGEST_BAR: usize = 40;
/// Two histograms go side by side only if each has room for bars of this length.
const SHORTEST_BAR: usize = 10;
/// Lines kept for the bursts: two, below their headings.
const BURSTS: u16 = TABLE_EXTRA + 2;
/// On a screen with fewer lines, a sparkline has one line.
const HIGH_SCREEN: u16 = 40;

/// What is shown of one server.
pub struct Server<'a> {
    pub name: &'a str,
    pub reading: &'a ServerReading,
    pub rates: Option<Rates<'a>>,
    pub history: Option<&'a History>,
    /// The newest first.
    pub bursts: Vec<Burst>,
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, server: &Server<'_>) {
    let none = History::default();
    let history = server.history.unwrap_or(&none);
    let [high, low] = SPARKLINES;
    let height = if area.height >= HIGH_SCREEN {
        high
    } else {
        low
    };

    let inner = usize::from(area.width.saturating_sub(FRAME));
    let half = usize::from(area.width / 2).saturating_sub(usize::from(FRAME));
    let is_wide = half >= HISTOGRAM_TEXT + SHORTEST_BAR;
    let room = if is_wide { half } else { inner };
    let bar = room.saturating_sub(HISTOGRAM_TEXT).min(LONGEST_BAR);
    let drawn = |metric: Metric, bound| {
        let rates = server.rates.map(|rates| rates.histogram(metric));
        text::histogram(&rates.unwrap_or_default(), bound, bar)
    };
    let durations = drawn(DURATIONS, seconds);
    let goals = drawn(GOALS, bytes);
    let most = match is_wide {
        true => durations.len().max(goals.len()),
        false => durations.len(),
    };
    let most = u16::try_from(most)
        .unwrap_or(u16::MAX)
        .saturating_add(FRAME);
    let said = [
        stalls(server.reading),
        margins::line(server.reading),
        expiry::line(server.reading, server.rates),
    ];
    let said: Vec<_> = said.into_iter().flatten().collect();
    let of_said = u16::try_from(said.len()).unwrap_or(u16::MAX);
    let rest = area
        .height
        .saturating_sub(TABLE_EXTRA + 1 + height + of_said + BURSTS);

    let [top, upper, between, middle, bottom] = Layout::vertical([
        Constraint::Length(TABLE_EXTRA + 1),
        Constraint::Length(height),
        Constraint::Length(of_said),
        Constraint::Length(most.min(rest)),
        Constraint::Fill(1),
    ])
    .areas(area);
    let rows = [Row::new(server.name, server.reading, server.rates)];
    let mut unselected = ListState::default();
    let columns = columns(&rows);
    table(frame, top, server.name, &columns, &rows, &mut unselected);
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
    let title = "bursts, the newest first";
    table(
        frame,
        bottom,
        title,
        &COLUMNS,
        &server.bursts,
        &mut unselected,
    );
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
