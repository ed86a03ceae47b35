use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use evictscope_testkit::loopback::free_port;
use evictscope_testkit::process::Owned;
use evictscope_testkit::redis::{Redis, copy_program};
use evictscope_testkit::servers;
use evictscope_testkit::skip::skip;
use evictscope_testkit::wait::until;
use procfs::ProcError;
use rustix::fs::{Gid, Uid};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use super::{Scan, Scanner, ServerProcess};
use crate::scanner::look::{LISTEN, SETTLE, look_into};
use crate::scanner::observed::ObservedProcess;
use crate::{DEFAULT_PATTERN, Exclusion};

/// Allows a server to delete, populate and restart itself.
const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];

fn scanner() -> anyhow::Result<Scanner> {
    let matcher = DEFAULT_PATTERN.parse().map_err(anyhow::Error::msg)?;
    Ok(Scanner::new(matcher))
}

fn find(scan: Scan, pid: u32) -> Option<ServerProcess> {
    scan.servers.into_iter().find(|server| server.identity.pid == pid)
}

fn wait_for(scanner: &mut Scanner, pid: u32) -> anyhow::Result<ServerProcess> {
    until("the server is found", || Ok(find(scanner.scan()?, pid)))
}

fn kill(pid: u32) -> anyhow::Result<()> {
    let pid = Pid::from_raw(pid.cast_signed()).context("no process has number 0")?;
    Ok(kill_process(pid, Signal::KILL)?)
}

fn sleep_named(name: &str) -> anyhow::Result<(TempDir, Command)> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join(name);
    copy_program(Path::new("/bin/sleep"), &path)?;
    Ok((directory, Command::new(path)))
}

/// Does something as a user without any privilege.
fn as_nobody<T: Send>(work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    // A thread has credentials of its own; this one gives up root's.
    let unprivileged = || {
        let (nobody, nogroup) = (Uid::from_raw(65534), Gid::from_raw(65534));
        rustix::thread::set_thread_res_gid(nogroup, nogroup, nogroup)?;
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody)?;
        work()
    };
    std::thread::scope(|scope| scope.spawn(unprivileged).join()).map_err(|_| anyhow::anyhow!("the thread panicked"))?
}

/// Returns whether there is no redis-server, and if so says that the test is skipped.
fn has_no_server() -> anyhow::Result<bool> {
    Ok(servers::find_or_skip(servers::DEBIAN)?.is_none())
}

fn server(options: &[&str]) -> anyhow::Result<Option<Redis>> {
    if has_no_server()? { Ok(None) } else { Redis::start(options).map(Some) }
}

#[test]
fn a_server_that_cannot_be_looked_at_is_there_until_the_kernel_says_that_it_ended() -> anyhow::Result<()> {
    let Some(server) = server(&[])? else { return Ok(()) };
    let mut scanner = scanner()?;
    let found = wait_for(&mut scanner, server.pid())?;
    // As if the last look had taken a minute.
    let (minute, now) = (Duration::from_secs(60), Instant::now());
    scanner.slow.looked(server.pid(), minute, now);
    assert_eq!(find(scanner.scan()?, server.pid()), Some(found.clone()));
    kill(server.pid())?;
    until("it has ended", || Ok(found.handle.has_ended().then_some(())))?;
    assert_eq!(find(scanner.scan()?, server.pid()), None);
    assert!(scanner.slow.rests(server.pid(), Instant::now()));
    Ok(())
}

#[test]
fn a_server_that_may_not_be_looked_at_is_hidden_unless_it_was_found_before() -> anyhow::Result<()> {
    if !geteuid().is_root() {
        return skip("only root can become another user");
    }
    let Some(server) = server(&[])? else { return Ok(()) };
    let mut before = scanner()?;
    let found = wait_for(&mut before, server.pid())?;
    let scan = as_nobody(|| before.scan())?;
    assert!(scan.hidden.iter().all(|hidden| hidden.pid != server.pid()));
    assert_eq!(find(scan, server.pid()), Some(found));
    let scan = as_nobody(|| scanner()?.scan())?;
    let hidden = scan.hidden.iter().find(|hidden| hidden.pid == server.pid());
    assert!(hidden.is_some_and(|hidden| hidden.uid == 0 && hidden.why.contains("run it as root")), "{scan:?}");
    assert_eq!(find(scan, server.pid()), None);
    Ok(())
}

