//! How the agent is started, who reads its log, and which files it is given.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use evictscope_testkit::{
    agent::{Agent, evictscope, inspect},
    own_build,
    port::free_port,
    process::succeed,
    redis::{self, Redis},
};
use rustix::process::Signal;

/// Starts an agent as the end of a shell script, which has its command as arguments.
fn started_by(script: &str) -> anyhow::Result<Agent> {
    let mut shell = Command::new("bash");
    shell.args(["-c", script, "bash"]).arg(evictscope().get_program());
    shell.args(["run", &own_build::all()]);
    Agent::start_command(shell, free_port()?, &[])
}

#[test]
#[ignore = "needs root and BPF"]
fn an_agent_goes_on_whoever_started_it_and_whether_or_not_its_log_is_read() -> anyhow::Result<()> {
    let first = Redis::own(&[])?;
    for script in [
        r#"exec env --ignore-signal=CHLD --ignore-signal=XCPU --block-signal=TERM "$@""#,
        r#"exec "$@" 2>/dev/full"#,
        // Its reader has gone; or never reads what has filled the pipe.
        r#"exec 2> >(exec true); wait $!; exec "$@""#,
        r#"exec 2> >(exec sleep 60); head -c 65536 /dev/zero >&2; exec "$@""#,
    ] {
        let agent = started_by(script).with_context(|| script.to_owned())?;
        agent.watches(&first)?;
        let second = Redis::own(&[])?;
        agent.watches(&second)?;
        let ended = agent.end(Signal::TERM)?;
        ensure!(ended.success(), "{script}: {ended}");
    }
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_clock_that_is_not_the_kernels_is_refused() -> anyhow::Result<()> {
    let mut check = Command::new("unshare");
    check.args(["--time", "--monotonic", "-100"]).arg(evictscope().get_program());
    let output = check.args(["check", &own_build::all()]).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(said.contains("FAIL  BPF: this process is in a time namespace"), "{said}");
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
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(said.contains("not a regular file"), "{arguments:?}: {said}");
        Ok(())
    };
    let target = executable.to_string_lossy();
    refused(&["inspect", &target, "--debug-dir"], directory.path())?;
    refused(&["run", "--check-config", "--config"], &pipe)?;
    refused(&["run", "--check-config", "--web-config"], &pipe)?;
    refused(&["report"], &pipe)
}
