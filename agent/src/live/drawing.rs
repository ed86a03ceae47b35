//! The parts of the screen, in colours if the user wants them.

use std::sync::LazyLock;

use evictscope_records::text;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, List, ListState, Paragraph, Sparkline};

use super::columns::{Column, cells, fitting, headings, is_alarming};
use super::rates::{History, Point};

/// Whether to use colours: yes, unless the variable `NO_COLOR` says otherwise (no-color.org).
static ARE_WANTED: LazyLock<bool> = LazyLock::new(|| std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()));

pub fn colour(colour: Color) -> Style {
    if *ARE_WANTED { Style::new().fg(colour) } else { Style::new() }
}

/// Returns the style for what somebody should look at. It differs without colours, too.
pub fn alarm() -> Style {
    colour(Color::Red).add_modifier(Modifier::BOLD)
}

/// Lines of a frame around something.
pub const FRAME: u16 = 2;
/// Lines of a table that are not rows.
pub const TABLE_EXTRA: u16 = FRAME + 1;
const NAMES: u16 = 24;

/// Draws a table with as many columns as fit, and says how many rows do not.
pub fn table<T>(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    columns: &[Column<T>],
    rows: &[T],
    state: &mut ListState,
) {
    let block = Block::bordered().title(format!(" {title} "));
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let columns = fitting(columns, usize::from(inside.width));
    let [top, below] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(inside);
    frame.render_widget(Line::styled(headings(columns), Modifier::BOLD), top);
    let lines = rows.iter().map(|row| {
        let spans = cells(columns, row)
            .into_iter()
            .map(|cell| if cell.is_alarming { Span::styled(cell.text, alarm()) } else { Span::raw(cell.text) });
        Line::from_iter(spans)
    });
    frame.render_stateful_widget(List::new(lines).highlight_style(Modifier::REVERSED), below, state);
    let first = state.offset().min(rows.len());
    let end = (first + usize::from(below.height)).min(rows.len());
    let more: Vec<Span<'_>> = [(&rows[..first], "above"), (&rows[end..], "below")]
        .into_iter()
        .filter(|(rows, _)| !rows.is_empty())
        .flat_map(|(rows, place)| more(rows, place, columns))
        .collect();
    if !more.is_empty() {
        let border = area.rows().next_back().unwrap_or(area);
        let [_, border, _] =
            Layout::horizontal([Constraint::Length(2), Constraint::Fill(1), Constraint::Length(1)]).areas(border);
        frame.render_widget(Line::from(more), border);
    }
}

/// Says how many rows there are above or below, and how many of them are alarming.
fn more<T>(rows: &[T], place: &str, columns: &[Column<T>]) -> Vec<Span<'static>> {
    let alarming = rows.iter().filter(|row| is_alarming(columns, row)).count();
    let mut said = vec![Span::raw(format!(" {} more {place} ", rows.len()))];
    if alarming > 0 {
        said.push(Span::styled(format!("({alarming} in red) "), alarm()));
    }
    said
}

/// Draws as many lines as fit, and says how many do not.
pub fn lines(frame: &mut Frame<'_>, area: Rect, mut lines: Vec<String>) {
    let room = usize::from(area.height);
    let hidden = lines.len().saturating_sub(room);
    if hidden > 0 {
        lines.truncate(room.saturating_sub(1));
        lines.push(format!("… {} more lines", hidden + 1));
    }
    frame.render_widget(Paragraph::new(lines.join("\n")), area);
}

/// What is drawn of a history: its name, its colour, how to write it, how to get it, and the top of its scale if it
/// has one.
type Series = (&'static str, Color, fn(f64) -> String, fn(&Point) -> Option<f64>, Option<f64>);

const SERIES: [Series; 5] = [
    ("clients waiting", Color::LightRed, text::count, |point| point.clients_waiting, None),
    ("stalled", Color::Red, text::share, |point| point.stalled, Some(1.0)),
    ("commands/s", Color::Cyan, text::count, |point| point.commands, None),
    ("evicting", Color::Yellow, text::share, |point| point.evicting, Some(1.0)),
    ("client buffers", Color::Magenta, text::bytes, |point| point.client_buffers, None),
];

/// Lines of the sparklines if there is room, and if there is little.
pub const SPARKLINES: [u16; 2] = [3 * SERIES.len() as u16 + FRAME, SERIES.len() as u16 + FRAME];

/// Draws the last minutes of a server, a column for each second, the newest on the right.
pub fn sparklines(frame: &mut Frame<'_>, area: Rect, server: &str, history: Option<&History>) {
    let block = Block::bordered();
    let inside = block.inner(area);
    let [_, plot] = Layout::horizontal([Constraint::Length(NAMES), Constraint::Fill(1)]).areas(inside);
    let points: Vec<&Point> = history.into_iter().flat_map(|history| history.last(usize::from(plot.width))).collect();
    let title = format!(" {server}, the last {} s ", points.len());
    frame.render_widget(block.title(title), area);
    let areas = Layout::vertical([Constraint::Fill(1); SERIES.len()]).split(inside);
    for ((name, shade, text, of, top), area) in SERIES.into_iter().zip(areas.iter()) {
        let [label, line] = Layout::horizontal([Constraint::Length(NAMES), Constraint::Fill(1)]).areas(*area);
        let values: Vec<Option<f64>> = points.iter().map(|point| of(point)).collect();
        let now = text::or_unknown(values.last().copied().flatten(), text);
        let most = values.iter().flatten().fold(0.0, |most: f64, value| most.max(*value));
        let names = match area.height {
            1 => vec![Line::raw(format!("{name} {now}"))],
            _ => {
                let most = format!("at most {}", text(most));
                vec![Line::raw(name), Line::raw(now), Line::styled(most, colour(Color::DarkGray))]
            }
        };
        frame.render_widget(Paragraph::new(names), label);
        // In thousandths, because a sparkline takes whole numbers.
        let scale = |value: f64| (value * 1_000.0) as u64;
        let bars = values.iter().map(|value| value.map(scale));
        let sparkline = Sparkline::default()
            .data(bars)
            .max(scale(top.unwrap_or(most)).max(1))
            .absent_value_symbol(" ")
            .style(colour(shade));
        // The newest point is at the right end, however few there are.
        let width = u16::try_from(points.len()).unwrap_or(line.width).min(line.width);
        let [_, line] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(width)]).areas(line);
        frame.render_widget(sparkline, line);
    }
}
