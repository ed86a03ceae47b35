//! The live screen: a table of servers, or one server with its histograms and bursts.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
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

/// Shows the servers until the user quits; the terminal is as before then, whatever happened.
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
                && screen.press(key) == Next::Quit
            {
                return Ok(());
            }
        } else {
            screen.read(agent);
        }
    }
}

#[derive(PartialEq)]
enum Next {
    Stay,
    Quit,
}

/// What is remembered of a server, the newest last.
#[derive(Default)]
struct History {
    rates: VecDeque<Rates>,
    client_buffers: VecDeque<f64>,
}

struct Screen {
    reading: Reading,
    read_at: Instant,
    histories: BTreeMap<String, History>,
    bursts: Vec<Burst>,
    /// Why the agent could not be read the last time.
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
                history
                    .rates
                    .push_back(Rates::between(before, reading, seconds));
            }
            history
                .client_buffers
                .push_back(reading.client_buffers.unwrap_or(0.0));
            while history.rates.len() > REMEMBERED {
                history.rates.pop_front();
            }
            while history.client_buffers.len() > REMEMBERED {
                history.client_buffers.pop_front();
            }
        }
    }

    fn press(&mut self, key: KeyEvent) -> Next {
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Next::Quit;
            }
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Esc | KeyCode::Backspace => self.opened = None,
            KeyCode::Down | KeyCode::Char('j') => self.table.select_next(),
            KeyCode::Up | KeyCode::Char('k') => self.table.select_previous(),
            KeyCode::Enter => {
                let selected = self.table.selected().unwrap_or(0);
                self.opened = self.reading.servers.keys().nth(selected).cloned();
            }
            _ => {}
        }
        Next::Stay
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let [main, bottom] =
            Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(frame.area());
        let opened = self.opened.clone();
        let opened =
            opened.and_then(|server| Some((self.reading.servers.get(&server)?.clone(), server)));
        let keys = match opened {
            Some((reading, server)) => {
                self.draw_server(frame, main, &server, &reading);
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
                let rates = history.and_then(|history| history.rates.back());
                let colour = phase_colour(reading);
                let cells = text::cells(server, reading, rates);
                Row::new(cells).style(Style::new().fg(colour))
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
        let rates = history.rates.back().cloned().unwrap_or_default();
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
        frame.render_widget(
            summary.block(Block::bordered().title(format!(" {server} "))),
            top,
        );
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
        let of_server = self
            .bursts
            .iter()
            .rev()
            .filter(|burst| burst.server == server);
        let rows = of_server.map(|burst| {
            let size =
                |bytes: Option<u64>| text::or_unknown(bytes.map(|bytes| bytes as f64), text::bytes);
            let cells = [
                burst.start.clone().unwrap_or_default(),
                burst.kind.clone(),
                text::seconds(burst.duration_seconds),
                text::seconds(burst.reclaim_seconds),
                text::or_unknown(burst.evicted_keys.map(|keys| keys as f64), text::count),
                text::or_unknown(burst.throughput_ratio, |ratio| {
                    format!("{:.0} %", ratio * 100.0)
                }),
                size(burst.client_buffers_before_bytes),
                size(burst.client_buffers_peak_bytes),
                size(burst.reclaimed_bytes),
            ];
            let colour = if burst.kind == "plain" {
                Color::Reset
            } else {
                Color::Red
            };
            Row::new(cells).style(Style::new().fg(colour))
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

/// The last minutes of a server, the newest to the right.
fn draw_sparklines(frame: &mut Frame<'_>, area: Rect, server: &str, history: &History) {
    type Series = (&'static str, Color, Vec<u64>, String);
    let of_rates = |of: fn(&Rates) -> Option<f64>| {
        history
            .rates
            .iter()
            .map(move |rates| of(rates).unwrap_or(0.0))
    };
    let whole = |values: &mut dyn Iterator<Item = f64>| {
        values.map(|value| value as u64).collect::<Vec<_>>()
    };
    let most = |values: &[u64], text: fn(f64) -> String| {
        format!(
            "at most {}",
            text(values.iter().max().copied().unwrap_or(0) as f64)
        )
    };
    let commands = whole(&mut of_rates(|rates| rates.commands));
    let evicting = whole(&mut of_rates(|rates| rates.evicting_calls));
    let buffers = whole(&mut history.client_buffers.iter().copied());
    let series: [Series; 3] = [
        (
            "commands/s",
            Color::Cyan,
            commands.clone(),
            most(&commands, text::count),
        ),
        (
            "evicting calls/s",
            Color::Red,
            evicting.clone(),
            most(&evicting, text::count),
        ),
        (
            "client buffers",
            Color::Magenta,
            buffers.clone(),
            most(&buffers, text::bytes),
        ),
    ];
    let block = Block::bordered().title(format!(" {server}, the last minutes "));
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let areas = Layout::vertical([Constraint::Length(3); 3]).split(inside);
    for ((name, colour, values, most), area) in series.into_iter().zip(areas.iter()) {
        let [label, line] =
            Layout::horizontal([Constraint::Length(20), Constraint::Fill(1)]).areas(*area);
        frame.render_widget(
            Paragraph::new(vec![Line::raw(name), Line::styled(most, Color::DarkGray)]),
            label,
        );
        let shown = values.len().saturating_sub(usize::from(line.width));
        let sparkline = Sparkline::default()
            .data(values.iter().skip(shown))
            .style(colour);
        frame.render_widget(sparkline, line);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    use super::{Next, Screen};
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
        assert!(screen.press(KeyCode::Enter.into()) == Next::Stay);
        let one = shown(&mut screen)?;
        assert!(
            one.contains("evicting calls by duration") && !one.contains("6380"),
            "{one}"
        );
        screen.press(KeyCode::Esc.into());
        assert!(shown(&mut screen)?.contains("6380"));
        assert!(screen.press(KeyCode::Char('q').into()) == Next::Quit);
        Ok(())
    }

    #[test]
    fn no_server_and_a_lost_agent_are_said_so() -> anyhow::Result<()> {
        let mut screen = Screen::new(Reading::default());
        assert!(shown(&mut screen)?.contains("No server is watched"));
        screen.failure = Some("no agent answers".to_owned());
        assert!(shown(&mut screen)?.contains("no agent answers"));
        Ok(())
    }
}
