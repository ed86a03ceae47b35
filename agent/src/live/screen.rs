//! The live screen: what it shows, and what the keys do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use evictscope_model::answers::{EvidenceAnswer, ListedBurst, UnwatchedServer};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Color;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, ListState, Paragraph};
use ratatui::{DefaultTerminal, Frame};

use super::drawing::{SPARKLINES, TABLE_EXTRA, alarm, colour, lines, sparklines, table};
use super::rates::{History, Readings};
use super::server::{ShownServer, draw};
use super::servers::{columns, notes, rows};
use crate::client::AgentClient;
use crate::client::reading::Reading;
use crate::text::wrapped;

pub const INTERVAL: Duration = Duration::from_secs(1);
/// If there are more servers than lines, the sparklines go when fewer lines than this would be left for the table.
const LEAST_ROWS: u16 = 5;

/// Shows the servers until the user quits, and always restores the terminal.
pub fn run(agent: &AgentClient, first: Reading) -> anyhow::Result<()> {
    let mut screen = Screen::new(first);
    screen.read_more(agent)?;
    let mut terminal = ratatui::try_init()?;
    let result = show(&mut terminal, agent, screen);
    ratatui::restore();
    result
}

fn show(terminal: &mut DefaultTerminal, agent: &AgentClient, mut screen: Screen) -> anyhow::Result<()> {
    loop {
        screen.load_history(agent);
        screen.load_evidence(agent, false);
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
    bursts: Vec<ListedBurst>,
    unwatched: Vec<UnwatchedServer>,
    /// Why the last reading of the agent failed.
    failure: Option<String>,
    list: ListState,
    /// The server that is shown alone.
    opened: Option<String>,
    /// Where the time and the memory of that server went, and who its clients are.
    evidence: EvidenceAnswer,
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
            evidence: EvidenceAnswer::default(),
        }
    }

    fn read(&mut self, agent: &AgentClient) {
        let seconds = self.read_at.elapsed().as_secs_f64();
        self.read_at = Instant::now();
        let read = agent.reading().and_then(|reading| {
            self.remember(reading, seconds);
            self.read_more(agent)
        });
        self.failure = read.err().map(|error| format!("{error:#}"));
    }

    fn read_more(&mut self, agent: &AgentClient) -> anyhow::Result<()> {
        self.bursts = agent.bursts()?;
        // An older agent does not list them.
        self.unwatched = agent.unwatched().unwrap_or_default();
        self.load_evidence(agent, true);
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
                self.histories.entry(server.clone()).or_default().add(rates);
            }
        }
    }

    /// Asks the agent for the last minutes of the server that is shown, once.
    fn load_history(&mut self, agent: &AgentClient) {
        let Some(server) = self.opened.clone().or_else(|| self.selected().cloned()) else { return };
        if !self.loaded.insert(server.clone()) {
            return;
        }
        // There is none if its evicting calls are not seen.
        if let Ok(timeline) = agent.timeline(&server) {
            self.histories.insert(server, History::from(&timeline));
        }
    }

    /// Asks the agent for the evidence of the server that is shown alone, if it is another one or that `is_old`.
    fn load_evidence(&mut self, agent: &AgentClient, is_old: bool) {
        let Some(server) = self.opened.as_ref().filter(|server| is_old || self.evidence.server != **server) else {
            return;
        };
        // An older agent has none.
        let evidence = agent.evidence(server).unwrap_or_default();
        self.evidence = EvidenceAnswer { server: server.clone(), ..evidence };
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
        let keys =
            if opened.is_some() { "esc all servers · q quit" } else { "↑ ↓ select · enter open · q quit" };
        let (text, style) = match &self.failure {
            Some(failure) => (failure.as_str(), alarm()),
            None => (keys, colour(Color::DarkGray)),
        };
        let text = wrapped(text, usize::from(area.width));
        let height = u16::try_from(text.len()).unwrap_or(u16::MAX);
        let [main, bottom] = Layout::vertical([Constraint::Fill(1), Constraint::Max(height)]).areas(area);
        match &opened {
            Some(server) => self.draw_one(frame, main, server),
            None => self.draw_all(frame, main),
        }
        frame.render_widget(Text::from_iter(text.into_iter().map(Line::raw)).style(style), bottom);
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
        table(frame, above, "evictscope", &columns(&rows), &rows, &mut self.list);
        lines(frame, between, notes);
        if height > 0
            && let Some(server) = self.selected()
        {
            sparklines(frame, below, server, self.histories.get(server));
        }
    }

    fn draw_one(&self, frame: &mut Frame<'_>, area: Rect, server: &str) {
        let Some(reading) = self.readings.now.servers.get(server) else { return };
        let bursts = self.bursts.iter().rev().filter(|burst| burst.server == server);
        let server = ShownServer {
            name: server,
            reading,
            rates: self.readings.rates(server),
            history: self.histories.get(server),
            bursts: bursts.cloned().collect(),
            evidence: Some(&self.evidence).filter(|evidence| evidence.server == server),
        };
        draw(frame, area, &server);
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::client::reading::tests::{TEXT, server};
    use crate::client::reading::{CLIENTS_WAITING, STALLED};
    use crate::live::servers::tests::unwatched;

    fn shown(screen: &mut Screen, width: u16, height: u16) -> anyhow::Result<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height))?;
        terminal.draw(|frame| screen.draw(frame))?;
        Ok(terminal.backend().to_string())
    }

    #[test]
    fn enter_opens_a_server_and_escape_goes_back() -> anyhow::Result<()> {
        let reading = Reading::parse(TEXT)?;
        let mut screen = Screen::new(reading.clone());
        screen.remember(reading, 1.0);
        assert_snapshot!("all", shown(&mut screen, 120, 40)?);
        assert!(!screen.press(KeyCode::Enter.into()));
        assert_snapshot!("one_before_its_evidence", shown(&mut screen, 80, 24)?);
        screen.evidence = serde_json::from_str(include_str!("testdata/evidence.json"))?;
        for (width, height) in [(120, 40), (80, 24), (80, 18), (60, 20), (10, 5)] {
            assert_snapshot!(format!("one_in_{width}_by_{height}"), shown(&mut screen, width, height)?);
        }
        screen.press(KeyCode::Esc.into());
        assert!(shown(&mut screen, 80, 24)?.contains("6380"));
        assert!(screen.press(KeyCode::Char('q').into()));
        Ok(())
    }

    #[test]
    fn without_a_server_or_an_agent_the_screen_says_so() -> anyhow::Result<()> {
        let mut screen = Screen::new(Reading::default());
        screen.unwatched = vec![unwatched()];
        let page = shown(&mut screen, 80, 24)?;
        assert!(page.contains("No server is watched"), "{page}");
        assert!(page.contains("6380 (pid 43) is not watched: too old"), "{page}");
        screen.failure = Some("agent ".repeat(30));
        let page = shown(&mut screen, 60, 20)?;
        assert_eq!(page.matches("agent ").count(), 30, "{page}");
        Ok(())
    }

    fn many(count: u32) -> Screen {
        let calm = server(&[(CLIENTS_WAITING, 0.0)]);
        let servers = (0..count).map(|number| (format!("{}", 7_000 + number), calm.clone()));
        Screen::new(Reading { servers: servers.collect(), is_of_evictscope: true })
    }

    #[test]
    fn it_says_how_many_servers_there_is_no_room_for() -> anyhow::Result<()> {
        for (width, height) in [(80, 24), (60, 20), (200, 50), (80, 8)] {
            let mut screen = many(64);
            let page = shown(&mut screen, width, height)?;
            let rows = page.lines().filter(|line| line.contains("│70")).count();
            let below = format!("{} more below", 64 - rows);
            assert!(rows >= 3 && page.contains(&below), "{rows}: {page}");
            for _ in 0..100 {
                screen.press(KeyCode::Down.into());
            }
            let page = shown(&mut screen, width, height)?;
            assert!(page.contains(&format!("{} more above", 64 - rows)), "{page}");
            assert!(page.contains("7063") && !page.contains("below"), "{page}");
            let all = shown(&mut many(2), width, height)?;
            assert!(!all.contains("more"), "{all}");
        }
        Ok(())
    }

    #[test]
    fn an_alarm_outside_the_screen_is_told() -> anyhow::Result<()> {
        let mut screen = many(64);
        let mut now = screen.readings.now.clone();
        let servers = &mut screen.readings.now.servers;
        servers.insert("7060".to_owned(), server(&[(STALLED, 1.0)]));
        now.servers.insert("7060".to_owned(), server(&[(STALLED, 1.5)]));
        assert!(!shown(&mut screen, 80, 24)?.contains("in red"));
        screen.remember(now, 1.0);
        let page = shown(&mut screen, 80, 24)?;
        assert!(page.contains("more below (1 in red)"), "{page}");
        Ok(())
    }
}
