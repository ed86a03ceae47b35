//! The agent, running.

use std::{
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    burst::Burst, http::Http, owned::Owned, port::free_port, redis::Redis, scrape::Scrape,
    service::Installed, wait::within,
};

/// How long the agent may take until it is ready.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// How long one answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The variable that says where an agent keeps what it writes.
pub const STATE_DIRECTORY: &str = "STATE_DIRECTORY";
/// A directory that cannot be made: nothing of a test lands in that of the host's own agent.
pub const NO_STATE: &str = "/dev/null/none";

/// The user `nobody`.
const NOBODY: u32 = 65534;

/// The variable that says which agent a test of the agent starts.
pub const AGENT: &str = "EVICTSCOPE_AGENT";
/// The variable in which cargo says which one was built with the test.
const BUILT_WITH_TEST: &str = "CARGO_BIN_EXE_evictscope";

/// Returns the agent's program in a test of the agent.
pub fn evictscope() -> Command {
    let mut named = [AGENT, BUILT_WITH_TEST]
        .into_iter()
        .filter_map(std::env::var_os);
    let mut command = Command::new(named.next().unwrap_or_else(|| "evictscope".into()));
    command.env(STATE_DIRECTORY, NO_STATE);
    command
}

/// Returns the same, as a user without any privilege.
pub fn evictscope_without_privileges() -> Command {
    let mut command = evictscope();
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// An agent that a developer task can start.
#[derive(Clone, Debug)]
pub enum Program {
    /// This executable, as the user of the task.
    Built(PathBuf),
    /// The installed one, with the user and the capabilities of its unit.
    Installed(Installed),
}

impl Program {
    /// Returns the command `evictscope run`.
    pub fn run(&self) -> Command {
        match self {
            Self::Built(_) => self.command("run"),
            Self::Installed(installed) => installed.start(&[]),
        }
    }

    /// Returns a command that needs no capability, such as `evictscope compare`.
    pub fn command(&self, name: &str) -> Command {
        let mut command = match self {
            Self::Built(binary) => Command::new(binary),
            Self::Installed(_) => Command::new("evictscope"),
        };
        command.arg(name);
        command
    }
}

/// Makes a directory for what an agent keeps, whichever user it runs as.
fn state_directory() -> Result<TempDir> {
    let directory = tempfile::tempdir().context("cannot make a state directory")?;
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777))?;
    Ok(directory)
}

/// A running agent, which is killed when this is dropped.
pub struct Agent {
    process: Owned,
    http: Http,
    /// What it keeps goes with it, unless the options say otherwise.
    state: TempDir,
}

impl Agent {
    /// Starts the agent that belongs to this test with these options of `evictscope run`, and waits until it
    /// is ready.
    pub fn start(options: &[&str]) -> Result<Self> {
        let mut run = evictscope();
        run.arg("run");
        Self::start_command(run, free_port()?, options)
    }

    /// Starts an agent by another command that ends in `evictscope run`, on this loopback port.
    pub fn start_command(mut run: Command, port: u16, options: &[&str]) -> Result<Self> {
        let state = state_directory()?;
        run.arg(format!("--listen=127.0.0.1:{port}"))
            .env(STATE_DIRECTORY, state.path())
            .args(options);
        let agent = Self {
            process: Owned::start(&mut run)?,
            http: Http::new(port, ANSWER_TIMEOUT),
            state,
        };
        agent
            .process
            .until(START_TIMEOUT, "evictscope is ready", || {
                Ok(agent.http.get("/-/ready").ok())
            })?;
        Ok(agent)
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns the directory in which it keeps what it writes.
    pub fn state(&self) -> &Path {
        self.state.path()
    }

    /// Returns what it has logged.
    pub fn log(&self) -> Result<String> {
        self.process.log()
    }

    /// Returns the address of its metrics.
    pub fn metrics_url(&self) -> String {
        self.http.url("/metrics")
    }

    /// Returns the text of a page.
    pub fn get(&self, path: &str) -> Result<String> {
        let page = self.http.get(path);
        if page.is_err() {
            // With its log, this is the better reason.
            self.process.must_be_alive()?;
        }
        page
    }

    /// Returns what /metrics says now.
    pub fn scrape(&self) -> Result<Scrape> {
        Scrape::parse(&self.get("/metrics")?)
    }

    /// Returns what /metrics says once the agent has read all that happened until now, which takes it three
    /// of its intervals at most.
    pub fn settled(&self) -> Result<Scrape> {
        thread::sleep(Duration::from_millis(600));
        self.scrape()
    }

    /// Returns what /metrics says about one server now.
    pub fn reading(&self, redis: &Redis) -> Result<Scrape> {
        Ok(self.scrape()?.of_server(redis.port(), redis.pid()))
    }

    /// Waits until it watches a server, 15 s at most.
    pub fn watches(&self, redis: &Redis) -> Result<()> {
        let is_seen = || Ok((!self.reading(redis)?.is_empty()).then_some(()));
        self.process
            .until(START_TIMEOUT, "evictscope shows the server", is_seen)
    }

    /// Returns the server's finished bursts, the oldest first.
    pub fn bursts(&self, redis: &Redis) -> Result<Vec<Burst>> {
        let all = Burst::all(&self.get("/api/v1/bursts")?)?;
        let names = [redis.name(), format!("{}@{}", redis.name(), redis.pid())];
        let own = all.into_iter();
        Ok(own.filter(|burst| names.contains(&burst.server)).collect())
    }

    /// Waits until a server is watched, and returns how long that took.
    pub fn wait_for(&self, server: &str, limit: Duration) -> Result<Duration> {
        let what = format!("evictscope shows server {server}");
        let is_seen = || Ok(self.scrape()?.has_server(server).then_some(()));
        Ok(within(limit, &what, is_seen)?.1)
    }

    /// Sends a signal, waits for the end and returns how it ended.
    pub fn end(&self, signal: Signal) -> Result<ExitStatus> {
        self.process.end(signal)
    }
}
