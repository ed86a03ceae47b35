//! Tells whether the OOM killer has killed a process, and for whose want of memory, by the kernel's counters before and
//! after.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::quota::files;

/// How long ago the host's counter may have risen for a process that ends now. The kernel counts before a process ends,
/// which may take it a while.
const RECENT: Duration = Duration::from_secs(15);

/// The counter of processes that the OOM killer has killed on this host, for whatever reason.
#[derive(Clone, Copy, Debug)]
pub struct HostKills {
    count: Option<u64>,
    rose: Option<Instant>,
}

impl HostKills {
    /// Begins to follow it.
    pub fn new() -> Self {
        Self { count: read(), rose: None }
    }

    /// Reads it again.
    pub fn follow(&mut self) {
        let count = read();
        if (count.zip(self.count)).is_some_and(|(now, before)| now > before) {
            self.rose = Some(Instant::now());
        }
        self.count = count.or(self.count);
    }

    /// Returns whether it rose of late.
    pub fn rose(&self) -> bool {
        self.rose.is_some_and(|rose| rose.elapsed() < RECENT)
    }

    /// Returns what it was when last read.
    pub fn count(&self) -> Option<u64> {
        self.count
    }
}

impl Default for HostKills {
    fn default() -> Self {
        Self::new()
    }
}

fn read() -> Option<u64> {
    value(&fs::read_to_string("/proc/vmstat").ok()?, "oom_kill")
}

fn value(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|line| line.0 == name)?.1.trim().parse().ok()
}

/// The control group of a process, and its counters as they were.
#[derive(Debug)]
pub struct OomGroup {
    /// Its own file, then those of the groups above it.
    files: Vec<PathBuf>,
    before: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Processes of the group that were killed.
    killed: Option<u64>,
    /// How often the group, or one above it, was at its limit: of cgroup v1 also where memory could be reclaimed.
    limit: Option<u64>,
}

impl OomGroup {
    /// Finds that of a running process, and reads its counters.
    pub fn of(pid: u32) -> Self {
        let names = ["memory.events", "memory.oom_control"];
        let files = files(pid, "memory", &names).unwrap_or_default();
        let before = counts(&files);
        Self { files, before }
    }

    /// Reads the counters again: those of an earlier kill say nothing of a later one.
    pub fn follow(&mut self) {
        self.before = counts(&self.files);
    }

    /// Returns whether a process of the group was killed since, and whether the group, or one above it, was at its
    /// limit; each `None` if that cannot be read.
    pub fn killed(&self) -> (Option<bool>, Option<bool>) {
        let now = counts(&self.files);
        let rose = |before: Option<u64>, now: Option<u64>| Some(now? > before?);
        (rose(self.before.killed, now.killed), rose(self.before.limit, now.limit))
    }
}

fn counts(files: &[PathBuf]) -> Counts {
    let text = |file: &PathBuf| fs::read_to_string(file).ok();
    let own = files.first().and_then(text);
    let limits = files.iter().filter_map(|file| {
        // `memory.oom_control` of cgroup v1 has no count of its own for that.
        let failures = || fs::read_to_string(file.with_file_name("memory.failcnt"));
        let failures = || failures().ok()?.trim().parse().ok();
        value(&text(file)?, "oom").or_else(failures)
    });
    Counts { killed: own.and_then(|own| value(&own, "oom_kill")), limit: limits.reduce(u64::wrapping_add) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_before_and_after_tell_who_was_killed_and_why() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let (own, above) = (directory.path().join("own"), directory.path().join("above"));
        let group = |file: &PathBuf, oom: u64, killed: u64| {
            fs::write(file, format!("low 0\nmax 40\noom {oom}\noom_kill {killed}\n"))
        };
        group(&own, 1, 1)?;
        group(&above, 3, 7)?;
        let files = vec![own.clone(), above.clone()];
        let before = counts(&files);
        let mut watched = OomGroup { files, before };
        // Another group below the same one.
        group(&above, 4, 8)?;
        assert_eq!(watched.killed(), (Some(false), Some(true)));
        watched.follow();
        // The host has no memory left.
        group(&own, 1, 2)?;
        assert_eq!(watched.killed(), (Some(true), Some(false)));
        group(&above, 5, 9)?;
        assert_eq!(watched.killed(), (Some(true), Some(true)));
        // The container has gone.
        fs::remove_file(&own)?;
        assert_eq!(watched.killed().0, None);
        Ok(())
    }

    #[test]
    fn version_1_counts_in_two_files() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let own = directory.path().join("memory.oom_control");
        let group = |failures: u64, killed: u64| {
            fs::write(directory.path().join("memory.failcnt"), format!("{failures}\n"))?;
            fs::write(&own, format!("oom_kill_disable 0\nunder_oom 0\noom_kill {killed}\n"))
        };
        group(2, 0)?;
        let files = vec![own.clone()];
        let watched = OomGroup { before: counts(&files), files };
        group(9, 1)?;
        assert_eq!(watched.killed(), (Some(true), Some(true)));
        Ok(())
    }
}
