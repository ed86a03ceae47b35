//! Kills a process while it writes records, and looks at what it leaves behind.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::*;
use crate::fixture::burst_record;

/// Tells the child where to write.
const DIRECTORY: &str = "EVICTSCOPE_TEST_RECORDS";
/// How often to kill, if not 20 times.
const KILLS: &str = "EVICTSCOPE_TEST_KILLS";
const LIMITS: StoreLimits = StoreLimits { records: 20, bytes: 1 << 20 };

/// The child: writes until it is killed. Does nothing if it is not told where.
#[test]
#[ignore = "the other test runs it"]
fn writes_until_it_is_killed() -> anyhow::Result<()> {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return Ok(()) };
    let store = Store::open(Path::new(&directory), LIMITS)?;
    let mut record = burst_record();
    record.moments.truncate(200);
    loop {
        record.began_us += 1_000_000;
        record.id = RecordId::new(record.began_us, "6379", 101);
        store.write(&record)?;
    }
}

/// A process that writes, which is killed when this is dropped.
struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        // SIGKILL. It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(directory: &Path) -> anyhow::Result<Writer> {
    // The test's own name lacks the crate's.
    let module = module_path!().split_once("::").context("no module")?.1;
    let mut child = Command::new(std::env::current_exe()?);
    let child = child
        .args(["--exact", "--ignored"])
        .arg(format!("{module}::writes_until_it_is_killed"))
        .env(DIRECTORY, directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(Writer(child.spawn()?))
}

fn everything(directory: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    Ok(std::fs::read_dir(directory.join("records"))?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?)
}

#[test]
#[ignore = "starts and kills processes; EVICTSCOPE_TEST_KILLS=200 for more of them"]
fn killed_while_it_writes_it_leaves_no_damage() -> anyhow::Result<()> {
    let kills = std::env::var(KILLS).ok();
    let kills: u64 = kills.map_or(Ok(20), |kills| kills.parse())?;
    let directory = tempfile::tempdir()?;
    drop(Store::open(directory.path(), LIMITS)?);
    let mut unfinished = 0;
    for kill in 0..kills {
        let before = everything(directory.path())?;
        let mut writer = start(directory.path())?;
        evictscope_testkit::wait::until("the process writes", || {
            ensure!(writer.0.try_wait()?.is_none(), "the process has ended by itself");
            Ok((everything(directory.path())? != before).then_some(()))
        })?;
        // At a different moment of a write each time.
        std::thread::sleep(Duration::from_micros(kill * 7_919 % 20_000));
        drop(writer);
        let left = everything(directory.path())?;
        unfinished += left.iter().filter(|path| path.display().to_string().contains(".unfinished-")).count();

        let store = Store::open(directory.path(), LIMITS)?;
        let listed = store.list()?;
        ensure!(listed.len() <= LIMITS.records);
        for file in &listed {
            store.read(&file.summary.as_ref().map_err(|why| anyhow::anyhow!("after {kill} kills: {why}"))?.id)?;
        }
        let left = everything(directory.path())?;
        ensure!(left.len() == listed.len(), "{left:?}");
    }
    ensure!(!Store::at(directory.path()).list()?.is_empty());
    println!("{kills} kills, {unfinished} of them in the middle of a file");
    Ok(())
}
