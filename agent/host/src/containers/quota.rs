//! Reads for how long the CPU quotas of a process's control groups were used up.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

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
        let texts = self.files.iter().map(fs::read_to_string);
        let times = texts.filter_map(|text| throttled_in(&text.ok()?));
        times.reduce(|sum, time| sum + time)
    }
}

fn throttled_in(text: &str) -> Option<Duration> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        match name {
            "throttled_usec" => value.parse().ok().map(Duration::from_micros),
            "throttled_time" => value.parse().ok().map(Duration::from_nanos),
            _ => None,
        }
    })
}

/// Returns the files of these names in a process's control group of a controller, and in the groups above it.
pub(super) fn files(pid: u32, controller: &str, names: &[&str]) -> Option<Vec<PathBuf>> {
    let (mount, group) = place(pid, controller)?;
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
fn place(pid: u32, controller: &str) -> Option<(PathBuf, String)> {
    let groups = Process::new(pid.try_into().ok()?).ok()?.cgroups().ok()?;
    let mounts = Process::myself().ok()?.mountinfo().ok()?;
    let mounted = |has: &dyn Fn(&MountInfo) -> bool| {
        let mount = mounts.iter().find(|mount| has(mount))?;
        Some(mount.mount_point.clone())
    };
    groups.into_iter().find_map(|group| {
        let mount = match group.controllers.iter().any(|name| name == controller) {
            true => mounted(&|mount| mount.fs_type == "cgroup" && mount.super_options.contains_key(controller)),
            // cgroup v2 is the last in the list.
            false if group.hierarchy == 0 => mounted(&|mount| mount.fs_type == "cgroup2"),
            false => None,
        }?;
        Some((mount, group.pathname))
    })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::process::Command;

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
    fn a_quota_that_is_used_up_is_seen() -> io::Result<()> {
        let (mount, _) = place(std::process::id(), "cpu").ok_or(io::ErrorKind::NotFound)?;
        let group = Group(mount.join(format!("evictscope-test-{}", std::process::id())));
        fs::create_dir(&group.0)?;
        let quotas = [("cpu.max", "5000 100000"), ("cpu.cfs_quota_us", "5000")];
        let quota = quotas.map(|(name, quota)| (group.0.join(name), quota));
        for (file, quota) in quota.iter().filter(|(file, _)| file.exists()) {
            fs::write(file, quota)?;
        }
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn()?;
        fs::write(group.0.join("cgroup.procs"), busy.id().to_string())?;
        let quotas = Quotas::of(busy.id());
        let begun = std::time::Instant::now();
        let is_seen = |quotas: &Quotas| quotas.throttled() > Some(Duration::from_millis(500));
        while !is_seen(&quotas) && begun.elapsed() < Duration::from_secs(300) {
            std::thread::sleep(Duration::from_millis(100));
        }
        let throttled = quotas.throttled();
        busy.kill()?;
        busy.wait()?;
        assert!(is_seen(&quotas), "{throttled:?} of {quotas:?}");
        Ok(())
    }
}
