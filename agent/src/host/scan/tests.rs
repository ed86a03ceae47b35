use std::path::Path;
use std::process::{Child, Command};

use rustix::fs::{Gid, Uid};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::{LISTEN, Scan, Scanner, ServerProcess};
use crate::host::testing::{TestServer, eventually, redis_server};
use crate::host::{DEFAULT_PATTERN, Executable, Matcher};

fn scanner() -> anyhow::Result<Scanner> {
    Ok(Scanner::new(Matcher::new(DEFAULT_PATTERN)?))
}

fn find(scan: Scan, pid: u32) -> Option<ServerProcess> {
    scan.servers
        .into_iter()
        .find(|server| server.identity.pid == pid)
}

/// Scans until the process is found.
fn wait_for(scanner: &mut Scanner, pid: u32) -> anyhow::Result<ServerProcess> {
    let mut found = None;
    eventually("the server is found", || {
        found = scanner.scan().ok().and_then(|scan| find(scan, pid));
        found.is_some()
    })?;
    found.ok_or_else(|| anyhow::anyhow!("not found"))
}

/// A child process that ends with its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn a_server_is_found_by_its_port_until_it_ends() -> anyhow::Result<()> {
    let Some(server) = TestServer::start(&redis_server(), &[])? else {
        return Ok(());
    };
    let mut scanner = scanner()?;
    let found = wait_for(&mut scanner, server.pid)?;
    assert_eq!(found.name, server.port.to_string());
    assert_eq!(found.exe, std::fs::canonicalize(redis_server())?);
    let executable = Executable::open(&found.exe_proc_path)?;
    assert_eq!(executable.id(), Executable::open(&redis_server())?.id());
    assert_eq!(
        find(scanner.scan()?, server.pid),
        Some(found),
        "nothing has changed"
    );

    // Nobody waits for the process yet, so that it becomes a zombie.
    if let Some(pid) = Pid::from_raw(server.pid.cast_signed()) {
        kill_process(pid, Signal::KILL)?;
    }
    eventually("the server is gone", || {
        scanner
            .scan()
            .is_ok_and(|scan| find(scan, server.pid).is_none())
    })
}

#[test]
fn a_server_in_the_background_is_found() -> anyhow::Result<()> {
    let Some(server) = TestServer::start(&redis_server(), &["--daemonize", "yes"])? else {
        return Ok(());
    };
    let found = wait_for(&mut scanner()?, server.pid)?;
    assert_eq!(found.name, server.port.to_string());
    Ok(())
}

#[test]
fn a_server_without_a_port_goes_by_its_socket() -> anyhow::Result<()> {
    let Some(server) = TestServer::start(&redis_server(), &["--port", "0"])? else {
        return Ok(());
    };
    let found = wait_for(&mut scanner()?, server.pid)?;
    assert_eq!(Path::new(&found.name), server.socket());
    Ok(())
}

