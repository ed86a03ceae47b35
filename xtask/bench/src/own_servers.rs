//! Servers that the agent of a benchmark watches, and no others of this host.

use std::{os::unix::fs::symlink, path::PathBuf, process::Command};

use anyhow::{Context as _, Result};
use evictscope_testkit::{agent::Agent, redis::Redis, wait::until};
use tempfile::TempDir;

use crate::page::Page;

/// A redis-server with a name that no other process of this host has.
pub struct OwnServers {
    _directory: TempDir,
    program: PathBuf,
}

impl OwnServers {
    /// Makes a link of that name to the redis-server on `PATH`, which goes with this.
    pub fn link() -> Result<Self> {
        let server = which::which("redis-server").context("no redis-server on PATH")?;
        let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
        let program = directory.path().join(name());
        symlink(server, &program).with_context(|| format!("cannot make {}", program.display()))?;
        Ok(Self {
            _directory: directory,
            program,
        })
    }

    /// Returns a command that runs it.
    pub fn command(&self) -> Command {
        Command::new(&self.program)
    }

    /// Starts one with these options.
    pub fn start(&self, options: &[&str]) -> Result<Redis> {
        Redis::start_program(self.command(), options)
    }

    /// Returns what the agent's `--process-match` has to be.
    pub fn matches(&self) -> String {
        format!("^{}$", name())
    }

    /// Waits until there are series about this many servers.
    pub fn wait_until_watched(
        &self,
        agent: &Agent,
        count: usize,
        go_on: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let what = format!("evictscope watches {count} servers");
        until(&what, || {
            go_on()?;
            let page = Page::parse(&agent.get("/metrics")?)?;
            Ok((page.servers() == count).then_some(()))
        })
    }
}

/// Not longer than the kernel's name for a process.
fn name() -> String {
    format!("bench{}", std::process::id())
}
