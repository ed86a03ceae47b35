//! How the agent is started, who reads its log, which files and which names it is given, and which servers it is to
//! leave alone.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use evictscope_host::printable;
use evictscope_testkit::agent::{Agent, evictscope, inspect};
use evictscope_testkit::loopback::free_port;
use evictscope_testkit::process::succeed;
use evictscope_testkit::redis::{self, PrivateBuild, Redis};

use crate::code::Code;

/// Starts an agent as the end of a shell script, which has its command as arguments.
fn started_by(script: &str) -> anyhow::Result<Agent> {
    let mut shell = Command::new("bash");
    shell.args(["-c", script, "bash"]).arg(evictscope().get_program());
    shell.args(["run", &redis::match_private()]);
    Agent::start_command(shell, free_port()?, &[])
}

#[test]
#[ignore = "needs root and BPF"]
fn an_agent_goes_on_whoever_started_it_and_whether_or_not_its_log_is_read() -> anyhow::Result<()> {
    let first = Redis::private(&[])?;
    for script in [
        r#"exec env --ignore-signal=CHLD --ignore-signal=XCPU --block-signal=TERM "$@""#,
        r#"exec "$@" 2>/dev/full"#,
        // Its reader has gone; or never reads what has filled the pipe.
        r#"exec 2> >(exec true); wait $!; exec "$@""#,
        r#"exec 2> >(exec sleep 60); head -c 65536 /dev/zero >&2; exec "$@""#,
    ] {
        let agent = started_by(script).with_context(|| script.to_owned())?;
        agent.watches(&first)?;
        let second = Redis::private(&[])?;
        agent.watches(&second)?;
        agent.end_well().with_context(|| script.to_owned())?;
    }
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_clock_that_is_not_the_kernels_is_refused() -> anyhow::Result<()> {
    let mut check = Command::new("unshare");
    check.args(["--time", "--monotonic", "-100"]).arg(evictscope().get_program());
    let output = check.args(["check", &redis::match_private()]).output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(printed.contains("FAIL  BPF: this process is in a time namespace"), "{printed}");
    Ok(())
}

#[test]
#[ignore = "needs root"]
fn what_is_no_regular_file_is_not_opened() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let executable = redis::executable()?;
    let plan = inspect(&executable)?;
    let (first, rest) = plan["build_id"].as_str().context("no build id")?.split_at(2);
    let folder = directory.path().join(".build-id").join(first);
    std::fs::create_dir_all(&folder)?;
    // No driver has this number, which is for local use: opening it says so.
    let device = folder.join(format!("{rest}.debug"));
    succeed(Command::new("mknod").arg(&device).args(["c", "240", "77"]))?;
    let pipe = directory.path().join("pipe");
    succeed(Command::new("mkfifo").arg(&pipe))?;
    let refused = |arguments: &[&str], file: &Path| {
        let output = evictscope().args(arguments).arg(file).output()?;
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(printed.contains("not a regular file"), "{arguments:?}: {printed}");
        Ok(())
    };
    refused(&["inspect", &executable.to_string_lossy(), "--debug-dir"], directory.path())?;
    refused(&["run", "--check-config", "--config"], &pipe)?;
    refused(&["run", "--check-config", "--web-config"], &pipe)?;
    refused(&["report"], &pipe)
}

#[test]
#[ignore = "needs root and BPF"]
fn an_excluded_server_has_no_breakpoint_and_no_series() -> anyhow::Result<()> {
    let build = PrivateBuild::of_redis()?;
    let (excluded, other) = (build.start(&[])?, build.start(&[])?);
    let port = format!("port={}", excluded.port());
    let options = [&build.only(), "--probe-mode", "every-call", "--exclude", &port];
    let agent = Agent::watching(&other, &options)?;
    // The scan that finds this one sees the excluded one once more.
    agent.watches(&build.start(&[])?)?;

    let changed = Code::of(other.pid())?.changed()?;
    ensure!(!changed.is_empty(), "no breakpoint in the other server");
    let changed = Code::of(excluded.pid())?.changed()?;
    ensure!(changed.is_empty(), "the excluded server has {changed:?}");
    let page = agent.get("/metrics")?;
    ensure!(!page.contains(&format!("server=\"{}", excluded.name())), "{page}");
    let log = agent.log()?;
    ensure!(log.matches(&format!("left alone because of --exclude {port}")).count() == 1, "{log}");
    Ok(())
}

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
    let build = PrivateBuild::of_redis()?;
    let path = build.path();
    let name = path.file_name().and_then(|name| name.to_str());
    let (program, socket) = (inside(name.context("no name")?), inside("socket"));
    fs::copy(&path, &program)?;
    let redis = Redis::start_program(Command::new(&program), &["--unixsocket", &socket])?;
    redis.config_set("port", "0")?;
    let agent = Agent::watching(&redis, &[&build.only()])?;

    let pid = redis.pid().to_string();
    let url = agent.metrics_url().replace("/metrics", "");
    let state = agent.state().to_string_lossy().into_owned();
    let (listen, record) = (format!("--listen=127.0.0.1:{}", free_port()?), inside("record"));
    let tried: [&[&str]; 14] = [
        &["check", &build.only(), &listen],
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
    let mut printed = vec![("log", agent.log()?), ("metrics", agent.get("/metrics")?)];
    for arguments in tried {
        let output = evictscope().args(arguments).output()?;
        printed.push((arguments[0], String::from_utf8([output.stdout, output.stderr].concat())?));
    }
    for (command, text) in &printed {
        let shown = text.split('\n').all(|line| printable(line) == line);
        let forged = text.lines().any(|line| line.starts_with("ok    server c"));
        ensure!(shown && !forged, "{command}: {text:?}");
    }
    ensure!(printed.iter().filter(|(_, text)| text.contains("\\u001b")).count() >= 10, "{printed:?}");
    let help = String::from_utf8(evictscope().arg("--help").output()?.stdout)?;
    let (_, commands) = help.split_once("Commands:\n").context("no commands")?;
    for line in commands.lines().take_while(|line| !line.is_empty()) {
        let command = line.split_whitespace().next().unwrap_or_default();
        let is_tried = printed.iter().any(|(tried, _)| *tried == command);
        ensure!(is_tried || NAMELESS.contains(&command), "{command}");
    }
    Ok(())
}
