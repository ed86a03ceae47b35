use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use super::*;
use crate::fixture::burst_record;

const MIB: u64 = 1 << 20;

fn limits(records: usize, bytes: u64) -> StoreLimits {
    StoreLimits { records, bytes }
}

fn opened(limits: StoreLimits) -> anyhow::Result<(TempDir, Store)> {
    let directory = tempfile::tempdir()?;
    let store = Store::open(directory.path(), limits)?;
    Ok((directory, store))
}

/// Returns a record that began this many minutes after the made-up one.
pub(crate) fn record(minutes: u64) -> Record {
    let mut record = burst_record();
    record.began_us += minutes * 60_000_000;
    record.ended_us += minutes * 60_000_000;
    record.moments.truncate(50);
    record.id = RecordId::new(record.began_us, "6379", 101);
    record
}

fn names(store: &Store) -> anyhow::Result<Vec<String>> {
    let names = store.list()?.into_iter().map(|file| match file.summary {
        Ok(summary) => summary.id.to_string(),
        Err(why) => format!("{}: {why}", file.path.file_name().unwrap_or_default().display()),
    });
    Ok(names.collect())
}

#[test]
fn what_is_written_is_read_again() -> anyhow::Result<()> {
    let (directory, store) = opened(limits(10, MIB))?;
    let record = burst_record();
    let path = store.write(&record)?;
    assert_eq!(store.read(&record.id)?, record);
    assert_eq!(read_record(&path)?, record);
    let listed = store.list()?;
    let [file] = listed.as_slice() else { anyhow::bail!("{listed:?}") };
    assert_eq!(file.summary, Ok(Summary::of(&record)));
    assert_eq!(file.bytes, path.metadata()?.len());
    // For people without an agent at hand: two lines of JSON.
    let mut text = String::new();
    let unpacked = flate2::read::MultiGzDecoder::new(File::open(&path)?);
    std::io::Read::read_to_string(&mut std::io::BufReader::new(unpacked), &mut text)?;
    assert_eq!(text.lines().count(), 2);
    // Another agent would remove what this one writes.
    assert!(matches!(Store::open(directory.path(), limits(10, MIB)), Err(StoreError::InUse(_))));
    drop(store);
    Store::open(directory.path(), limits(10, MIB))?;
    Ok(())
}

#[test]
fn what_somebody_put_in_the_place_of_ours_is_refused() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let (lock, records) = (directory.path().join("lock"), directory.path().join("records"));
    let elsewhere = tempfile::tempdir()?;
    let victim = elsewhere.path().join("victim");
    std::fs::write(&victim, "theirs")?;
    let refused = || matches!(Store::open(directory.path(), limits(1, MIB)), Err(StoreError::Directory(..)));
    symlink(&victim, &lock)?;
    assert!(refused());
    assert_eq!(std::fs::read_to_string(&victim)?, "theirs");
    std::fs::remove_file(&lock)?;
    // Nobody reads from it: opening it for writing would take forever.
    rustix::fs::mkfifoat(rustix::fs::CWD, &lock, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    assert!(refused());
    std::fs::remove_file(&lock)?;
    symlink(elsewhere.path(), &records)?;
    assert!(refused());
    std::fs::remove_file(&records)?;
    Store::open(directory.path(), limits(1, MIB))?;
    Ok(())
}

#[test]
fn the_oldest_go_first_by_number_and_by_bytes() -> anyhow::Result<()> {
    let (_directory, store) = opened(limits(3, 10 * MIB))?;
    for minutes in [3, 1, 2, 4] {
        store.write(&record(minutes))?;
    }
    let id = |minutes| record(minutes).id.to_string();
    assert_eq!(names(&store)?, [id(4), id(3), id(2)]);
    // One that is older than all others is still kept when it arrives.
    store.write(&record(0))?;
    assert_eq!(names(&store)?, [id(4), id(3), id(0)]);
    let size = store.kept()?.1 / 3;

    let (_directory, store) = opened(limits(100, 5 * size / 2))?;
    for minutes in 0..5 {
        store.write(&record(minutes))?;
        ensure!(store.kept()?.1 <= 5 * size / 2);
    }
    assert_eq!(names(&store)?, [id(4), id(3)]);

    let (_directory, store) = opened(limits(100, size / 2))?;
    let refused = store.write(&record(0));
    assert!(matches!(refused, Err(StoreError::DoesNotFit(..))), "{refused:?}");
    assert!(names(&store)?.is_empty());
    Ok(())
}