#[test]
fn a_process_that_vanishes_while_it_is_looked_at_is_no_server_and_hides_no_other() -> anyhow::Result<()> {
    let Some(stays) = server(&[])? else { return Ok(()) };
    let (_directory, mut server) = sleep_named("redis-server")?;
    server.arg("60");
    let mut scanner = scanner()?;
    wait_for(&mut scanner, stays.pid())?;
    for _ in 0..5 {
        let mut vanishes = server.spawn()?;
        let pid = vanishes.id();
        std::thread::sleep(SETTLE);
        until("it has its new name", || {
            let comm = std::fs::read_to_string(format!("/proc/{pid}/comm"))?;
            Ok((comm == "redis-server\n").then_some(()))
        })?;
        let candidate = ObservedProcess::of(pid);
        vanishes.kill()?;
        vanishes.wait()?;
        let looked = look_into(&candidate?, Instant::now(), &scanner.exclusions);
        assert!(matches!(looked, Err(ProcError::NotFound(_))));
        let scan = scanner.scan()?;
        assert!(!scan.starting.contains(&pid));
        assert!(find(scan, stays.pid()).is_some());
    }
    Ok(())
}

/// Finds two servers, and returns them and a scanner that excludes servers by `exclusion` of the first.
fn excluding(exclusion: impl Fn(&Redis) -> String) -> anyhow::Result<Option<(Redis, Redis, Scanner)>> {
    if has_no_server()? {
        return Ok(None);
    }
    let (first, second) = (Redis::start(&[])?, Redis::start(&[])?);
    let exclusion: Exclusion = exclusion(&first).parse().map_err(anyhow::Error::msg)?;
    Ok(Some((first, second, scanner()?.excluding(vec![exclusion]))))
}

#[test]
fn an_excluded_server_is_forgotten_when_it_has_ended() -> anyhow::Result<()> {
    let by_port = |redis: &Redis| format!("port={}", redis.port());
    let Some((excluded, other, mut scanner)) = excluding(by_port)? else { return Ok(()) };
    wait_for(&mut scanner, other.pid())?;
    assert_eq!(find(scanner.scan()?, excluded.pid()), None);
    assert!(scanner.excluded.contains_key(&excluded.pid()));
    kill(excluded.pid())?;
    until("it is forgotten", || {
        scanner.scan()?;
        Ok(scanner.excluded.is_empty().then_some(()))
    })
}

#[test]
fn the_servers_of_a_user_are_excluded_even_where_they_cannot_be_looked_into() -> anyhow::Result<()> {
    let by_user = |_: &Redis| format!("user={}", geteuid().as_raw());
    let Some((first, second, mut scanner)) = excluding(by_user)? else { return Ok(()) };
    let scan = move || {
        let scan = scanner.scan()?;
        anyhow::Ok((scan, scanner.excluded.into_keys().collect::<Vec<u32>>()))
    };
    let (scan, excluded) = if geteuid().is_root() { as_nobody(scan)? } else { scan()? };
    for pid in [first.pid(), second.pid()] {
        assert!(excluded.contains(&pid));
        assert!(!scan.hidden.iter().any(|hidden| hidden.pid == pid));
        assert_eq!(find(scan.clone(), pid), None);
    }
    Ok(())
}

