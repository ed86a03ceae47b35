//! A throw-away redis-server, and what it says of itself.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use super::{free_port, within};

/// A running redis-server that ends when it is dropped.
pub struct Redis {
    child: Child,
    /// TCP port, which is also its name in the metrics.
    pub port: u16,
    _directory: TempDir,
}

impl Redis {
    /// Starts Debian's redis-server with a limit of 64 MB, allkeys-lru and no persistence;
    /// `options` are appended to its command line.
    pub fn start(options: &[&str]) -> anyhow::Result<Self> {
        Self::start_program(Command::new("redis-server"), options)
    }

    /// Starts another redis-server, or another way to start it.
    pub fn start_program(mut program: Command, options: &[&str]) -> anyhow::Result<Self> {
        let port = free_port()?;
        let directory = tempfile::tempdir()?;
        let child = program
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
            ])
            .args(["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"])
            .args(options)
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start redis-server; `cargo xtask setup` installs it")?;
        let redis = Self {
            child,
            port,
            _directory: directory,
        };
        within(Duration::from_secs(10), "redis-server answers", || {
            Ok(redis
                .cli(&["ping"])
                .ok()
                .filter(|answer| answer.trim() == "PONG"))
        })?;
        Ok(redis)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its name in the metrics.
    pub fn name(&self) -> String {
        self.port.to_string()
    }

    /// What redis-cli prints for a command.
    pub fn cli(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = Command::new("redis-cli")
            .args(["-p", &self.port.to_string()])
            .args(arguments)
            .output()
            .context("cannot run redis-cli; `cargo xtask setup` installs it")?;
        ensure!(
            output.status.success(),
            "redis-cli {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Changes one directive.
    pub fn config_set(&self, directive: &str, value: &str) -> anyhow::Result<()> {
        let answer = self.cli(&["config", "set", directive, value])?;
        ensure!(
            answer.trim() == "OK",
            "CONFIG SET {directive} {value}: {answer}"
        );
        Ok(())
    }

    /// One number of `INFO`.
    pub fn info(&self, field: &str) -> anyhow::Result<f64> {
        let all = self.cli(&["info", "everything"])?;
        let value = all
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let value = value.with_context(|| format!("INFO has no {field}"))?;
        value
            .trim()
            .parse()
            .with_context(|| format!("INFO {field} is {value}"))
    }

    /// A redis-benchmark of this server that has not been started yet.
    pub fn benchmark(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("redis-benchmark");
        command
            .args(["-p", &self.port.to_string(), "-q"])
            .args(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Writes `requests` random keys of 500 bytes, so that the server has to evict.
    pub fn write_keys(&self, requests: u32) -> anyhow::Result<()> {
        let requests = requests.to_string();
        let status = self
            .benchmark(&[
                "-t", "set", "-d", "500", "-r", "10000000", "-P", "4", "-n", &requests,
            ])
            .status()?;
        ensure!(status.success(), "redis-benchmark: {status}");
        Ok(())
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.kill();
    }
}

/// The executable file behind `redis-server`.
pub fn executable() -> anyhow::Result<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join("redis-server"))
        .find(|candidate| candidate.is_file())
        .context("redis-server is not on PATH; `cargo xtask setup` installs it")?
        .canonicalize()
        .context("redis-server is a broken link")
}

/// A command that starts a copy of redis-server under the name `name`.
pub fn copy_to(directory: &Path, name: &str) -> anyhow::Result<Command> {
    let copy = directory.join(name);
    std::fs::copy(executable()?, &copy)?;
    Ok(Command::new::<&OsStr>(copy.as_ref()))
}
