//! What the limits of a process's control groups did to it: for how long its CPU quotas were used up, and whether the
//! OOM killer has killed it, and for whose want of memory, by the kernel's counters before and after.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use procfs::process::{MountInfo, Process};

/// The CPU quotas that apply to a process.
#[derive(Debug)]
pub struct Quotas {
    /// The `cpu.stat` of its control group, and of those above it.
    files: Vec<PathBuf>,
}

impl Quotas {
    /// Finds those of a running process. There are none if its control groups cannot be seen from here, as in a
    /// container that sees only its own. The process's own view is not read: its file systems may never answer.
    pub fn of(pid: u32) -> Self {
        Self { files: files(pid, "cpu", &["cpu.stat"]).unwrap_or_default() }
    }

    /// Returns for how long they have been used up since the groups were created, all groups and CPUs together
    /// (`throttled_usec` of `cgroup-v2.rst`, `throttled_time` of `sched-bwc.rst`). Returns `None` if no group has such
    /// a time.
    pub fn throttled(&self) -> Option<Duration> {
        let times = self.files.iter().filter_map(|file| throttled_in(&fs::read_to_string(file).ok()?));
        times.reduce(|sum, time| sum + time)
    }
}

fn throttled_in(text: &str) -> Option<Duration> {
    let nanos = || value(text, "throttled_time").map(Duration::from_nanos);
    value(text, "throttled_usec").map(Duration::from_micros).or_else(nanos)
}

/// Returns the files of these names in a process's control group of a controller, and in the groups above it.
fn files(pid: u32, controller: &str, names: &[&str]) -> Option<Vec<PathBuf>> {
    let (mount, group) = group_of(pid, controller)?;
    let group: PathBuf = Path::new(&group).components().filter(|part| matches!(part, Component::Normal(_))).collect();
    let groups: Vec<_> = group.ancestors().collect();
    // The last is the root of the hierarchy, which has no limit.
    let (_, groups) = groups.split_last()?;
    let files = groups.iter().flat_map(|group| {
        let group = mount.join(group);
        names.iter().map(move |name| group.join(name))
    });
    Some(files.filter(|file| file.exists()).collect())
}

/// Returns where the hierarchy of a controller is mounted, and the process's group in it.
fn group_of(pid: u32, controller: &str) -> Option<(PathBuf, String)> {
    let groups = Process::new(pid.try_into().ok()?).ok()?.cgroups().ok()?;
    let mounts = Process::myself().ok()?.mountinfo().ok()?;
    groups.into_iter().find_map(|group| {
        let is_its = |mount: &&MountInfo| {
            if group.controllers.iter().any(|name| name == controller) {
                mount.fs_type == "cgroup" && mount.super_options.contains_key(controller)
            } else {
                // cgroup v2 is the last in the list.
                group.hierarchy == 0 && mount.fs_type == "cgroup2"
            }
        };
        Some((mounts.iter().find(is_its)?.mount_point.clone(), group.pathname))
    })
}

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
    pub fn follow(&mut self) {
        let count = host_kills();
        if (count.zip(self.count)).is_some_and(|(now, before)| now > before) {
            self.rose = Some(Instant::now());
        }
        self.count = count.or(self.count);
    }

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
        Self { count: host_kills(), rose: None }
    }
}

fn host_kills() -> Option<u64> {
    value(&fs::read_to_string("/proc/vmstat").ok()?, "oom_kill")
}

/// Returns the number behind a name, on a line of their own.
fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().filter_map(|line| line.split_once(' ')).find(|line| line.0 == name)?.1.trim().parse().ok()
}

/// The control group of a process, and its counters as they were.
#[derive(Debug)]
pub struct OomGroup {
    /// Its own file, then those of the groups above it.
    files: Vec<PathBuf>,
    before: Counts,
}

/// How many processes of the group were killed, and how often it, or one above it, was at its limit: of cgroup v1 also
/// where memory could be reclaimed.
type Counts = [Option<u64>; 2];

impl OomGroup {
    /// Finds that of a running process, and reads its counters.
    pub fn of(pid: u32) -> Self {
        let files = files(pid, "memory", &["memory.events", "memory.oom_control"]).unwrap_or_default();
        Self { before: counts(&files), files }
    }

    /// Reads the counters again: those of an earlier kill say nothing of a later one.
    pub fn follow(&mut self) {
        self.before = counts(&self.files);
    }

