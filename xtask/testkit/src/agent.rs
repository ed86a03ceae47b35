//! The agent, running, and the bursts that it reports.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use evictscope_model::answers::{BurstList, CommandsAnswer, ListedBurst};
use procfs::process::Process;
use tempfile::TempDir;

use crate::loopback::{Http, free_port};
use crate::process::Owned;
use crate::redis::{self, CountsByCommand, Redis};
use crate::scrape::Scrape;
use crate::wait::until;

/// The variable that says where an agent keeps what it writes.
pub const STATE_DIRECTORY: &str = "STATE_DIRECTORY";
/// A directory that cannot be made: no test writes into that of the host's own agent.
pub const NO_STATE: &str = "/dev/null/none";

const OBSERVED: &str = "evictscope_observed_seconds_total";
/// Readings older than this are not exported.
const OLDEST: Duration = Duration::from_secs(5);

const NOBODY: u32 = 65534;

/// The variable that says which agent a test of the agent starts.
pub const AGENT: &str = "EVICTSCOPE_AGENT";
/// The variable in which cargo says which agent was built with the test.
const BUILT_WITH_TEST: &str = "CARGO_BIN_EXE_evictscope";

/// Returns the agent's program in a test of the agent.
pub fn evictscope() -> Command {
    let named = [AGENT, BUILT_WITH_TEST].into_iter().find_map(std::env::var_os);
    let mut command = Command::new(named.unwrap_or_else(|| "evictscope".into()));
    command.env(STATE_DIRECTORY, NO_STATE);
    command
}

