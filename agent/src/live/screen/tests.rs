use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;

use super::Screen;
use crate::live::agent::Unwatched;
use crate::live::reading::tests::{TEXT, server};
use crate::live::reading::{CLIENTS_WAITING, Reading, STALLED};

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
    let all = shown(&mut screen, 120, 40)?;
    let felt = "6379        12    70  11.5 s    7/1.2k   2.2 s         - saturated";
    assert!(all.contains(felt), "{all}");
    assert!(all.contains("6380") && all.contains("saturated"), "{all}");
    assert!(all.contains("part of the time"), "{all}");
    assert!(!screen.press(KeyCode::Enter.into()));
    for (width, height) in [(120, 40), (80, 24), (60, 20), (10, 5)] {
        let one = shown(&mut screen, width, height)?;
        assert!(!one.contains("6380"), "{one}");
        let has_room = width >= 60;
        let has_histogram = one.contains("evicting calls by duration");
        assert_eq!(has_histogram, has_room, "{one}");
        assert_eq!(one.contains("stale 37.5 %"), has_room, "{one}");
        let causes = "stalled by expire 9.0 s, eviction 2.5 s";
        assert_eq!(one.contains(causes), has_room, "{one}");
    }
    screen.press(KeyCode::Esc.into());
    assert!(shown(&mut screen, 80, 24)?.contains("6380"));
    assert!(screen.press(KeyCode::Char('q').into()));
    Ok(())
}

#[test]
fn without_a_server_or_an_agent_the_screen_says_so() -> anyhow::Result<()> {
    let mut screen = Screen::new(Reading::default());
    screen.unwatched = vec![Unwatched { server: "6380".to_owned(), pid: 43, why: "too old".to_owned() }];
    let page = shown(&mut screen, 80, 24)?;
    assert!(page.contains("No server is watched"), "{page}");
    assert!(page.contains("6380 (pid 43) is not watched: too old"), "{page}");
    screen.failure = Some("agent ".repeat(30));
    let page = shown(&mut screen, 60, 20)?;
    assert_eq!(page.matches("agent ").count(), 30, "{page}");
    Ok(())
}

/// Returns a screen with `count` servers.
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