#[test]
fn a_server_whose_executable_was_deleted_is_found_and_read() -> anyhow::Result<()> {
    if !redis_server().exists() {
        println!("skipped: {} is not installed", redis_server().display());
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let copy = directory.path().join("redis-server");
    std::fs::copy(redis_server(), &copy)?;
    let Some(server) = TestServer::start(&copy, &[])? else {
        return Ok(());
    };
    std::fs::remove_file(&copy)?;
    let found = wait_for(&mut scanner()?, server.pid)?;
    assert!(
        found
            .exe
            .to_string_lossy()
            .ends_with("/redis-server (deleted)"),
        "{found:?}"
    );
    let bytes = Executable::open(&found.exe_proc_path)?.read()?;
    assert!(bytes == std::fs::read(redis_server())?);
    Ok(())
}

#[test]
fn a_sentinel_is_not_a_server() -> anyhow::Result<()> {
    let Some(server) = TestServer::start(&redis_server(), &["--sentinel"])? else {
        return Ok(());
    };
    std::thread::sleep(LISTEN);
    let scan = scanner()?.scan()?;
    assert!(!scan.starting.contains(&server.pid));
    assert_eq!(find(scan, server.pid), None);
    Ok(())
}

fn a_child_that_saves_is_not_a_server(options: &[&str]) -> anyhow::Result<()> {
    let Some(server) = TestServer::start(&redis_server(), options)? else {
        return Ok(());
    };
    server.command("DEBUG POPULATE 1000")?;
    // Microseconds a key: the child lives for 20 s, if nobody ends it.
    server.command("CONFIG SET rdb-key-save-delay 20000")?;
    server.command("BGSAVE")?;
    let children = format!("/proc/{0}/task/{0}/children", server.pid);
    let mut child = None;
    eventually("the child runs", || {
        let children = std::fs::read_to_string(&children).unwrap_or_default();
        child = children
            .split_whitespace()
            .next()
            .and_then(|pid| pid.parse().ok());
        child.is_some()
    })?;
    std::thread::sleep(LISTEN);
    let scan = scanner()?.scan()?;
    let pids: Vec<_> = scan
        .servers
        .iter()
        .map(|server| server.identity.pid)
        .collect();
    let running = child.is_some_and(|pid: u32| Path::new(&format!("/proc/{pid}")).exists());
    if let Some(pid) = child.and_then(|pid| Pid::from_raw(pid.cast_signed())) {
        kill_process(pid, Signal::KILL)?;
    }
    assert!(running, "the child ended too soon to tell");
    assert!(pids.contains(&server.pid));
    assert!(!child.is_some_and(|pid| pids.contains(&pid) || scan.starting.contains(&pid)));
    Ok(())
}

#[test]
fn a_child_that_saves_is_told_by_its_title() -> anyhow::Result<()> {
    a_child_that_saves_is_not_a_server(&["--enable-debug-command", "yes"])
}

#[test]
fn a_child_that_saves_is_told_without_its_title() -> anyhow::Result<()> {
    a_child_that_saves_is_not_a_server(&[
        "--enable-debug-command",
        "yes",
        // The child has the same title as its parent.
        "--proc-title-template",
        "cache {listen-addr}",
    ])
}

#[test]
fn a_server_that_restarts_in_place_is_another_one() -> anyhow::Result<()> {
    let options = ["--enable-debug-command", "yes"];
    let Some(server) = TestServer::start(&redis_server(), &options)? else {
        return Ok(());
    };
    let mut scanner = scanner()?;
    let before = wait_for(&mut scanner, server.pid)?;
    // It does not answer, since the process that would is gone.
    _ = server.command("DEBUG RESTART");
    eventually("the server has restarted", || {
        server.command("PING").is_ok()
    })?;
    let after = wait_for(&mut scanner, server.pid)?;
    assert_eq!(
        before.identity.start_time_ticks,
        after.identity.start_time_ticks
    );
    assert_ne!(before.identity, after.identity);
    Ok(())
}

#[test]
fn a_shell_that_becomes_a_server_is_noticed() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let server = directory.path().join("valkey-server");
    std::fs::copy("/bin/sleep", &server)?;
    let script = format!("sleep 2; exec {} 60", server.display());
    let child = Killed(Command::new("/bin/sh").arg("-c").arg(script).spawn()?);
    let pid = child.0.id();
    let mut scanner = scanner()?;
    let scan = scanner.scan()?;
    assert!(!scan.starting.contains(&pid), "a shell is not a server");
    // By then it is old enough as a process, but new as a server.
    eventually("the shell becomes a server", || {
        scanner
            .scan()
            .is_ok_and(|scan| scan.starting.contains(&pid))
    })?;
    assert_eq!(wait_for(&mut scanner, pid)?.name, format!("pid-{pid}"));
    Ok(())
}

#[test]
fn a_server_that_does_not_listen_is_deferred_and_then_goes_by_its_pid() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let server = directory.path().join("redis-server");
    std::fs::copy("/bin/sleep", &server)?;
    let child = Killed(Command::new(&server).arg("60").spawn()?);
    let pid = child.0.id();
    let mut scanner = scanner()?;
    let scan = scanner.scan()?;
    assert!(scan.starting.contains(&pid));
    assert_eq!(find(scan, pid), None);
    assert_eq!(wait_for(&mut scanner, pid)?.name, format!("pid-{pid}"));
    Ok(())
}

#[test]
fn a_script_with_the_name_of_a_server_is_none() -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir()?;
    let script = directory.path().join("redis-server");
    std::fs::write(&script, "#!/bin/sh\nread line\n")?;
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755))?;
    let child = Command::new(&script)
        .stdin(std::process::Stdio::piped())
        .spawn()?;
    let child = Killed(child);
    // While it is being executed it has its new name already, but no arguments yet.
    eventually("the script has its arguments", || {
        std::fs::read(format!("/proc/{}/cmdline", child.0.id())).is_ok_and(|line| !line.is_empty())
    })?;
    let scan = scanner()?.scan()?;
    assert!(!scan.starting.contains(&child.0.id()));
    Ok(())
}

#[test]
fn a_server_of_another_user_is_reported_as_hidden() -> anyhow::Result<()> {
    if !geteuid().is_root() {
        println!("skipped: only root can become another user");
        return Ok(());
    }
    let Some(server) = TestServer::start(&redis_server(), &[])? else {
        return Ok(());
    };
    // A thread has credentials of its own; this one gives up root's.
    let scan = std::thread::spawn(|| -> anyhow::Result<Scan> {
        let (nobody, nogroup) = (Uid::from_raw(65534), Gid::from_raw(65534));
        rustix::thread::set_thread_res_gid(nogroup, nogroup, nogroup)?;
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody)?;
        Ok(scanner()?.scan()?)
    })
    .join()
    .map_err(|_| anyhow::anyhow!("the scan panicked"))??;
    let hidden = scan.hidden.iter().find(|hidden| hidden.pid == server.pid);
    assert!(
        hidden.is_some_and(|hidden| hidden.uid == 0 && hidden.why.contains("/exe: run as root")),
        "{scan:?}"
    );
    assert_eq!(find(scan, server.pid), None);
    Ok(())
}