/// Returns what `evictscope inspect --json` says about a file or, by its number, a process.
pub fn inspect(target: impl AsRef<OsStr>) -> Result<serde_json::Value> {
    let output = evictscope().args(["inspect", "--json"]).arg(target).output()?;
    serde_json::from_slice(&output.stdout).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Returns the agent's program in a test of the agent, as a user without any privilege.
pub fn evictscope_without_privileges() -> Command {
    let mut command = evictscope();
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

pub struct Agent {
    process: Owned,
    http: Http,
    /// What it keeps goes with it, unless the options say otherwise.
    state: TempDir,
}

impl Deref for Agent {
    type Target = Owned;

    fn deref(&self) -> &Owned {
        &self.process
    }
}

impl Agent {
    /// Starts the agent that belongs to this test with these options of `evictscope run`, and waits until it
    /// is ready. Unless the options say otherwise, it watches the servers of this process alone: what other tests
    /// do meanwhile is not its business.
    pub fn start(options: &[&str]) -> Result<Self> {
        let mut run = evictscope();
        run.arg("run");
        if !options.iter().any(|option| option.starts_with(redis::MATCH_OPTION)) {
            run.arg(redis::match_private());
        }
        Self::start_command(run, free_port()?, options)
    }

    pub fn watching(redis: &Redis, options: &[&str]) -> Result<Self> {
        let agent = Self::start(options)?;
        agent.watches(redis)?;
        Ok(agent)
    }

    /// Starts an agent's executable with these options of `evictscope run`, and waits until it is ready.
    pub fn of(program: &Path, options: &[&str]) -> Result<Self> {
        let mut run = Command::new(program);
        run.arg("run");
        Self::start_command(run, free_port()?, options)
    }

    /// Starts an agent by another command that ends in `evictscope run`, on this loopback port.
    pub fn start_command(mut run: Command, port: u16, options: &[&str]) -> Result<Self> {
        let state = tempfile::tempdir().context("cannot make a state directory")?;
        // Whichever user it runs as.
        fs::set_permissions(state.path(), Permissions::from_mode(0o777))?;
        run.arg(format!("--listen=127.0.0.1:{port}")).env(STATE_DIRECTORY, state.path()).args(options);
        let agent = Self { process: Owned::start(&mut run)?, http: Http::new(port), state };
        agent.process.until("evictscope is ready", || Ok(agent.http.get("/-/ready").ok()))?;
        Ok(agent)
    }

    pub fn thread(&self, name: &str) -> Result<u32> {
        let mut tasks = Process::new(self.pid().try_into()?)?.tasks()?.filter_map(Result::ok);
        let thread = tasks.find(|task| task.stat().is_ok_and(|stat| stat.comm == name));
        Ok(thread.with_context(|| format!("no thread {name}"))?.tid.try_into()?)
    }

    pub fn state(&self) -> &Path {
        self.state.path()
    }

    pub fn metrics_url(&self) -> String {
        self.http.url("/metrics")
    }

    pub fn get(&self, path: &str) -> Result<String> {
        let page = self.http.get(path);
        if page.is_err() {
            // With its log, this is the better reason.
            self.process.must_be_alive()?;
        }
        page
    }

    pub fn scrape(&self) -> Result<Scrape> {
        Scrape::parse(&self.get("/metrics")?)
    }

    /// Returns what /metrics says once the agent has read all that happened in its servers until now.
    pub fn settled(&self) -> Result<Scrape> {
        self.settle(|| self.scrape())
    }

    pub fn settled_reading(&self, redis: &Redis) -> Result<Scrape> {
        self.settle(|| self.reading(redis))
    }

    /// Scrapes until all servers have been read again. Each reading of a server whose calls are observed adds to its
    /// observed time. Two readings of any other server cannot be told apart.
    fn settle(&self, scrape: impl Fn() -> Result<Scrape>) -> Result<Scrape> {
        let observed = |scrape: &Scrape| scrape.by_label(OBSERVED, "server");
        let mut last = scrape()?;
        // What is published next may have been read earlier.
        for _ in 0..2 {
            let before = observed(&last);
            last = until("the agent reads its servers", || {
                let scrape = scrape()?;
                let now = observed(&scrape);
                let is_new = before.iter().all(|(server, seconds)| now.get(server) != Some(seconds));
                Ok(is_new.then_some(scrape))
            })?;
        }
        let observed = observed(&last);
        if last.servers().iter().any(|server| !observed.contains_key(*server)) {
            thread::sleep(OLDEST);
            last = scrape()?;
        }
        Ok(last)
    }

    /// Returns what /metrics says about one server, once it says something: an agent that had no CPU for seconds
    /// exports nothing, because nothing that it knows is new.
    pub fn reading(&self, redis: &Redis) -> Result<Scrape> {
        self.process.until("evictscope shows the server", || Ok(self.scrape()?.of_server(redis.pid()).ok()))
    }

    pub fn watches(&self, redis: &Redis) -> Result<()> {
        self.reading(redis).map(drop)
    }

    /// Returns the server's finished bursts, the oldest first.
    pub fn bursts(&self, redis: &Redis) -> Result<Vec<ListedBurst>> {
        let names = [redis.name(), format!("{}@{}", redis.name(), redis.pid())];
        let list: BurstList = serde_json::from_str(&self.get("/api/v1/bursts")?)
            .context("the agent's bursts are not as docs/METRICS.md describes them")?;
        Ok(list.bursts.into_iter().filter(|burst| names.contains(&burst.server)).collect())
    }

    pub fn commands(&self, redis: &Redis) -> Result<CommandsAnswer> {
        Ok(serde_json::from_str(&self.get(&format!("/api/v1/commands?server={}", redis.name()))?)?)
    }

    /// Returns its counters of commands, once they are what the server says of them.
    pub fn same_counts_by_command(&self, redis: &Redis) -> Result<CountsByCommand> {
        let mut both = None;
        until("both say the same of all commands", || {
            let by_server = redis.counts_by_command()?;
            let CommandsAnswer { commands, other_calls, .. } = self.commands(redis)?;
            let commands = commands.into_iter().filter(|of| of.command != "info");
            let by_agent: CountsByCommand = commands
                .map(|of| (of.command, [of.calls, of.microseconds, of.rejected_calls, of.failed_calls]))
                .collect();
            let is_same = by_agent == by_server && other_calls.is_none_or(|calls| calls == 0);
            both = Some((other_calls, by_agent, by_server.clone()));
            Ok(is_same.then_some(by_server))
        })
        .with_context(|| format!("calls of others, by the agent, and by the server: {both:?}"))
    }

    pub fn wait_for(&self, server: &str) -> Result<()> {
        let is_seen = || Ok(self.scrape()?.has_server(server).then_some(()));
        self.process.until(&format!("evictscope shows server {server}"), is_seen)
    }
}
