//! The live screen: a table of servers, or one server with its histograms and bursts.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table, TableState};
use ratatui::{DefaultTerminal, Frame};

use super::agent::{Agent, Burst};
use super::rates::Rates;
use super::reading::{Reading, ServerReading};
use super::text::{self, HEADINGS};

/// How often the agent is read.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// How many intervals the sparklines reach back: three minutes.
const REMEMBERED: usize = 180;
/// Width of a histogram's bars.
const BAR: usize = 30;

/// Shows the servers until the user quits, and always restores the terminal.
pub fn run(agent: &Agent, first: Reading) -> anyhow::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let result = show(&mut terminal, agent, first);
    ratatui::restore();
    result
}

fn show(terminal: &mut DefaultTerminal, agent: &Agent, first: Reading) -> anyhow::Result<()> {
    let mut screen = Screen::new(first);
    loop {
        terminal.draw(|frame| screen.draw(frame))?;
        let rest = INTERVAL.saturating_sub(screen.read_at.elapsed());
        if rest > Duration::ZERO && event::poll(rest)? {
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
                && screen.press(key)
            {
                return Ok(());
            }
        } else {
            screen.read(agent);
        }
    }
}

/// The rates and the client buffers (bytes) of a server, the newest last.
type History = VecDeque<(Rates, f64)>;

struct Screen {
    reading: Reading,
    read_at: Instant,
    histories: BTreeMap<String, History>,
    bursts: Vec<Burst>,
    /// Why the last reading of the agent failed.
    failure: Option<String>,
    table: TableState,
    /// The server that is shown alone.
    opened: Option<String>,
}

impl Screen {
    fn new(reading: Reading) -> Self {
        Self {
            reading,
            read_at: Instant::now(),
            histories: BTreeMap::new(),
            bursts: Vec::new(),
            failure: None,
            table: TableState::default().with_selected(0),
            opened: None,
        }
    }

    fn read(&mut self, agent: &Agent) {
        let seconds = self.read_at.elapsed().as_secs_f64();
        self.read_at = Instant::now();
        let read = agent
            .reading()
            .and_then(|reading| Ok((reading, agent.bursts()?)));
        match read {
            Ok((reading, bursts)) => {
                self.remember(&reading, seconds);
                (self.reading, self.bursts, self.failure) = (reading, bursts, None);
            }
            Err(error) => self.failure = Some(format!("{error:#}")),
        }
    }

    fn remember(&mut self, now: &Reading, seconds: f64) {
        self.histories
            .retain(|server, _| now.servers.contains_key(server));
        for (server, reading) in &now.servers {
            let history = self.histories.entry(server.clone()).or_default();
            if let Some(before) = self.reading.servers.get(server) {
                let rates = Rates::between(before, reading, seconds);
                history.push_back((rates, reading.client_buffers.unwrap_or(0.0)));
            }
            if history.len() > REMEMBERED {
                history.pop_front();
            }
        }
    }

