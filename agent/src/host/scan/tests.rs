use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use evictscope_testkit::owned::Owned;
use evictscope_testkit::port::free_port;
use evictscope_testkit::redis::{Redis, copy_to, executable};
use evictscope_testkit::servers;
use evictscope_testkit::wait::within;
use rustix::fs::{Gid, Uid};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use super::{LISTEN, Scan, Scanner, ServerProcess};
use crate::host::{DEFAULT_PATTERN, Executable};

/// Allows a server to delete, populate and restart itself.
const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];

fn scanner() -> anyhow::Result<Scanner> {
    let matcher = DEFAULT_PATTERN.parse().map_err(anyhow::Error::msg)?;
    Ok(Scanner::new(matcher))
}

fn find(scan: Scan, pid: u32) -> Option<ServerProcess> {
    scan.servers
        .into_iter()
        .find(|server| server.identity.pid == pid)
}

/// Repeats `attempt` for ten seconds at most.
fn eventually<T>(
    what: &str,
    attempt: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    Ok(within(Duration::from_secs(10), what, attempt)?.0)
}

/// Scans until the process is found.
fn wait_for(scanner: &mut Scanner, pid: u32) -> anyhow::Result<ServerProcess> {
    eventually("the server is found", || Ok(find(scanner.scan()?, pid)))
}

fn kill(pid: u32) -> anyhow::Result<()> {
    let pid = Pid::from_raw(pid.cast_signed()).context("no process has number 0")?;
    Ok(kill_process(pid, Signal::KILL)?)
}

/// Returns a copy of `sleep` that is called like a server.
fn sleep_named(name: &str) -> anyhow::Result<(TempDir, Command)> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join(name);
    std::fs::copy("/bin/sleep", &path)?;
    Ok((directory, Command::new(path)))
}

/// Says that the test is skipped where there is no redis-server.
fn has_no_server() -> anyhow::Result<bool> {
    Ok(servers::find_or_skip(servers::DEBIAN)?.is_none())
}

#[test]
fn a_server_is_found_by_its_port_until_it_ends() -> anyhow::Result<()> {
    if has_no_server()? {
        return Ok(());
    }
    let redis = Redis::start(&[])?;
    let mut scanner = scanner()?;
    let found = wait_for(&mut scanner, redis.pid())?;
    assert_eq!(found.name, redis.port().to_string());
    assert_eq!(found.exe, executable()?);
    let opened = Executable::open(&found.exe_proc_path)?;
    assert_eq!(opened.id(), Executable::open(&executable()?)?.id());
    let again = find(scanner.scan()?, redis.pid());
    assert_eq!(again, Some(found), "nothing has changed");

    // Nobody waits for the process yet, so that it becomes a zombie.
    kill(redis.pid())?;
    eventually("the server is gone", || {
        let gone = find(scanner.scan()?, redis.pid()).is_none();
        Ok(gone.then_some(()))
    })
}

#[test]
fn a_server_in_the_background_is_found() -> anyhow::Result<()> {
    if has_no_server()? {
        return Ok(());
    }
    let (directory, port) = (tempfile::tempdir()?, free_port()?.to_string());
    let pid_file = directory.path().join("pid");
    let started = Command::new("redis-server")
        .args(["--daemonize", "yes", "--save", "", "--bind", "127.0.0.1"])
        .args(["--port", &port, "--pidfile"])
        .arg(&pid_file)
        .status()?;
    assert!(started.success());
    let pid = eventually("the pid file is written", || {
        let text = std::fs::read_to_string(&pid_file).unwrap_or_default();
        Ok(text.trim().parse().ok())
    })?;
    let found = wait_for(&mut scanner()?, pid);
    kill(pid)?;
    assert_eq!(found?.name, port);
    Ok(())
}

