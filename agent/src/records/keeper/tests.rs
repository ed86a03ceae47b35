use std::path::Path;

use anyhow::{Context as _, ensure};
use evictscope_testkit::wait::until;

use super::*;
use crate::records::Limits;
use crate::records::fixture::burst_record;

const SECOND: u64 = 1_000_000;
const LIMITS: Limits = Limits {
    records: 10,
    bytes: 64 << 20,
};

fn keeper(directory: &Path) -> anyhow::Result<Keeper> {
    Ok(Keeper::start(Store::open(directory, LIMITS)?)?)
}

/// Returns a moment, whose counters began this many seconds before it.
fn moment(unix_us: u64, counted: u64) -> anyhow::Result<Moment> {
    let made_up = burst_record().moments.pop().context("no moment")?;
    Ok(Moment {
        unix_us,
        commands: Some(counted * 30_000),
        observed_us: counted * SECOND,
        evicting_calls: counted * 10,
        evicting_us: counted * 10_000,
        cpu_us: Some(counted * 600_000),
        ..made_up
    })
}

/// Notes seconds of one life of a server.
fn live(keeper: &Keeper, pid: u32, from_us: u64, seconds: u64) -> anyhow::Result<Vec<Moment>> {
    let moments = (0..seconds).map(|second| moment(from_us + second * SECOND, second));
    let moments = moments.collect::<anyhow::Result<Vec<_>>>()?;
    for moment in &moments {
        keeper.note("6379", pid, moment);
    }
    Ok(moments)
}

/// Ends the thread, however long the disk of this machine takes.
fn end(keeper: &Keeper) -> anyhow::Result<()> {
    keeper.finish();
    eventually(|| keeper.0.lock().has_ended)
}

#[test]
fn a_record_is_written_in_the_thread() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let keeper = keeper(directory.path())?;
    let record = burst_record();
    keeper.keep(record.clone(), Vec::new());
    end(&keeper)?;
    let counts = keeper.counts();
    assert_eq!((counts.written, counts.failed, counts.records), (1, 0, 1));
    ensure!(counts.bytes > 1_000, "{counts:?}");
    assert_eq!(keeper.store().read(&record.id)?, record);
    // There is nobody any more who would write it.
    keeper.keep(record, Vec::new());
    assert_eq!(keeper.counts().failed, 1);
    Ok(())
}

#[test]
fn the_last_day_is_there_after_a_restart_of_agent_and_server() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let now = unix_us();
    let first = keeper(directory.path())?;
    let one = live(&first, 101, now - 3_000 * SECOND, 700)?;
    // Not yet written: still there.
    assert_eq!(first.history("6379", 0).concat().last(), one.last());
    // Another process with the same name.
    let other = live(&first, 102, now - 2_000 * SECOND, 10)?;
    // The same process, to which the agent has attached again.
    let again = live(&first, 102, now - 1_900 * SECOND, 10)?;
    end(&first)?;
    drop(first);

    let second = keeper(directory.path())?;
    // Another agent: its counters have begun again, though none of them is lower.
    let last = live(&second, 102, now - 1_000 * SECOND, 100)?;
    let all = [one, other, again, last];
    assert_eq!(second.history("6379", 0), all);
    assert_eq!(second.history("6380", 0), Vec::<Vec<Moment>>::new());
    let of_late = second.history("6379", now - 950 * SECOND);
    assert_eq!(of_late.concat().len(), 50);

    let files = second.store().kept()?.bytes;
    ensure!(files < 100_000, "{files} bytes for 13 minutes");
    Ok(())
}

#[test]
fn servers_that_live_are_remembered_and_a_damaged_file_is_not() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let labelled = |label: &str| Labelled {
        pid: 10,
        start_time_ticks: 7_000,
        label: label.to_owned(),
    };
    let first = keeper(directory.path())?;
    assert_eq!(first.remembered(), []);
    first.remember(vec![labelled("6379")]);
    first.remember(vec![labelled("6379@10")]);
    end(&first)?;
    drop(first);
    let second = keeper(directory.path())?;
    assert_eq!(second.remembered(), [labelled("6379@10")]);
    std::fs::write(directory.path().join("labels.json"), "{")?;
    assert_eq!(second.remembered(), []);
    // What cannot be written is written when it can be.
    std::fs::remove_file(directory.path().join("labels.json"))?;
    std::fs::create_dir(directory.path().join("labels.json"))?;
    second.remember(vec![labelled("6379@10")]);
    eventually(|| second.0.lock().labels.is_none())?;
    std::fs::remove_dir(directory.path().join("labels.json"))?;
    end(&second)?;
    assert_eq!(second.remembered(), [labelled("6379@10")]);
    Ok(())
}

#[test]
fn what_is_older_than_a_day_goes() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let first = keeper(directory.path())?;
    let now = unix_us();
    live(&first, 101, now - 90_000 * SECOND, 10)?;
    live(&first, 102, now - 80_000 * SECOND, 10)?;
    end(&first)?;
    assert_eq!(first.history("6379", 0).len(), 1);
    Ok(())
}

#[test]
fn history_takes_half_of_what_may_be_kept_and_records_stay() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let limits = Limits {
        records: 10,
        bytes: 60_000,
    };
    let keeper = Keeper::start(Store::open(directory.path(), limits)?)?;
    keeper.keep(burst_record(), Vec::new());
    let from = unix_us() - 80_000 * SECOND;
    live(&keeper, 101, from, 3_000)?;
    end(&keeper)?;
    let counts = keeper.counts();
    assert_eq!(counts.records, 1);
    ensure!((40_000..=60_000).contains(&counts.bytes), "{counts:?}");
    // The oldest of it went.
    let kept = keeper.history("6379", 0).concat();
    let oldest = kept.first().context("nothing is kept")?.unix_us;
    let newest = kept.last().context("nothing is kept")?.unix_us;
    ensure!(oldest > from + 300 * SECOND && newest == from + 2_999 * SECOND);
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
    std::fs::write(&filler, vec![1; 200_000])
        .err()
        .context("the disk is not full")?;
    for minutes in 1..4 {
        let mut record = burst_record();
        record.began_us += minutes * 60 * SECOND;
        record.id = crate::records::RecordId::new(record.began_us, "6379", 101);
        keeper.keep(record, Vec::new());
    }
    eventually(|| keeper.counts().failed == 3)?;
    let said = keeper.0.lock().trouble.clone().unwrap_or_default();
    ensure!(said.contains("No space left on device"), "{said}");
    let listed = keeper.store().list()?;
    ensure!(listed.len() == 1 && listed.iter().all(|file| file.summary.is_ok()));
    let left = std::fs::read_dir(directory.path().join("records"))?.count();
    ensure!(left == 1, "{left} files");
    // When there is room again, it goes on.
    std::fs::remove_file(&filler)?;
    let mut record = burst_record();
    record.began_us += 5 * 60 * SECOND;
    record.id = crate::records::RecordId::new(record.began_us, "6379", 101);
    keeper.keep(record, Vec::new());
    eventually(|| keeper.counts().written == 2)?;
    ensure!(keeper.0.lock().trouble.is_none());
    end(&keeper)?;
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
        let mut umount = std::process::Command::new("umount");
        let _ = umount.arg("--lazy").arg(self.0).status();
    }
}