    /// Does what a key stands for, and returns whether that is to quit.
    fn press(&mut self, key: KeyEvent) -> bool {
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('q') => return true,
            KeyCode::Esc | KeyCode::Backspace => self.opened = None,
            KeyCode::Down | KeyCode::Char('j') => self.table.select_next(),
            KeyCode::Up | KeyCode::Char('k') => self.table.select_previous(),
            KeyCode::Enter => {
                let selected = self.table.selected().unwrap_or(0);
                self.opened = self.reading.servers.keys().nth(selected).cloned();
            }
            _ => {}
        }
        false
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let [main, bottom] =
            Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(frame.area());
        let opened = self.opened.as_ref();
        let opened = opened.and_then(|server| self.reading.servers.get_key_value(server));
        let keys = match opened {
            Some((server, reading)) => {
                self.draw_server(frame, main, server, reading);
                "esc: all servers   q: quit"
            }
            None => {
                self.draw_table(frame, main);
                "↑ ↓: select   enter: open   q: quit"
            }
        };
        let (text, colour) = match &self.failure {
            Some(failure) => (failure.as_str(), Color::Red),
            None => (keys, Color::DarkGray),
        };
        frame.render_widget(Line::styled(text, colour), bottom);
    }

    fn draw_table(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let rows: Vec<_> = self
            .reading
            .servers
            .iter()
            .map(|(server, reading)| {
                let history = self.histories.get(server);
                let newest = history.and_then(|history| history.back());
                let cells = text::cells(server, reading, newest.map(|(rates, _)| rates));
                Row::new(cells).style(phase_colour(reading))
            })
            .collect();
        let block = Block::bordered().title(" evictscope ");
        if rows.is_empty() {
            let text = Paragraph::new("No server is watched at present.").block(block);
            frame.render_widget(text, area);
            return;
        }
        let height = u16::try_from(rows.len())
            .unwrap_or(u16::MAX)
            .saturating_add(3);
        let [above, below] =
            Layout::vertical([Constraint::Max(height), Constraint::Min(14)]).areas(area);
        let widths = [12, 14, 11, 11, 13, 11, 11, 15].map(Constraint::Length);
        let headings = Row::new(HEADINGS).style(Modifier::BOLD);
        let table = Table::new(rows, widths)
            .header(headings)
            .block(block)
            .row_highlight_style(Modifier::REVERSED);
        frame.render_stateful_widget(table, above, &mut self.table);
        let selected = self
            .table
            .selected()
            .and_then(|index| self.histories.iter().nth(index));
        if let Some((server, history)) = selected {
            draw_sparklines(frame, below, server, history);
        }
    }

    fn draw_server(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        server: &str,
        reading: &ServerReading,
    ) {
        let unread = History::default();
        let history = self.histories.get(server).unwrap_or(&unread);
        let rates = history.back().map(|(rates, _)| rates.clone());
        let rates = rates.unwrap_or_default();
        let durations = text::histogram(&rates.durations, text::seconds, BAR);
        let goals = text::histogram(&rates.goals, text::bytes, BAR);
        let height = |lines: &[String]| u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
        let histograms = height(&durations).max(height(&goals));
        let [top, middle, bottom, bursts] = Layout::vertical([
            Constraint::Length(4),
            Constraint::Length(histograms),
            Constraint::Length(11),
            Constraint::Fill(1),
        ])
        .areas(area);
        let summary = text::table(&[text::cells(server, reading, Some(&rates))]);
        let summary = Paragraph::new(Text::styled(summary, phase_colour(reading)));
        let block = Block::bordered().title(format!(" {server} "));
        frame.render_widget(summary.block(block), top);
        let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).areas(middle);
        for (area, title, lines) in [
            (left, " evicting calls by duration, per second ", durations),
            (right, " evicting calls by mem_tofree, per second ", goals),
        ] {
            let text = Paragraph::new(lines.join("\n"));
            frame.render_widget(text.block(Block::bordered().title(title)), area);
        }
        draw_sparklines(frame, bottom, server, history);
        self.draw_bursts(frame, bursts, server);
    }

    fn draw_bursts(&self, frame: &mut Frame<'_>, area: Rect, server: &str) {
        let newest_first = self.bursts.iter().rev();
        let of_server = newest_first.filter(|burst| burst.server == server);
        let number = |value: Option<u64>, text: fn(f64) -> String| {
            text::or_unknown(value.map(|value| value as f64), text)
        };
        let percent = |ratio| format!("{:.0} %", ratio * 100.0);
        let rows = of_server.map(|burst| {
            let cells = [
                burst.start.clone().unwrap_or_default(),
                burst.kind.clone(),
                text::seconds(burst.duration_seconds),
                text::seconds(burst.reclaim_seconds),
                number(burst.evicted_keys, text::count),
                text::or_unknown(burst.throughput_ratio, percent),
                number(burst.client_buffers_before_bytes, text::bytes),
                number(burst.client_buffers_peak_bytes, text::bytes),
                number(burst.reclaimed_bytes, text::bytes),
            ];
            let colour = match burst.kind.as_str() {
                "plain" => Color::Reset,
                _ => Color::Red,
            };
            Row::new(cells).style(colour)
        });
        let widths = [25, 16, 9, 9, 8, 11, 10, 10, 10].map(Constraint::Length);
        let headings = [
            "START",
            "KIND",
            "LASTED",
            "RECLAIM",
            "EVICTED",
            "THROUGHPUT",
            "BUFFERS",
            "PEAK",
            "RECLAIMED",
        ];
        let table = Table::new(rows, widths)
            .header(Row::new(headings).style(Modifier::BOLD))
            .block(Block::bordered().title(" bursts, the newest first "));
        frame.render_widget(table, area);
    }
}