#[test]
fn a_server_in_the_background_is_found() -> anyhow::Result<()> {
    if has_no_server()? {
        return Ok(());
    }
    let (directory, port) = (tempfile::tempdir()?, free_port()?);
    let pid_file = directory.path().join("pid");
    let started = Command::new("redis-server")
        .args(["--daemonize", "yes", "--save", "", "--bind", "127.0.0.1"])
        .args(["--port", &port.to_string(), "--pidfile"])
        .arg(&pid_file)
        .status()?;
    assert!(started.success());
    // A server writes the file before it listens.
    let pid = until("the pid file is written and it listens", || {
        let text = std::fs::read_to_string(&pid_file).unwrap_or_default();
        let listens = TcpStream::connect(("127.0.0.1", port)).is_ok();
        Ok(text.trim().parse().ok().filter(|_| listens))
    })?;
    let found = wait_for(&mut scanner()?, pid);
    kill(pid)?;
    assert_eq!(found?.name, port.to_string());
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
    std::thread::sleep(SETTLE);
    let scan = scanner()?.scan()?;
    assert!(!scan.starting.contains(&sentinel.pid()));
    assert_eq!(find(scan, sentinel.pid()), None);
    Ok(())
}

#[test]
fn a_child_that_saves_is_not_a_server() -> anyhow::Result<()> {
    // By its title; and without, where the child has the same title as its parent.
    for options in [&[][..], &["--proc-title-template", "cache {listen-addr}"]] {
        let Some(redis) = server(&[&DEBUG[..], options].concat())? else { return Ok(()) };
        redis.cli(&["DEBUG", "POPULATE", "30000"])?;
        // Microseconds a key: the child lives for ten minutes, unless it is killed.
        redis.config_set("rdb-key-save-delay", "20000")?;
        redis.cli(&["BGSAVE"])?;
        let children = format!("/proc/{0}/task/{0}/children", redis.pid());
        let child: u32 = until("the child runs", || {
            Ok(std::fs::read_to_string(&children)?.split_whitespace().next().and_then(|pid| pid.parse().ok()))
        })?;
        std::thread::sleep(SETTLE);
        let mut scanner = scanner()?;
        // If a look took long, as it may on a busy machine, the next scan has what it found.
        until("the server is found", || {
            let scan = scanner.scan()?;
            assert!(!scan.starting.contains(&child), "{options:?}");
            assert_eq!(find(scan.clone(), child), None, "{options:?}");
            Ok(find(scan, redis.pid()))
        })?;
        let is_running = Path::new(&format!("/proc/{child}")).exists();
        kill(child)?;
        assert!(is_running, "the child ended too soon to tell");
    }
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
    until("the shell becomes a server", || {
        let scan = scanner.scan()?;
        // On a machine so busy that the next scan came late, it is no longer deferred.
        let is_seen = scan.starting.contains(&pid) || find(scan, pid).is_some();
        Ok(is_seen.then_some(()))
    })?;
    assert_eq!(wait_for(&mut scanner, pid)?.name, format!("pid-{pid}"));
    Ok(())
}

#[test]
fn a_server_that_does_not_listen_is_deferred_and_then_goes_by_its_pid() -> anyhow::Result<()> {
    let (_directory, mut server) = sleep_named("redis-server")?;
    let started = Instant::now();
    let child = Owned::start(server.arg("60"))?;
    let pid = child.pid();
    let mut scanner = scanner()?;
    let scan = scanner.scan()?;
    // On a machine so busy that this took longer, it is no longer deferred.
    if started.elapsed() < LISTEN {
        assert!(scan.is_behind || scan.starting.contains(&pid));
        assert_eq!(find(scan, pid), None);
    }
    assert_eq!(wait_for(&mut scanner, pid)?.name, format!("pid-{pid}"));
    Ok(())
}

/// Its arguments begin with those of the loader.
#[test]
fn a_server_that_a_loader_runs_is_reported_as_hidden() -> anyhow::Result<()> {
    let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
    if !loader.exists() {
        return skip(&format!("there is no {}", loader.display()));
    }
    let (_directory, sleep) = sleep_named("redis-server")?;
    let mut command = Command::new(loader);
    command.args(["--inhibit-cache", "--library-path", "/lib"]);
    let server = Owned::start(command.arg(sleep.get_program()).arg("60"))?;
    let mut scanner = scanner()?;
    let hidden = until("it is hidden", || {
        let mut hidden = scanner.scan()?.hidden.into_iter();
        Ok(hidden.find(|hidden| hidden.pid == server.pid()))
    })?;
    assert!(!hidden.is_denied && hidden.why.contains("through"), "{hidden:?}");
    Ok(())
}
