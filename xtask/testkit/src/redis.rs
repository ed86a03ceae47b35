//! A throw-away redis-server, what it says about itself, and executables of which this process starts servers.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::loopback::free_port;
use crate::process::{self, Owned};
use crate::root;
use crate::threads::SchedulerTimes;
use crate::wait::until_true;

/// How long giving keys a time to live may take: they expire this long after it began.
const TO_EXPIRE: Duration = Duration::from_secs(5);

/// How long an answer may take, in seconds: on a busy machine, several turns of the event loop of a server that
/// [`EVICTING_WITHOUT_PAUSE`] stalls.
const MOST_SECONDS: &str = "60";

/// A load that stalls the clients of a full server, on any machine: evictions leave it time for nothing else, because
/// the clients send pipelined `SET`s without a pause. A turn of its event loop has 27,000 evictions, and its requests
/// are answered only at its end: after 0.3 s with `maxmemory-samples` 64, or 3 s with 1,000. All but the first 0.1 s is
/// a stall.
pub const EVICTING_WITHOUT_PAUSE: &str = "-t set -d 500 -r 10000000 -c 900 -P 30 -n 100000000";

/// A running redis-server, which is killed when this is dropped.
pub struct Redis {
    // Before the directory, because fields are dropped in this order.
    process: Owned,
    port: u16,
    _directory: TempDir,
    /// Its executable, if that has a name of its own.
    own: Option<PrivateBuild>,
}

impl Deref for Redis {
    type Target = Owned;

    fn deref(&self) -> &Owned {
        &self.process
    }
}

impl Redis {
    /// Starts the `redis-server` on `PATH` with these options, and waits until it answers. Unless the options say
    /// otherwise, it has a limit of 64 MB, evicts by allkeys-lru, and saves nothing.
    pub fn start(options: &[&str]) -> Result<Self> {
        Self::start_program(Command::new("redis-server"), options)
    }

    /// Starts a copy of the `redis-server` on `PATH`, which only the agents of this process look for.
    pub fn private(options: &[&str]) -> Result<Self> {
        Self::private_of(&executable()?, options)
    }

    /// Starts a copy of this executable, which only the agents of this process look for.
    pub fn private_of(executable: &Path, options: &[&str]) -> Result<Self> {
        let own = PrivateBuild::of(executable)?;
        let mut redis = own.start(options)?;
        redis.own = Some(own);
        Ok(redis)
    }

    /// Does the same with the `redis-server` on `PATH`, on this port, which must be free.
    pub fn private_on(port: u16, options: &[&str]) -> Result<Self> {
        let own = PrivateBuild::of_redis()?;
        let mut redis = Self::start_program_on(Command::new(own.path()), port, options)?;
        redis.own = Some(own);
        Ok(redis)
    }

    /// Starts another redis-server, or starts it in another way.
    pub fn start_program(program: Command, options: &[&str]) -> Result<Self> {
        Self::start_program_on(program, free_port()?, options)
    }

    fn start_program_on(mut program: Command, port: u16, options: &[&str]) -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
        program
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .args(["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"])
            // If an option is given twice, redis-server takes the last.
            .args(options)
            .current_dir(directory.path());
        let redis = Self {
            process: Owned::start(&mut program).context("`cargo xtask setup` installs redis-server")?,
            port,
            _directory: directory,
            own: None,
        };
        let is_up = || Ok(redis.cli(&["ping"]).ok().filter(|pong| pong == "PONG\n"));
        redis.process.until("redis-server answers", is_up)?;
        Ok(redis)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn name(&self) -> String {
        self.port.to_string()
    }

    pub fn main_thread_times(&self) -> Result<SchedulerTimes> {
        SchedulerTimes::of(self.pid(), self.pid())
    }

    pub fn kill(&self) -> Result<()> {
        self.process.end(Signal::KILL).map(drop)
    }