fn phase_colour(reading: &ServerReading) -> Color {
    match reading.phase.as_deref() {
        Some("saturated") => Color::Red,
        Some("reclaim") => Color::Yellow,
        _ => Color::Reset,
    }
}

/// Draws the last minutes of a server, the newest to the right.
fn draw_sparklines(frame: &mut Frame<'_>, area: Rect, server: &str, history: &History) {
    type Series = (
        &'static str,
        Color,
        fn(f64) -> String,
        fn(&(Rates, f64)) -> f64,
    );
    let series: [Series; 3] = [
        ("commands/s", Color::Cyan, text::count, |(rates, _)| {
            rates.commands.unwrap_or(0.0)
        }),
        ("evicting calls/s", Color::Red, text::count, |(rates, _)| {
            rates.evicting_calls.unwrap_or(0.0)
        }),
        (
            "client buffers",
            Color::Magenta,
            text::bytes,
            |(_, bytes)| *bytes,
        ),
    ];
    let block = Block::bordered().title(format!(" {server}, the last minutes "));
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let areas = Layout::vertical([Constraint::Length(3); 3]).split(inside);
    for ((name, colour, text, of), area) in series.into_iter().zip(areas.iter()) {
        let [label, line] =
            Layout::horizontal([Constraint::Length(20), Constraint::Fill(1)]).areas(*area);
        let values: Vec<u64> = history.iter().map(|sample| of(sample) as u64).collect();
        let most = values.iter().max().copied().unwrap_or(0);
        let most = format!("at most {}", text(most as f64));
        let lines = vec![Line::raw(name), Line::styled(most, Color::DarkGray)];
        frame.render_widget(Paragraph::new(lines), label);
        let shown = values.len().saturating_sub(usize::from(line.width));
        let sparkline = Sparkline::default().data(&values[shown..]).style(colour);
        frame.render_widget(sparkline, line);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    use super::Screen;
    use crate::live::reading::{Reading, tests::TEXT};

    fn shown(screen: &mut Screen) -> anyhow::Result<String> {
        let mut terminal = Terminal::new(TestBackend::new(120, 40))?;
        terminal.draw(|frame| screen.draw(frame))?;
        Ok(terminal.backend().to_string())
    }

    #[test]
    fn enter_opens_a_server_and_escape_goes_back() -> anyhow::Result<()> {
        let reading = Reading::parse(TEXT)?;
        let mut screen = Screen::new(reading.clone());
        screen.remember(&reading, 1.0);
        let all = shown(&mut screen)?;
        assert!(all.contains("6380") && all.contains("saturated"), "{all}");
        assert!(!screen.press(KeyCode::Enter.into()));
        let one = shown(&mut screen)?;
        assert!(one.contains("evicting calls by duration"), "{one}");
        assert!(!one.contains("6380"), "{one}");
        screen.press(KeyCode::Esc.into());
        assert!(shown(&mut screen)?.contains("6380"));
        assert!(screen.press(KeyCode::Char('q').into()));
        Ok(())
    }

    #[test]
    fn without_a_server_or_an_agent_the_screen_says_so() -> anyhow::Result<()> {
        let mut screen = Screen::new(Reading::default());
        assert!(shown(&mut screen)?.contains("No server is watched"));
        screen.failure = Some("no agent answers".to_owned());
        assert!(shown(&mut screen)?.contains("no agent answers"));
        Ok(())
    }
}
