//! A throw-away redis-server, and how many `SET`s it answers.

use std::{
    fs::File,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    ops::Range,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use crate::{
    owned::{self, Owned},
    schedstat::{self, ThreadTimes},
};

/// How long a server may take to listen; it has nothing to load.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Below the kernel's range for connections (`net.ipv4.ip_local_port_range`), as it is by default.
const LATER: Range<u16> = 20_000..32_768;

/// A port on the loopback interface that nobody listens on now.
pub fn free_port() -> Result<u16> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot find a free loopback port")?;
    Ok(listener.local_addr()?.port())
}

/// The same for one who will listen only later: outside of the range from which the kernel gives ports
/// to connections, of which there may be thousands until then.
pub fn port_for_later() -> Result<u16> {
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    // Another one of these programs begins elsewhere.
    let own = std::process::id() as usize % LATER.len();
    LATER
        .cycle()
        .skip(own)
        .take(LATER.len())
        .find(is_free)
        .context("cannot find a free loopback port below 32768")
}

/// A redis-server of our own: on loopback, in a temporary directory, without persistence.
pub struct Server {
    // Before the directory, because fields are dropped in this order.
    process: Owned,
    directory: TempDir,
    port: u16,
}

impl Server {
    /// Starts a redis-server with this `maxmemory`, evicting by allkeys-lru, and waits until it listens.
    pub fn start_program(program: &Path, maxmemory: &str) -> Result<Self> {
        Self::spawn(program, maxmemory, &[])
    }

    /// The same with the `redis-server` on `PATH`, and further options of it.
    pub fn start_with(maxmemory: &str, options: &[&str]) -> Result<Self> {
        Self::spawn(Path::new("redis-server"), maxmemory, options)
    }

    fn spawn(program: &Path, maxmemory: &str, options: &[&str]) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("evictscope-server-")
            .tempdir()
            .context("cannot make a temporary directory")?;
        let port = free_port()?;
        let log = File::create(directory.path().join("redis.log"))
            .context("cannot make the log file of redis-server")?;
        let mut command = Command::new(program);
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args([
                "--maxmemory",
                maxmemory,
                "--maxmemory-policy",
                "allkeys-lru",
            ])
            .args([
                "--save",
                "",
                "--appendonly",
                "no",
                "--daemonize",
                "no",
                "--dir",
            ])
            .arg(directory.path())
            .args(options)
            .stdout(log.try_clone()?)
            .stderr(log);
        let mut server = Self {
            process: Owned::start(&mut command)?,
            directory,
            port,
        };
        server.wait_until_it_listens()?;
        Ok(server)
    }

    /// Its TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What its main thread has done since it was started.
    pub fn main_thread_times(&self) -> Result<ThreadTimes> {
        schedstat::of_thread(self.pid(), self.pid())
    }

    /// Fails, with the server's log, if it has ended.
    pub fn must_be_alive(&mut self) -> Result<()> {
        match self.process.ended() {
            Some(status) => bail!(
                "redis-server ended ({status}){}",
                owned::log_text(&self.directory.path().join("redis.log"))
            ),
            None => Ok(()),
        }
    }

    fn wait_until_it_listens(&mut self) -> Result<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let started = Instant::now();
        while started.elapsed() < START_TIMEOUT {
            self.must_be_alive()?;
            if TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        bail!("redis-server does not listen on {address} after {START_TIMEOUT:?}")
    }
}

/// Pipelined `SET`s of 100 bytes to random ones of `keys` keys, from 20 connections: how many a
/// second the server answered.
pub fn measure_sets(server: &Server, keys: u32, requests: u32) -> Result<f64> {
    let mut command = Command::new("redis-benchmark");
    command
        .args(["-h", "127.0.0.1", "-p", &server.port().to_string(), "--csv"])
        .args(["-t", "set", "-d", "100", "-c", "20", "-P", "16"])
        .args(["-r", &keys.to_string()])
        .args(["-n", &requests.to_string()]);
    let output = command.output().context("cannot run redis-benchmark")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.lines().find_map(|line| {
        line.strip_prefix("\"SET\",\"")?
            .split('"')
            .next()?
            .parse()
            .ok()
    });
    rate.with_context(|| format!("redis-benchmark ({}) gives no rate:\n{text}", output.status))
}
