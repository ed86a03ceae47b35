use std::path::Path;

use anyhow::{Context as _, ensure};
use evictscope_testkit::wait::until;

use super::*;
use crate::StoreLimits;
use crate::fixture::burst_record;
use crate::store::tests::record;

const LIMITS: StoreLimits = StoreLimits { records: 10, bytes: 64 << 20 };

fn keeper(directory: &Path) -> anyhow::Result<Keeper> {
    Ok(Keeper::start(Store::open(directory, LIMITS)?)?)
}

/// Ends the thread, however long the disk of this machine takes.
fn end(keeper: &Keeper) {
    keeper.finish_within(Duration::MAX);
}

#[test]
fn a_record_is_written_in_the_thread() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let keeper = keeper(directory.path())?;
    let record = Record { ended_us: unix_us(), ..burst_record() };
    keeper.keep(record.clone(), Vec::new());
    end(&keeper);
    let counts = keeper.counts();
    assert_eq!((counts.written, counts.failed, counts.records), (1, 0, 1));
    ensure!(counts.bytes > 1_000, "{counts:?}");
    assert_eq!(keeper.store().read(&record.id)?, record);
    let server = record.server.label.clone();
    assert_eq!(keeper.causes(), BTreeMap::from([((server, CauseKind::ClientBuffers), record.ended_us)]));
    // Nothing is left to write it.
    keeper.keep(record, Vec::new());
    assert_eq!(keeper.counts().failed, 1);
    Ok(())
}

#[test]
fn servers_that_live_are_remembered_and_a_damaged_file_is_not() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let labelled = |label: &str| Labelled { pid: 10, start_time_ticks: 7_000, label: label.to_owned() };
    let first = keeper(directory.path())?;
    assert_eq!(first.remembered(), []);
    first.remember(vec![labelled("6379")]);
    first.remember(vec![labelled("6379@10")]);
    end(&first);
    drop(first);
    let second = keeper(directory.path())?;
    assert_eq!(second.remembered(), [labelled("6379@10")]);
    std::fs::write(directory.path().join("labels.json"), "{")?;
    assert_eq!(second.remembered(), []);
    // What cannot be written is written once it can be.
    std::fs::remove_file(directory.path().join("labels.json"))?;
    std::fs::create_dir(directory.path().join("labels.json"))?;
    second.remember(vec![labelled("6379@10")]);
    eventually(|| second.0.queue.lock().labels.is_none())?;
    std::fs::remove_dir(directory.path().join("labels.json"))?;
    end(&second);
    assert_eq!(second.remembered(), [labelled("6379@10")]);
    Ok(())
}

#[test]
#[ignore = "needs root: it mounts a small file system"]
fn a_full_disk_costs_the_record_and_nothing_else() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let _disk = SmallDisk::mount(directory.path())?;
    let keeper = keeper(directory.path())?;
    keeper.keep(burst_record(), Vec::new());
    eventually(|| keeper.counts().written == 1)?;
    let filler = directory.path().join("filler");
    std::fs::write(&filler, vec![1; 200_000]).err().context("the disk is not full")?;
    (1..4).for_each(|minutes| keeper.keep(record(minutes), Vec::new()));
    eventually(|| keeper.counts().failed == 3)?;
    let said = keeper.0.queue.lock().trouble.clone().unwrap_or_default();
    ensure!(said.contains("No space left on device"), "{said}");
    let listed = keeper.store().list()?;
    ensure!(listed.len() == 1 && listed.iter().all(|file| file.summary.is_ok()));
    let left = std::fs::read_dir(directory.path().join("records"))?.count();
    ensure!(left == 1, "{left} files");
    // When there is room again, it goes on.
    std::fs::remove_file(&filler)?;
    keeper.keep(record(5), Vec::new());
    eventually(|| keeper.counts().written == 2)?;
    ensure!(keeper.0.queue.lock().trouble.is_none());
    end(&keeper);
    Ok(())
}

fn eventually(is_so: impl Fn() -> bool) -> anyhow::Result<()> {
    until("the thread has done it", || Ok(is_so().then_some(())))
}

/// A file system of 100 kB.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(at: &'a Path) -> anyhow::Result<Self> {
        let mut mount = std::process::Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", "size=100k", "evictscope-test"]);
        ensure!(mount.arg(at).status()?.success());
        Ok(Self(at))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}