#[test]
fn what_is_damaged_or_foreign_is_listed_as_such() -> anyhow::Result<()> {
    let (_directory, store) = opened(limits(3, MIB))?;
    let path = store.write(&record(1))?;
    let whole = std::fs::read(&path)?;
    let folder = path.parent().context("no folder")?;
    let id = |minutes| record(minutes).id;
    let file = |minutes| folder.join(file_name(&id(minutes)));
    // Truncated, renamed, from the future, and not ours.
    std::fs::write(file(2), whole.get(..whole.len() - 1).unwrap_or_default())?;
    std::fs::write(file(3), &whole)?;
    let mut newer = flate2::write::GzEncoder::new(File::create(file(4))?, Default::default());
    std::io::Write::write_all(&mut newer, b"{\"format\":2,\"more\":true}\n")?;
    newer.finish()?;
    std::fs::write(folder.join("notes.txt"), "notes")?;
    std::fs::write(folder.join("zzz.json.gz"), "notes")?;
    std::fs::write(file(5), "")?;
    symlink(&path, file(6))?;
    rustix::fs::mkfifoat(rustix::fs::CWD, file(7), rustix::fs::Mode::RWXU)?;
    std::fs::create_dir(file(8))?;

    let lines = names(&store)?;
    let about = |name: &str| lines.iter().find(|line| line.contains(name)).cloned();
    let said = |name: &str, text: &str| {
        let line = about(name).unwrap_or_default();
        assert!(line.contains(text), "{name}: {line}");
    };
    assert_eq!(lines.len(), 10, "{lines:?}");
    said(id(1).as_str(), id(1).as_str());
    said(&file_name(&id(2)), "it is damaged: it should have");
    said(&file_name(&id(3)), "it holds the record");
    said(&file_name(&id(4)), "it has the format 2");
    for foreign in ["notes.txt", "zzz.json.gz"] {
        said(foreign, "not a file of evictscope");
    }
    for minutes in 5..9 {
        said(&file_name(&id(minutes)), "not a file of evictscope");
    }
    for minutes in 2..9 {
        assert!(matches!(store.read(&id(minutes)), Err(StoreError::Read { .. })), "{minutes}");
    }
    let missing = store.read(&id(9));
    assert!(matches!(missing, Err(StoreError::NoSuchRecord(_))), "{missing:?}");
    // Foreign files stay where they are, whatever is written.
    for minutes in 10..15 {
        store.write(&record(minutes))?;
    }
    for kept in ["notes.txt", "zzz.json.gz"] {
        assert!(folder.join(kept).exists());
    }
    assert!(file(6).is_symlink() && file(7).exists() && file(8).is_dir());
    Ok(())
}

#[test]
fn damage_further_on_is_found_when_it_is_read() -> anyhow::Result<()> {
    let (_directory, store) = opened(limits(3, MIB))?;
    let record = burst_record();
    let path = store.write(&record)?;
    let mut content = std::fs::read(&path)?;
    let middle = content.len() / 2;
    for byte in content.iter_mut().skip(middle).take(8) {
        *byte ^= 0x55;
    }
    std::fs::write(&path, content)?;
    let error = store.read(&record.id).err().context("it is read")?;
    assert!(error.to_string().contains("damaged"), "{error}");

    // Whole, and of stacks that nobody can draw.
    let mut endless = record;
    let profile = endless.profile.as_mut().ok().context("no profile")?;
    profile.stacks.truncate(1);
    profile.stacks[0].frames = vec![0; 3_000_000];
    store.write(&endless)?;
    let error = store.read(&endless.id).err().context("it is read")?;
    assert!(error.to_string().contains("frames"), "{error}");
    Ok(())
}

#[test]
fn a_directory_that_cannot_be_written_says_what_to_do() {
    let error = Store::open(Path::new("/dev/null/none"), limits(1, 1)).err();
    let said = error.map(|error| error.to_string()).unwrap_or_default();
    assert!(said.contains("--state-dir") && said.contains("/dev/null/none"), "{said}");
    assert!(Store::at(Path::new("/nowhere/evictscope")).list().is_ok_and(|listed| listed.is_empty()));
}

#[test]
fn what_was_not_written_to_its_end_is_removed() -> anyhow::Result<()> {
    let (directory, store) = opened(limits(3, MIB))?;
    store.write(&record(1))?;
    drop(store);
    let folder = directory.path().join("records");
    for name in [".unfinished-20231114T221320.000Z-6379-101.json.gz", ".other"] {
        std::fs::write(folder.join(name), "half")?;
    }
    let store = Store::open(directory.path(), limits(3, MIB))?;
    assert_eq!(names(&store)?, [record(1).id.to_string()]);
    let left = store.entries()?.into_iter().map(|entry| entry.name);
    let expected = [".other".into(), file_name(&record(1).id).into()];
    assert_eq!(BTreeSet::from_iter(left), BTreeSet::from(expected));
    Ok(())
}
