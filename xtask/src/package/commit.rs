//! The commit that is packed: what the agent says it was built from, and the time in the packages. And the commands
//! that make the same bytes from it each time.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context as _, Result};
use evictscope_testkit::{process, wait, workspace};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The variable with the time of a reproducible build, in seconds since 1970.
const EPOCH: &str = "SOURCE_DATE_EPOCH";

pub struct Commit {
    /// The first twelve digits, with `-modified` if the files differ from the commit. `None` without a repository.
    pub name: Option<String>,
    /// The time of the commit, or the one that the caller has set; without a repository, the time of packing.
    pub time: Timestamp,
}

impl Commit {
    pub fn of_checkout() -> Result<Self> {
        let describe = ["describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=-modified"];
        Ok(Self { name: is_repository().then(|| git(&describe)).transpose()?, ..Self::unnamed()? })
    }

    /// Asks git for the time alone, for an agent that names no commit.
    pub fn unnamed() -> Result<Self> {
        let seconds = match std::env::var(EPOCH) {
            Ok(set) => set.parse().with_context(|| format!("{EPOCH} is not a number of seconds: {set}"))?,
            Err(_) if is_repository() => git(&["log", "-1", "--format=%ct"])?.parse().context("git reports no time")?,
            Err(_) => wait::unix_time()? as i64,
        };
        Ok(Self { name: None, time: Timestamp::from_second(seconds).context("the time of the commit is wrong")? })
    }

    /// Returns the variables that make the agent name this commit.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let date = self.time.to_zoned(TimeZone::UTC).date().to_string();
        match &self.name {
            Some(name) => vec![("EVICTSCOPE_COMMIT", name.clone()), ("EVICTSCOPE_COMMIT_DATE", date)],
            None => Vec::new(),
        }
    }

    /// Returns a command for a tool that makes the same bytes from the same commit.
    pub fn reproducibly(&self, tool: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(tool);
        command.current_dir(workspace::root()).env(EPOCH, self.time.as_second().to_string());
        command
    }
}

/// Returns a `tar` that makes the same bytes from the same files.
pub fn tar(commit: &Commit) -> Command {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        .arg(format!("--mtime=@{}", commit.time.as_second()));
    tar
}

fn is_repository() -> bool {
    workspace::root().join(".git").exists()
}

pub fn git(arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.current_dir(workspace::root()).args(arguments);
    Ok(process::answer_of(&mut command)?.trim_end().to_owned())
}
