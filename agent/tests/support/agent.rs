//! The agent under test.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::scrape::Scrape;
use super::{free_port, within};

/// A running agent that ends when it is dropped.
pub struct Agent {
    child: Child,
    port: u16,
}

/// The agent's command line, to be completed.
pub fn evictscope() -> Command {
    Command::new(env!("CARGO_BIN_EXE_evictscope"))
}

/// The same, as a user without any privilege.
pub fn evictscope_as_nobody() -> Command {
    let mut command = evictscope();
    command.uid(65534).gid(65534);
    command
}

impl Agent {
    /// Starts `evictscope run` with `options` and waits until it is ready.
    pub fn start(options: &[&str]) -> anyhow::Result<Self> {
        Self::start_logging(options, Stdio::inherit())
    }

    /// The same, with its log going to `log`.
    pub fn start_logging(options: &[&str], log: impl Into<Stdio>) -> anyhow::Result<Self> {
        let port = free_port()?;
        let child = evictscope()
            .args(["run", "--listen", &format!("127.0.0.1:{port}")])
            .args(options)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("cannot start evictscope")?;
        let mut agent = Self { child, port };
        within(Duration::from_secs(10), "the agent is ready", || {
            if let Some(status) = agent.child.try_wait()? {
                anyhow::bail!("evictscope ended with {status}");
            }
            Ok(agent.get("/-/ready").ok())
        })?;
        Ok(agent)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The body of a page.
    pub fn get(&self, path: &str) -> anyhow::Result<String> {
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        Ok(ureq::get(&url).call()?.body_mut().read_to_string()?)
    }

    /// What /metrics says now.
    pub fn scrape(&self) -> anyhow::Result<Scrape> {
        Scrape::parse(&self.get("/metrics")?)
    }

    /// What /metrics says once all that happened until now has been read, which is so after three
    /// of the agent's intervals.
    pub fn settled(&self) -> anyhow::Result<Scrape> {
        std::thread::sleep(Duration::from_millis(600));
        self.scrape()
    }

    /// Waits until a server is watched; how long it took.
    pub fn wait_for(&self, server: &str, limit: Duration) -> anyhow::Result<Duration> {
        let (_, took) = within(limit, &format!("server {server} is seen"), || {
            Ok(self.scrape()?.has_server(server).then_some(()))
        })?;
        Ok(took)
    }

    /// Sends a signal and waits for the end: how it ended, and how long it took.
    pub fn end(&mut self, signal: Signal) -> anyhow::Result<(ExitStatus, Duration)> {
        let begun = Instant::now();
        kill(Pid::from_raw(self.child.id().try_into()?), signal)?;
        let status = self.child.wait()?;
        Ok((status, begun.elapsed()))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