    /// Returns whether a process of the group was killed since, and whether the group, or one above it, was at its
    /// limit; each `None` if that cannot be read.
    pub fn killed(&self) -> (Option<bool>, Option<bool>) {
        let now = counts(&self.files);
        let rose = |count: usize| Some(now[count]? > self.before[count]?);
        (rose(0), rose(1))
    }
}

fn counts(files: &[PathBuf]) -> Counts {
    let text = |file: &PathBuf| fs::read_to_string(file).ok();
    let limits = files.iter().filter_map(|file| {
        // `memory.oom_control` of cgroup v1 has no count of its own for that.
        let failures = || text(&file.with_file_name("memory.failcnt"))?.trim().parse().ok();
        value(&text(file)?, "oom").or_else(failures)
    });
    let killed = files.first().and_then(text).and_then(|text| value(&text, "oom_kill"));
    [killed, limits.reduce(u64::wrapping_add)]
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use anyhow::Context as _;
    use evictscope_testkit::process::Owned;
    use evictscope_testkit::wait::until_true;

    use super::*;

    #[test]
    fn the_time_is_read_of_either_version() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(throttled_in("nr_throttled 7\nthrottled_usec 1000000\n"), second);
        assert_eq!(throttled_in("nr_throttled 7\nthrottled_time 1000000000\n"), second);
        assert_eq!(throttled_in("usage_usec 5\n"), None);
    }

    /// A control group with 5 ms of each 100, removed on drop.
    struct Group(PathBuf);

    impl Drop for Group {
        fn drop(&mut self) {
            // It may still hold a process if the test failed.
            let _ = fs::remove_dir(&self.0);
        }
    }

    #[test]
    #[ignore = "needs root"]
    fn a_quota_that_is_used_up_is_seen() -> anyhow::Result<()> {
        let (mount, _) = group_of(std::process::id(), "cpu").context("no group of CPUs")?;
        let group = Group(mount.join(format!("evictscope-test-{}", std::process::id())));
        fs::create_dir(&group.0)?;
        for (name, quota) in [("cpu.max", "5000 100000"), ("cpu.cfs_quota_us", "5000")] {
            if group.0.join(name).exists() {
                fs::write(group.0.join(name), quota)?;
            }
        }
        let busy = Owned::start(Command::new("sh").args(["-c", "while :; do :; done"]))?;
        fs::write(group.0.join("cgroup.procs"), busy.pid().to_string())?;
        let quotas = Quotas::of(busy.pid());
        until_true("it is seen", || Ok(quotas.throttled() > Some(Duration::from_millis(500))))
    }

    #[test]
    fn the_counters_before_and_after_tell_who_was_killed_and_why() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let (group_file, above) = (directory.path().join("own"), directory.path().join("above"));
        let group = |file: &PathBuf, oom: u64, killed: u64| {
            fs::write(file, format!("low 0\nmax 40\noom {oom}\noom_kill {killed}\n"))
        };
        group(&group_file, 1, 1)?;
        group(&above, 3, 7)?;
        let files = vec![group_file.clone(), above.clone()];
        let mut watched = OomGroup { before: counts(&files), files };
        // Another group below the same one.
        group(&above, 4, 8)?;
        assert_eq!(watched.killed(), (Some(false), Some(true)));
        watched.follow();
        // The host has no memory left.
        group(&group_file, 1, 2)?;
        assert_eq!(watched.killed(), (Some(true), Some(false)));
        group(&above, 5, 9)?;
        assert_eq!(watched.killed(), (Some(true), Some(true)));
        // The container has gone.
        fs::remove_file(&group_file)?;
        assert_eq!(watched.killed().0, None);
        Ok(())
    }

    #[test]
    fn version_1_counts_in_two_files() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let group_file = directory.path().join("memory.oom_control");
        let group = |failures: u64, killed: u64| {
            fs::write(directory.path().join("memory.failcnt"), format!("{failures}\n"))?;
            fs::write(&group_file, format!("oom_kill_disable 0\nunder_oom 0\noom_kill {killed}\n"))
        };
        group(2, 0)?;
        let watched = OomGroup { before: counts(std::slice::from_ref(&group_file)), files: vec![group_file.clone()] };
        group(9, 1)?;
        assert_eq!(watched.killed(), (Some(true), Some(true)));
        Ok(())
    }
}
