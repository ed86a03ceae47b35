//! The labels of live servers, in one small file, so that a restarted agent gives them the same labels.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use procfs::sys::kernel::random;
use serde::{Deserialize, Serialize};

use super::folder::Folder;

const NAME: &str = "labels.json";
const FORMAT: u32 = 1;
/// The largest file that is read. A server takes some 70 bytes, one with a long path 250.
const MOST_BYTES: u64 = 4 << 20;

/// What is remembered about a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Labelled {
    /// Its process id.
    pub pid: u32,
    /// When it started, clock ticks since boot.
    pub start_time_ticks: u64,
    /// Its name in metrics.
    pub label: String,
}

impl Labelled {
    /// Returns whether it is about the process with this id that started at this time.
    pub fn is_of(&self, pid: u32, start_time_ticks: u64) -> bool {
        (self.pid, self.start_time_ticks) == (pid, start_time_ticks)
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    format: u32,
    /// The boot that process ids and start times belong to, `/proc/sys/kernel/random/boot_id`.
    boot_id: String,
    servers: Vec<Labelled>,
}

/// The folder that the file is in.
#[derive(Debug)]
pub(super) struct Labels(Folder);

impl Labels {
    /// Returns the file in this folder. Neither need exist.
    pub(super) fn at(folder: &Path) -> Self {
        Self(Folder::at(folder.to_owned()))
    }

    /// Removes unfinished files.
    pub(super) fn prepare(&self) -> io::Result<()> {
        self.0.prepare()
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.path(NAME)
    }

    /// Reads the servers that were live when the file was written; none if there is no file, or after a reboot.
    pub(super) fn read(&self) -> io::Result<Vec<Labelled>> {
        self.read_in(&boot_id()?)
    }

    fn read_in(&self, boot_id: &str) -> io::Result<Vec<Labelled>> {
        let file = match self.0.open(NAME) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?.0,
        };
        let mut text = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut text)?;
        let content: Content = serde_json::from_slice(&text)?;
        match content.format {
            FORMAT if content.boot_id == boot_id => Ok(content.servers),
            FORMAT => Ok(Vec::new()),
            other => Err(io::Error::other(format!("it has the format {other}"))),
        }
    }

    /// Writes the live servers, in place of the previous ones. If it fails, those are kept.
    pub(super) fn write(&self, servers: &[Labelled]) -> io::Result<()> {
        let content = Content { format: FORMAT, boot_id: boot_id()?, servers: servers.to_vec() };
        self.0.write(NAME, &serde_json::to_vec(&content)?)?;
        Ok(())
    }
}

fn boot_id() -> io::Result<String> {
    random::boot_id().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use anyhow::ensure;

    use super::*;

    fn server(pid: u32, label: &str) -> Labelled {
        Labelled { pid, start_time_ticks: 7_000 + u64::from(pid), label: label.to_owned() }
    }

    #[test]
    fn labels_are_there_until_the_next_boot() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let labels = Labels::at(directory.path());
        assert_eq!(labels.read()?, []);
        labels.write(&[server(10, "6379"), server(11, "6379@3601745b3bd5")])?;
        let last = [server(11, "6379@3601745b3bd5"), server(12, "/run/\"a\".sock")];
        labels.write(&last)?;
        assert_eq!(labels.read()?, last);
        // Pids and start times come again.
        assert_eq!(labels.read_in("another")?, []);
        assert_eq!(std::fs::read_dir(directory.path())?.count(), 1);
        Ok(())
    }

    #[test]
    fn what_is_damaged_or_foreign_is_not_read_and_is_replaced() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let labels = Labels::at(directory.path());
        let all = [server(10, "6379")];
        labels.write(&all)?;
        let whole = std::fs::read_to_string(labels.path())?;
        let newer = whole.replace("\"format\":1", "\"format\":2");
        ensure!(newer != whole, "{whole}");
        for text in ["", &whole[..whole.len() - 1], "[]", "{\"format\":1}", &newer] {
            std::fs::write(labels.path(), text)?;
            ensure!(labels.read().is_err(), "{text}");
        }
        labels.write(&all)?;
        assert_eq!(labels.read()?, all);
        std::fs::remove_file(labels.path())?;
        std::os::unix::fs::symlink("/dev/zero", labels.path())?;
        ensure!(labels.read().is_err());
        labels.write(&all)?;
        assert_eq!(labels.read()?, all);
        Ok(())
    }
}
