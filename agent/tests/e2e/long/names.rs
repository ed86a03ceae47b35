//! Names that others chose.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, ensure};
use evictscope_host::printable;
use evictscope_testkit::{
    agent::{Agent, evictscope},
    own_build::OwnBuild,
    port::free_port,
    redis::Redis,
};

/// A name that sets a terminal's title, colours it, turns the direction of writing, and looks like a line of `check`.
const NAME: &str = "a\u{1b}]0;b\u{7}\u{9b}31m\u{202e}\nok    server c";
/// What has no use for a server's name.
const NAMELESS: [&str; 2] = ["selftest", "help"];

#[test]
#[ignore = "needs root and BPF"]
fn no_command_prints_what_a_terminal_obeys() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let folder = directory.path().join(NAME);
    fs::create_dir(&folder)?;
    let inside = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let own = OwnBuild::of_redis()?;
    let path = own.path();
    let name = path.file_name().and_then(|name| name.to_str());
    let (program, socket) = (inside(name.context("no name")?), inside("socket"));
    fs::copy(&path, &program)?;
    let redis = Redis::start_program(Command::new(&program), &["--unixsocket", &socket])?;
    redis.config_set("port", "0")?;
    let agent = Agent::start(&[&own.only()])?;
    agent.watches(&redis)?;

    let pid = redis.pid().to_string();
    let url = agent.metrics_url().replace("/metrics", "");
    let state = agent.state().to_string_lossy().into_owned();
    let (listen, record) = (format!("--listen=127.0.0.1:{}", free_port()?), inside("record"));
    let tried: [&[&str]; 14] = [
        &["check", &own.only(), &listen],
        &["inspect", &pid],
        &["inspect", &program, "--json"],
        &["inspect", &socket],
        &["trace", &pid, "call", "--seconds", "1"],
        &["trace", &pid, NAME],
        &["profile", &pid, "--seconds", "1", "--format", "folded"],
        &["keys", &pid, "--seconds", "1"],
        &["report", "--now", "--url", &url, "--json", "-o", &record],
        &["report", "--list", "--state-dir", &state],
        &["report", "--last", "--server", NAME, "--state-dir", &state],
        &["compare", &record, &program],
        &["watch", "--once", "--url", &url],
        &["run", "--check-config", "--config", &socket],
    ];
    let mut said = vec![("log", agent.log()?), ("metrics", agent.get("/metrics")?)];
    for arguments in tried {
        let output = evictscope().args(arguments).output()?;
        let bytes = [output.stdout, output.stderr].concat();
        said.push((arguments[0], String::from_utf8(bytes)?));
    }
    for (command, text) in &said {
        let shown = text.split('\n').all(|line| printable(line) == line);
        let forged = text.lines().any(|line| line.starts_with("ok    server c"));
        ensure!(shown && !forged, "{command}: {text:?}");
    }
    let seen = said.iter().filter(|(_, text)| text.contains("\\u001b"));
    ensure!(seen.count() >= 10, "{said:?}");
    let help = String::from_utf8(evictscope().arg("--help").output()?.stdout)?;
    let (_, commands) = help.split_once("Commands:\n").context("no commands")?;
    for line in commands.lines().take_while(|line| !line.is_empty()) {
        let command = line.split_whitespace().next().unwrap_or_default();
        let is_tried = said.iter().any(|(tried, _)| *tried == command);
        ensure!(is_tried || NAMELESS.contains(&command), "{command}");
    }
    Ok(())
}
