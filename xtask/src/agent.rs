//! The agent, run by a task.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use evictscope_testkit::service::Installed;
use tempfile::NamedTempFile;

use crate::{
    owned::{self, Owned},
    redis::{Server, free_port},
    scrape::{Burst, Client, Reading},
};

/// How long the agent may take until it is ready, and until it has found the server.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// An agent that can be started.
#[derive(Clone, Debug)]
pub enum Program {
    /// This executable, as whoever runs the task.
    Built(PathBuf),
    /// The installed one, with the user and the capabilities of its unit.
    Installed(Installed),
}

impl Program {
    /// `evictscope run` with these options.
    fn run(&self, options: &[&str]) -> Command {
        match self {
            Self::Built(binary) => {
                let mut command = Command::new(binary);
                command.arg("run").args(options);
                command
            }
            Self::Installed(installed) => installed.start(options),
        }
    }
}

/// A running agent; dropping it ends it.
pub struct Agent {
    process: Owned,
    log: NamedTempFile,
    client: Client,
}

impl Agent {
    /// Starts `evictscope run` with `options` on a free loopback port.
    pub fn start(binary: &Path, options: &[&str]) -> Result<Self> {
        let program = Program::Built(binary.to_owned());
        Self::start_on(free_port()?, &program, options)
    }

    /// Starts any agent on this loopback port.
    pub fn start_on(port: u16, program: &Program, options: &[&str]) -> Result<Self> {
        let listen = format!("--listen=127.0.0.1:{port}");
        let mut command = program.run(&[&[listen.as_str()], options].concat());
        let log = NamedTempFile::new().context("cannot make the log file of evictscope")?;
        let output: File = log
            .reopen()
            .context("cannot open the log file of evictscope")?;
        command.stdout(output.try_clone()?).stderr(output);
        Ok(Self {
            process: Owned::start(&mut command)?,
            log,
            client: Client::new(port),
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Where its metrics are.
    pub fn metrics_url(&self) -> String {
        self.client.metrics_url()
    }

    /// Waits until the agent is ready and has found the server, or `interrupted` says so.
    pub fn wait_for(&mut self, server: &Server, interrupted: impl Fn() -> bool) -> Result<()> {
        let started = Instant::now();
        let mut ready = false;
        while started.elapsed() < START_TIMEOUT {
            ensure!(!interrupted(), "interrupted");
            ready = ready || self.client.ready();
            if ready && !self.read(server)?.is_empty() {
                return Ok(());
            }
            self.must_be_alive()?;
            thread::sleep(Duration::from_millis(100));
        }
        let failure = if ready {
            "shows nothing of the server"
        } else {
            "is not ready"
        };
        bail!(
            "evictscope {failure} after {START_TIMEOUT:?}{}",
            self.log_text()
        );
    }

    /// What it says of the server now.
    pub fn read(&mut self, server: &Server) -> Result<Reading> {
        let reading = self.client.server(server.port(), server.pid());
        if reading.is_err() {
            self.must_be_alive()?;
        }
        reading
    }

    /// The server's finished bursts, the oldest first.
    pub fn bursts(&mut self, server: &Server) -> Result<Vec<Burst>> {
        let bursts = self.client.bursts(server.port(), server.pid());
        if bursts.is_err() {
            self.must_be_alive()?;
        }
        bursts
    }

    /// Fails, with its log, if it has ended.
    pub fn must_be_alive(&mut self) -> Result<()> {
        match self.process.ended() {
            Some(status) => bail!("evictscope ended ({status}){}", self.log_text()),
            None => Ok(()),
        }
    }

    fn log_text(&self) -> String {
        owned::log_text(self.log.path())
    }
}
