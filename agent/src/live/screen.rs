//! The live screen: what it shows, and what the keys do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Color;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, ListState, Paragraph};
use ratatui::{DefaultTerminal, Frame};

use super::agent::{Agent, Burst, Unwatched};
use super::drawing::{SPARKLINES, TABLE_EXTRA, lines, sparklines, table};
use super::one::Server;
use super::rates::{History, Readings};
use super::reading::Reading;
use super::servers::{columns, notes, rows};
use super::{colours, one};
use crate::text::wrapped;

/// How often the agent is read.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// If there are more servers than lines, the sparklines go when fewer lines than this would be left for the table.
const LEAST_ROWS: u16 = 5;

/// Shows the servers until the user quits, and always restores the terminal.
pub fn run(agent: &Agent, first: Reading) -> anyhow::Result<()> {
    let mut screen = Screen::new(first);
    screen.read_more(agent)?;
    let mut terminal = ratatui::try_init()?;
    let result = show(&mut terminal, agent, screen);
    ratatui::restore();
    result
}

fn show(terminal: &mut DefaultTerminal, agent: &Agent, mut screen: Screen) -> anyhow::Result<()> {
    loop {
        screen.load_history(agent);
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

struct Screen {
    readings: Readings,
    read_at: Instant,
    histories: BTreeMap<String, History>,
    /// The servers whose history before the first reading was asked for.
    loaded: BTreeSet<String>,
    bursts: Vec<Burst>,
    unwatched: Vec<Unwatched>,
    /// Why the last reading of the agent failed.
    failure: Option<String>,
    list: ListState,
    /// The server that is shown alone.
    opened: Option<String>,
}

impl Screen {
    fn new(reading: Reading) -> Self {
        Self {
            readings: Readings::new(reading),
            read_at: Instant::now(),
            histories: BTreeMap::new(),
            loaded: BTreeSet::new(),
            bursts: Vec::new(),
            unwatched: Vec::new(),
            failure: None,
            list: ListState::default().with_selected(Some(0)),
            opened: None,
        }
    }

    fn read(&mut self, agent: &Agent) {
        let seconds = self.read_at.elapsed().as_secs_f64();
        self.read_at = Instant::now();
        let read = agent.reading().and_then(|reading| {
            self.remember(reading, seconds);
            self.read_more(agent)
        });
        self.failure = read.err().map(|error| format!("{error:#}"));
    }

    fn read_more(&mut self, agent: &Agent) -> anyhow::Result<()> {
        self.bursts = agent.bursts()?;
        // An older agent does not list them.
        self.unwatched = agent.unwatched().unwrap_or_default();
        Ok(())
    }

    fn remember(&mut self, now: Reading, seconds: f64) {
        self.readings.add(now, seconds);
        let servers = &self.readings.now.servers;
        let is_there = |server: &String| servers.contains_key(server);
        self.histories.retain(|server, _| is_there(server));
        self.loaded.retain(is_there);
        for server in servers.keys() {
            if let Some(rates) = self.readings.rates(server) {
                let history = self.histories.entry(server.clone()).or_default();
                history.add(rates);
            }
        }
    }

    /// Asks the agent for the last minutes of the server that is shown, once.
    fn load_history(&mut self, agent: &Agent) {
        let Some(server) = self.opened.clone().or_else(|| self.selected().cloned()) else {
            return;
        };
        if !self.loaded.insert(server.clone()) {
            return;
        }
        // There is none if its evicting calls are not seen.
        if let Ok(timeline) = agent.timeline(&server) {
            self.histories.insert(server, History::from(&timeline));
        }
    }

    fn selected(&self) -> Option<&String> {
        let last = self.readings.now.servers.len().checked_sub(1)?;
        let index = self.list.selected().unwrap_or(0).min(last);
        self.readings.now.servers.keys().nth(index)
    }

    /// Does what a key stands for, and returns whether that was to quit.
    fn press(&mut self, key: KeyEvent) -> bool {
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('q') => return true,
            KeyCode::Esc | KeyCode::Backspace => self.opened = None,
            KeyCode::Down | KeyCode::Char('j') => self.list.select_next(),
            KeyCode::Up | KeyCode::Char('k') => self.list.select_previous(),
            KeyCode::Enter => self.opened = self.selected().cloned(),
            _ => {}
        }
        false
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let opened = self.opened.clone().filter(|server| self.readings.now.servers.contains_key(server));
        let keys = match &opened {
            Some(_) => "esc all servers · q quit",
            None => "↑ ↓ select · enter open · q quit",
        };
        let (text, style) = match &self.failure {
            Some(failure) => (failure.as_str(), colours::alarm()),
            None => (keys, colours::of(Color::DarkGray)),
        };
        let text = wrapped(text, usize::from(area.width));
        let height = u16::try_from(text.len()).unwrap_or(u16::MAX);
        let [main, bottom] = Layout::vertical([Constraint::Fill(1), Constraint::Max(height)]).areas(area);
        match &opened {
            Some(server) => self.draw_one(frame, main, server),
            None => self.draw_all(frame, main),
        }
        let text = Text::from_iter(text.into_iter().map(Line::raw));
        frame.render_widget(text.style(style), bottom);
    }

    fn draw_all(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let notes = notes(&self.readings.now, &self.unwatched);
        let width = usize::from(area.width);
        let notes: Vec<String> = notes.iter().flat_map(|note| wrapped(note, width)).collect();
        let noted = u16::try_from(notes.len()).unwrap_or(u16::MAX).min(area.height / 3);
        let rows = rows(&self.readings);
        if rows.is_empty() {
            let [above, below] = Layout::vertical([Constraint::Length(3), Constraint::Fill(1)]).areas(area);
            let block = Block::bordered().title(" evictscope ");
            let text = Paragraph::new("No server is watched at present.").block(block);
            frame.render_widget(text, above);
            lines(frame, below, notes);
            return;
        }
        let count = u16::try_from(rows.len()).unwrap_or(u16::MAX);
        let room = area.height.saturating_sub(noted + TABLE_EXTRA);
        let [high, low] = SPARKLINES;
        let height = match room {
            _ if room >= count.saturating_add(high) => high,
            _ if room >= count.min(LEAST_ROWS) + low => low,
            _ => 0,
        };
        let [above, between, below] = Layout::vertical([
            Constraint::Max(count.saturating_add(TABLE_EXTRA)),
            Constraint::Length(noted),
            Constraint::Length(height),
        ])
        .areas(area);
        let columns = columns(&rows);
        table(frame, above, "evictscope", &columns, &rows, &mut self.list);
        lines(frame, between, notes);
        if height > 0
            && let Some(server) = self.selected()
        {
            let none = History::default();
            let history = self.histories.get(server).unwrap_or(&none);
            sparklines(frame, below, server, history);
        }
    }

    fn draw_one(&self, frame: &mut Frame<'_>, area: Rect, server: &str) {
        let Some(reading) = self.readings.now.servers.get(server) else {
            return;
        };
        let newest_first = self.bursts.iter().rev();
        let bursts = newest_first.filter(|burst| burst.server == server);
        let server = Server {
            name: server,
            reading,
            rates: self.readings.rates(server),
            history: self.histories.get(server),
            bursts: bursts.cloned().collect(),
        };
        one::draw(frame, area, &server);
    }
}

#[cfg(test)]
mod tests;