    /// Returns what redis-cli prints for a command, unless the server answers with an error or hangs.
    pub fn cli(&self, arguments: &[&str]) -> Result<String> {
        // `timeout` also keeps it from the terminal's Ctrl-C, because it leads a process group of its own.
        let mut client = Command::new("timeout");
        client.args([MOST_SECONDS, "redis-cli", "-e", "-p", &self.port.to_string()]);
        process::answer_of(client.args(arguments))
    }

    pub fn config_set(&self, directive: &str, value: &str) -> Result<()> {
        let answer = self.cli(&["config", "set", directive, value])?;
        ensure!(answer.trim() == "OK", "CONFIG SET {directive} {value}: {answer}");
        Ok(())
    }

    pub fn all_info(&self) -> Result<InfoAnswer> {
        Ok(InfoAnswer(self.cli(&["info", "all"])?))
    }

    pub fn info(&self, field: &str) -> Result<f64> {
        self.all_info()?.number(field)
    }

    /// Returns a redis-benchmark of this server, not started yet. Spaces separate its arguments.
    pub fn benchmark(&self, arguments: &str) -> Command {
        let mut command = Command::new("redis-benchmark");
        command.args(["-p", &self.port.to_string(), "-q"]).args(arguments.split(' '));
        command
    }

    /// Starts the same, which is killed when the result is dropped.
    pub fn load(&self, arguments: &str) -> Result<Owned> {
        Owned::start(&mut self.benchmark(arguments))
    }

    /// Writes `requests` random keys of 500 bytes, so that the server has to evict, and waits until it has. If a call
    /// stops at its time limit, a timer continues it, before the next command or the one after that.
    pub fn write_keys(&self, requests: u32) -> Result<()> {
        let load = format!("-t set -d 500 -r 10000000 -P 4 -n {requests}");
        process::answer_of(&mut self.benchmark(&load))?;
        let mut before = None;
        until_true("the server stops evicting", || {
            let evicted = self.info("evicted_keys")?;
            Ok(before.replace(evicted) == Some(evicted))
        })
    }

    /// Writes this many keys, most of which expire at the same moment, and waits until none that can expire is left.
    /// With 20,000 of them and `hz` at 500, expire cycles reach their time limit.
    pub fn expire_keys(&self, keys: u32) -> Result<()> {
        let among = format!("-r {keys} -P 100");
        // More requests than keys, because they choose at random.
        let write = format!("-n {} {among} set short:__rand_int__ x", 6 * keys);
        process::answer_of(&mut self.benchmark(&write))?;
        let moment = (SystemTime::now() + TO_EXPIRE).duration_since(SystemTime::UNIX_EPOCH)?.as_millis();
        // Fewer of these, because the last must arrive before that moment, even on a busy machine.
        let expire = format!("-n {} {among} pexpireat short:__rand_int__ {moment}", 2 * keys);
        process::answer_of(&mut self.benchmark(&expire))?;
        until_true("all keys expire", || {
            let keys = self.cli(&["info", "keyspace"])?;
            Ok(!keys.contains("expires=") || keys.contains("expires=0"))
        })
    }

    /// Looks up a key that exists, twice, and one that does not.
    pub fn look_up(&self) -> Result<()> {
        self.cli(&["set", "there", "x"])?;
        for key in ["there", "there", "not-there"] {
            self.cli(&["get", key])?;
        }
        Ok(())
    }

    /// Makes `requests` writes to random ones of `keys` keys, of 100 bytes each.
    pub fn set_keys(&self, keys: u32, requests: u32) -> Result<()> {
        process::answer_of(&mut self.benchmark(&sets(keys, requests))).map(drop)
    }

    /// Returns the counters of commands by `INFO commandstats`.
    pub fn counts_by_command(&self) -> Result<CountsByCommand> {
        let info = self.cli(&["info", "commandstats"])?;
        let lines = info.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(':'));
        let counts = lines.filter(|(command, _)| *command != "info").map(|(command, fields)| {
            let field = |name| fields.split(',').find_map(|field| field.strip_prefix(name)?.trim().parse().ok());
            let names = ["calls=", "usec=", "rejected_calls=", "failed_calls="];
            (command.to_owned(), names.map(|name| field(name).unwrap_or(0)))
        });
        Ok(counts.collect())
    }
}