#[test]
fn a_server_without_a_port_goes_by_its_socket() -> anyhow::Result<()> {
    if has_no_server()? {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("socket");
    let server = Owned::start(
        Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(&socket),
    )?;
    let found = wait_for(&mut scanner()?, server.pid())?;
    assert_eq!(Path::new(&found.name), socket);
    Ok(())
}

#[test]
fn a_server_whose_executable_was_deleted_is_found_and_read() -> anyhow::Result<()> {
    if has_no_server()? {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let redis = Redis::start_program(copy_to(directory.path(), "redis-server")?, &[])?;
    std::fs::remove_file(directory.path().join("redis-server"))?;
    let found = wait_for(&mut scanner()?, redis.pid())?;
    let exe = found.exe.to_string_lossy();
    assert!(exe.ends_with("/redis-server (deleted)"), "{found:?}");
    let bytes = Executable::open(&found.exe_proc_path)?.read()?;
    assert!(bytes == std::fs::read(executable()?)?);
    Ok(())
}

#[test]
fn a_sentinel_is_not_a_server() -> anyhow::Result<()> {
    if has_no_server()? {
        return Ok(());
    }
    // A sentinel wants a configuration that it can write to.
    let configuration = tempfile::NamedTempFile::new()?;
    let mut program = Command::new("redis-server");
    program.arg(configuration.path());
    let sentinel = Redis::start_program(program, &["--sentinel"])?;
    std::thread::sleep(LISTEN);
    let scan = scanner()?.scan()?;
    assert!(!scan.starting.contains(&sentinel.pid()));
    assert_eq!(find(scan, sentinel.pid()), None);
    Ok(())
}

fn a_child_that_saves_is_not_a_server(options: &[&str]) -> anyhow::Result<()> {
    if has_no_server()? {
        return Ok(());
    }
    let redis = Redis::start(&[&DEBUG[..], options].concat())?;
    redis.cli(&["DEBUG", "POPULATE", "1000"])?;
    // Microseconds a key: the child lives for 20 s, if nobody ends it.
    redis.config_set("rdb-key-save-delay", "20000")?;
    redis.cli(&["BGSAVE"])?;
    let children = format!("/proc/{0}/task/{0}/children", redis.pid());
    let child: u32 = eventually("the child runs", || {
        let children = std::fs::read_to_string(&children)?;
        let first = children.split_whitespace().next();
        Ok(first.and_then(|pid| pid.parse().ok()))
    })?;
    std::thread::sleep(LISTEN);
    let scan = scanner()?.scan()?;
    let is_running = Path::new(&format!("/proc/{child}")).exists();
    kill(child)?;
    assert!(is_running, "the child ended too soon to tell");
    assert!(!scan.starting.contains(&child));
    assert_eq!(find(scan.clone(), child), None);
    assert!(find(scan, redis.pid()).is_some());
    Ok(())
}

#[test]
fn a_child_that_saves_is_told_by_its_title() -> anyhow::Result<()> {
    a_child_that_saves_is_not_a_server(&[])
}

#[test]
fn a_child_that_saves_is_told_without_its_title() -> anyhow::Result<()> {
    // The child has the same title as its parent.
    a_child_that_saves_is_not_a_server(&["--proc-title-template", "cache {listen-addr}"])
}

#[test]
fn a_server_that_restarts_in_place_is_another_one() -> anyhow::Result<()> {
    if has_no_server()? {
        return Ok(());
    }
    // It restarts by its path.
    let program = Command::new(servers::path(servers::DEBIAN)?);
    let redis = Redis::start_program(program, &DEBUG)?;
    let mut scanner = scanner()?;
    let before = wait_for(&mut scanner, redis.pid())?.identity;
    // It does not answer, since the process that would is gone.
    _ = redis.cli(&["DEBUG", "RESTART"]);
    eventually("the server has restarted", || Ok(redis.cli(&["PING"]).ok()))?;
    let after = wait_for(&mut scanner, redis.pid())?.identity;
    assert_eq!(before.start_time_ticks, after.start_time_ticks);
    assert_ne!(before, after);
    Ok(())
}

#[test]
fn a_shell_that_becomes_a_server_is_noticed() -> anyhow::Result<()> {
    let (_directory, server) = sleep_named("valkey-server")?;
    let script = format!("sleep 2; exec {} 60", server.get_program().display());
    let child = Owned::start(Command::new("/bin/sh").arg("-c").arg(script))?;
    let pid = child.pid();
    let mut scanner = scanner()?;
    let scan = scanner.scan()?;
    assert!(!scan.starting.contains(&pid), "a shell is not a server");
    // By then it is old enough as a process, but new as a server.
    eventually("the shell becomes a server", || {
        let is_starting = scanner.scan()?.starting.contains(&pid);
        Ok(is_starting.then_some(()))
    })?;
    assert_eq!(wait_for(&mut scanner, pid)?.name, format!("pid-{pid}"));
    Ok(())
}

#[test]
fn a_server_that_does_not_listen_is_deferred_and_then_goes_by_its_pid() -> anyhow::Result<()> {
    if has_no_server()? {
        return Ok(());
    }
    let (_directory, mut server) = sleep_named("redis-server")?;
    let child = Owned::start(server.arg("60"))?;
    let pid = child.pid();
    let mut scanner = scanner()?;
    let scan = scanner.scan()?;
    assert!(scan.starting.contains(&pid));
    assert_eq!(find(scan, pid), None);
    assert_eq!(wait_for(&mut scanner, pid)?.name, format!("pid-{pid}"));
    Ok(())
}

#[test]
fn a_script_with_the_name_of_a_server_is_not_a_server() -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir()?;
    let script = directory.path().join("redis-server");
    std::fs::write(&script, "#!/bin/sh\nread line\n")?;
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755))?;
    let (child, _input, _output) = Owned::start_with_pipes(&mut Command::new(&script))?;
    let pid = child.pid();
    // While it is being executed it has its new name already, but no arguments yet.
    eventually("the script has its arguments", || {
        let line = std::fs::read(format!("/proc/{pid}/cmdline"))?;
        Ok((!line.is_empty()).then_some(()))
    })?;
    assert!(!scanner()?.scan()?.starting.contains(&pid));
    Ok(())
}

#[test]
fn a_server_of_another_user_is_reported_as_hidden() -> anyhow::Result<()> {
    if has_no_server()? {
        return Ok(());
    }
    if !geteuid().is_root() {
        println!("skipped: only root can become another user");
        return Ok(());
    }
    let redis = Redis::start(&[])?;
    // A thread has credentials of its own; this one gives up root's.
    let scan = std::thread::spawn(|| -> anyhow::Result<Scan> {
        let (nobody, nogroup) = (Uid::from_raw(65534), Gid::from_raw(65534));
        rustix::thread::set_thread_res_gid(nogroup, nogroup, nogroup)?;
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody)?;
        scanner()?.scan()
    })
    .join()
    .map_err(|_| anyhow::anyhow!("the scan panicked"))??;
    let hidden = scan.hidden.iter().find(|hidden| hidden.pid == redis.pid());
    assert!(
        hidden.is_some_and(|hidden| hidden.uid == 0 && hidden.why.contains("/exe: run as root")),
        "{scan:?}"
    );
    assert_eq!(find(scan, redis.pid()), None);
    Ok(())
}
