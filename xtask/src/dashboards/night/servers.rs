//! The servers of the night: what each one does, and which alerts are to fire about it.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result};
use evictscope_testkit::{owned::Owned, redis::Redis, wait::within};
use rustix::process::Signal;
use tempfile::TempDir;

/// How long the lab may take until its server is filled and named.
const LAB_BEGINS: Duration = Duration::from_secs(120);
/// The members of the big set: freeing one takes some 200 ns, so this many take longer than the alert on slow calls
/// allows.
const MEMBERS: u32 = 2_000_000;

/// A server in the lab's eviction-burst cycle. Load and server end when this is dropped.
pub struct Cycle {
    lab: Owned,
    /// Its name in the metrics.
    pub server: String,
}

impl Cycle {
    /// Starts it, for at most this time under load.
    pub fn start(load: Duration) -> Result<Self> {
        let mut command =
            Command::new(std::env::current_exe().context("cannot tell which program this is")?);
        let seconds = load.as_secs().to_string();
        let lab = Owned::start(command.args(["lab", "burst", "--seconds", &seconds]))?;
        let (server, _) = within(LAB_BEGINS, "the lab names its server", || {
            lab.must_be_alive()?;
            let log = lab.log()?;
            let named = log.lines().find_map(|line| {
                let (_, address) = line
                    .strip_prefix("redis-server ")?
                    .split_once("127.0.0.1:")?;
                Some(address.split(',').next()?.to_owned())
            });
            Ok(named)
        })?;
        Ok(Self { lab, server })
    }
}

impl Drop for Cycle {
    fn drop(&mut self) {
        // On this signal it ends its server too. Where it has ended already, so has the server.
        let _ = self.lab.end(Signal::INT);
    }
}

/// A server that evicts without end, as fast as it can. Load and server end when this is dropped.
pub struct Endless {
    // Before the server, because fields are dropped in this order.
    _load: Owned,
    server: Redis,
}

impl Endless {
    /// Starts it.
    pub fn start() -> Result<Self> {
        let server = Redis::start(&["--maxmemory-samples", "64"])?;
        let load = server.load(&[
            "-t",
            "set",
            "-d",
            "500",
            "-r",
            "100000000",
            "-P",
            "16",
            "-n",
            "1000000000",
        ])?;
        Ok(Self {
            _load: load,
            server,
        })
    }

    /// Returns its name in the metrics.
    pub fn server(&self) -> String {
        self.server.name()
    }
}

/// Starts a server that holds a big set, the only key that it may evict.
pub fn with_a_big_key() -> Result<Redis> {
    let server = Redis::start(&["--maxmemory", "0", "--maxmemory-policy", "volatile-lru"])?;
    let fill = format!(
        "for i = 1, {MEMBERS} do redis.call('sadd', 'big', 'member:' .. i) end \
         redis.call('expire', 'big', 86400)"
    );
    server.cli(&["eval", &fill, "0"])?;
    Ok(server)
}

/// Lowers its limit, so that it evicts the set in one call.
pub fn evict_the_big_key(server: &Redis) -> Result<()> {
    let limit = server.info("used_memory")? as u64 - (1 << 20);
    server.config_set("maxmemory", &limit.to_string())?;
    server.cli(&["set", "next", "command"])?;
    // Well below the limit from then on.
    server.config_set("maxmemory", "0")
}

/// A server that is full and may not evict: most of its writes fail. Load and server end when this is dropped.
pub struct Full {
    // Before the server, because fields are dropped in this order.
    _writer: Owned,
    server: Redis,
}

impl Full {
    /// Starts it, with a write every tenth of a second for at most this time.
    pub fn start(load: Duration) -> Result<Self> {
        let server = Redis::start(&["--maxmemory", "8mb", "--maxmemory-policy", "noeviction"])?;
        let mut command = Command::new("redis-cli");
        command
            .args(["-p", &server.port().to_string()])
            .args(["-r", &(10 * load.as_secs()).to_string(), "-i", "0.1"])
            .args(["append", "growing"])
            .arg("x".repeat(50_000))
            .stdout(Stdio::null());
        Ok(Self {
            _writer: Owned::start(&mut command)?,
            server,
        })
    }

    /// Returns its name in the metrics.
    pub fn server(&self) -> String {
        self.server.name()
    }
}

/// A program with the name of a server in which nothing can be found. It ends when this is dropped.
pub struct Unwatchable {
    // Before the directory, because fields are dropped in this order.
    _program: Owned,
    _directory: TempDir,
}

impl Unwatchable {
    /// Starts it, for at most this time.
    pub fn start(time: Duration) -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
        let program = directory.path().join("redis-server");
        fs::copy("/bin/sleep", &program).context("cannot copy /bin/sleep")?;
        let started = Owned::start(Command::new(program).arg(time.as_secs().to_string()))?;
        Ok(Self {
            _program: started,
            _directory: directory,
        })
    }
}