/// Returns the arguments of pipelined `SET`s from 20 connections.
pub fn sets(keys: u32, requests: u32) -> String {
    format!("-t set -d 100 -c 20 -P 16 -r {keys} -n {requests}")
}

/// Calls, microseconds, and rejected and failed calls of each command but `INFO`, which is counted when it has ended.
pub type CountsByCommand = BTreeMap<String, [u64; 4]>;

pub struct InfoAnswer(pub String);

impl InfoAnswer {
    pub fn number(&self, field: &str) -> Result<f64> {
        let mut lines = self.0.lines();
        let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let value = value.with_context(|| format!("INFO has no {field}"))?;
        value.trim().parse().with_context(|| format!("INFO {field} is {value}"))
    }
}

pub fn executable() -> Result<PathBuf> {
    let program = which::which("redis-server");
    let program = program.context("redis-server is not on PATH; `cargo xtask setup` installs it")?;
    program.canonicalize().context("redis-server is a broken link")
}

pub(crate) const MATCH_OPTION: &str = "--process-match";

static MADE: AtomicU32 = AtomicU32::new(0);

pub fn prefix() -> String {
    format!("own-{}-", std::process::id())
}

/// Returns the option by which an agent watches all servers of this process, and no others.
pub fn match_private() -> String {
    format!("{MATCH_OPTION}=^{}", prefix())
}

/// A copy of a server's executable under a name of its own, which only the agents of this process look for. It is
/// deleted when this is dropped.
pub struct PrivateBuild {
    directory: TempDir,
    name: String,
    /// The root directory in which its servers run, if that is not this machine's.
    root: Option<PathBuf>,
}

impl PrivateBuild {
    pub fn of_redis() -> Result<Self> {
        Self::of(&executable()?)
    }

    pub fn of(executable: &Path) -> Result<Self> {
        Self::in_root(executable, None)
    }

    /// Copies an executable into another root directory, if one is given. Its servers run there, which needs root.
    pub fn in_root(executable: &Path, root: Option<&Path>) -> Result<Self> {
        let own = Self {
            directory: root.map_or_else(tempfile::tempdir, tempfile::tempdir_in)?,
            name: format!("{}{}", prefix(), MADE.fetch_add(1, Ordering::Relaxed)),
            root: root.map(Path::to_owned),
        };
        own.replace(executable)?;
        Ok(own)
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    /// Returns the option by which an agent watches the servers of this file, and of files with its name and an
    /// extension.
    pub fn only(&self) -> String {
        format!("{MATCH_OPTION}=^{}(\\.|$)", self.name)
    }

    /// Puts a copy of another executable in its place, as a package manager does: running programs keep the old file.
    pub fn replace(&self, executable: &Path) -> Result<()> {
        let new = self.directory.path().join("new");
        copy_program(executable, &new)?;
        Ok(fs::rename(new, self.path())?)
    }

    pub fn start(&self, options: &[&str]) -> Result<Redis> {
        let Some(root) = &self.root else {
            return Redis::start_program(Command::new(self.path()), options);
        };
        let inside = Path::new("/").join(self.directory.path().strip_prefix(root)?);
        let program = root::enter(root, &inside.join(&self.name).to_string_lossy());
        let directory = inside.to_string_lossy();
        // A server in another root starts in `/`.
        Redis::start_program(program, &[&["--dir", &*directory], options].concat())
    }
}

/// Copies a file to `to`, and makes it executable. Another process does it. If this one had the copy open for writing
/// while another of its threads started a program, the child process would have it open too until it executes that
/// program, and the copy could not be executed meanwhile (ETXTBSY).
pub fn copy_program(from: &Path, to: &Path) -> Result<()> {
    let mut install = Command::new("install");
    process::answer_of(install.args(["--mode", "755", "--no-target-directory"]).arg(from).arg(to)).map(drop)
}
