//! The records that the agent keeps of a run, beside the lab's own record.
//!
//! They are read as any other program would read them: two lines of JSON, packed by gzip. The second one is the record.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use evictscope_testkit::{burst::Burst, workspace};
use flate2::read::MultiGzDecoder;
use serde::Deserialize;

use crate::scenario::PLAIN;

/// How long after a burst its record may take. The agent waits for 30 s, because these are in it.
const PATIENCE: Duration = Duration::from_secs(50);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(500);

/// A stall of more seconds than this is recorded, whatever the burst that it is in.
pub const STALL: f64 = 1.0;

/// What follows the name of a record.
const ENDING: &str = "json.gz";

/// A record of the agent's. Times are seconds since 1970, sizes bytes.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Its file.
    pub path: PathBuf,
    /// Why it was made: `burst`, `stall` or `asked`.
    pub occasion: String,
    /// When what it is about began.
    pub began: f64,
    /// When that ended, the reclaim too.
    pub ended: f64,
    /// The burst that it is about, if it has ended.
    pub burst: Option<KeptBurst>,
    /// How long the slowest evicting call took, in seconds.
    pub slowest: Option<f64>,
    /// The highest used memory between its beginning and its end.
    pub memory_peak: Option<u64>,
    /// The commands between its beginning and its end, a second.
    pub commands: Option<f64>,
}

/// The burst in a record.
#[derive(Clone, Debug, Default)]
pub struct KeptBurst {
    /// Its first evicting call.
    pub start: f64,
    /// Its last one.
    pub end: f64,
    /// When memory had fallen.
    pub reclaim_end: f64,
    /// Keys evicted.
    pub evicted_keys: Option<u64>,
    /// Commands a second in it.
    pub throughput: Option<f64>,
    /// Client buffers when it began.
    pub client_buffers_before: Option<u64>,
    /// The highest client buffers.
    pub client_buffers_peak: Option<u64>,
    /// The highest used memory.
    pub memory_peak: Option<u64>,
}

/// Returns the burst's record among these: it begins with the burst, or the burst is in the stall that it is about.
pub fn of_burst<'a>(burst: &Burst, records: &'a [Kept]) -> Vec<&'a Kept> {
    let begins_with_it = |record: &&Kept| match &record.burst {
        Some(kept) => (kept.start - burst.start).abs() < 0.01,
        None => {
            record.occasion == "stall" && record.began <= burst.end && record.ended >= burst.start
        }
    };
    records.iter().filter(begins_with_it).collect()
}

/// Waits until each burst that is not plain has its record, and where the server `has_stalled`, until there is one. Copies the records into `into`.
///
/// # Errors
///
/// Fails where a record cannot be read. A record that is missing is for a judge.
pub fn collect(
    state: &Path,
    bursts: &[Burst],
    has_stalled: bool,
    into: &Path,
) -> Result<Vec<Kept>> {
    let asked = Instant::now();
    let directory = state.join("records");
    loop {
        let records = read_all(&directory)?;
        let missing = |burst: &&Burst| burst.kind != PLAIN && of_burst(burst, &records).is_empty();
        let misses_one = bursts.iter().any(|burst| missing(&burst));
        let is_empty = has_stalled && records.is_empty();
        if !(misses_one || is_empty) || asked.elapsed() > PATIENCE {
            return records
                .into_iter()
                .map(|record| record.copy(into))
                .collect();
        }
        thread::sleep(LOOK);
    }
}

/// Reads all records in a directory, the oldest first.
fn read_all(directory: &Path) -> Result<Vec<Kept>> {
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let mut files = workspace::entries(directory)?;
    files.retain(|file| file.to_string_lossy().ends_with(ENDING));
    files.iter().map(|file| Kept::read(file)).collect()
}

impl Kept {
    /// Reads a record from a file.
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        let mut lines = BufReader::new(MultiGzDecoder::new(file)).lines().skip(1);
        let foreign = || format!("{} is not as the agent writes records", path.display());
        let line = lines.next().with_context(foreign)?.with_context(foreign)?;
        let record: Fields = serde_json::from_str(&line).with_context(foreign)?;
        Ok(Self {
            path: path.to_owned(),
            ..record.into()
        })
    }

    /// Copies its file into a directory.
    fn copy(self, into: &Path) -> Result<Self> {
        fs::create_dir_all(into).with_context(|| format!("cannot make {}", into.display()))?;
        let name = self.path.file_name().context("a record has no name")?;
        let path = into.join(name);
        fs::copy(&self.path, &path)
            .with_context(|| format!("cannot copy {}", self.path.display()))?;
        Ok(Self { path, ..self })
    }
}

/// What is read of a record's file.
#[derive(Deserialize)]
struct Fields {
    occasion: String,
    began_us: u64,
    ended_us: u64,
    burst: Option<BurstFields>,
    moments: Vec<MomentFields>,
    slowest: Vec<SlowFields>,
}

#[derive(Deserialize)]
struct BurstFields {
    started: Duration,
    duration: Duration,
    reclaim: Duration,
    evicted_keys: Option<u64>,
    commands_per_second_during: Option<f64>,
    client_buffers_before: Option<u64>,
    client_buffers_peak: Option<u64>,
    memory_peak: Option<u64>,
}

#[derive(Deserialize)]
struct MomentFields {
    unix_us: u64,
    used_memory: Option<u64>,
    commands: Option<u64>,
}

#[derive(Deserialize)]
struct SlowFields {
    duration_ns: u64,
}

impl From<Fields> for Kept {
    fn from(record: Fields) -> Self {
        let seconds = |microseconds: u64| microseconds as f64 / 1e6;
        let within =
            |moment: &&MomentFields| (record.began_us..=record.ended_us).contains(&moment.unix_us);
        let moments = || record.moments.iter().filter(within);
        let commands = |moment: &MomentFields| Some((moment.unix_us, moment.commands?));
        let ends = moments()
            .find_map(commands)
            .zip(moments().rev().find_map(commands));
        let commands = ends.and_then(|((from, before), (to, after))| {
            (to > from).then(|| (after - before) as f64 / seconds(to - from))
        });
        let memory_peak = moments().filter_map(|moment| moment.used_memory).max();
        let slowest = record.slowest.iter().map(|call| call.duration_ns).max();
        Self {
            path: PathBuf::new(),
            occasion: record.occasion,
            began: seconds(record.began_us),
            ended: seconds(record.ended_us),
            burst: record.burst.map(KeptBurst::from),
            slowest: slowest.map(|duration| duration as f64 / 1e9),
            memory_peak,
            commands,
        }
    }
}

impl From<BurstFields> for KeptBurst {
    fn from(burst: BurstFields) -> Self {
        let start = burst.started.as_secs_f64();
        let end = start + burst.duration.as_secs_f64();
        Self {
            start,
            end,
            reclaim_end: end + burst.reclaim.as_secs_f64(),
            evicted_keys: burst.evicted_keys,
            throughput: burst.commands_per_second_during,
            client_buffers_before: burst.client_buffers_before,
            client_buffers_peak: burst.client_buffers_peak,
            memory_peak: burst.memory_peak,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    const HEAD: &str = "{\"format\":1}\n";
    const RECORD: &str = r#"{"format":1,"occasion":"burst","began_us":1000000000,"ended_us":1003000000,"burst":{"started":{"secs":1000,"nanos":0},"duration":{"secs":2,"nanos":500000000},
            "reclaim":{"secs":0,"nanos":500000000},"evicted_keys":7,"commands_per_second_during":5.0,
            "client_buffers_before":1,"client_buffers_peak":2,"memory_peak":30},
        "moments":[{"unix_us":999000000,"used_memory":99,"commands":0},{"unix_us":1000500000,"used_memory":10,"commands":100},
            {"unix_us":1001000000,"used_memory":null,"commands":null},{"unix_us":1002500000,"used_memory":20,"commands":500}],
        "slowest":[{"unix_us":1001000000,"duration_ns":3000000,"goal":null,"result":"ok"}]}"#;

    #[test]
    fn a_record_is_read_and_found() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let file = File::create(directory.path().join("a.json.gz"))?;
        let mut file = file;
        for line in [HEAD, &RECORD.replace('\n', "")] {
            let mut packed = GzEncoder::new(&file, Compression::fast());
            packed.write_all(line.as_bytes())?;
            packed.finish()?;
        }
        file.flush()?;
        fs::write(directory.path().join("other"), "not a record")?;
        let records = read_all(directory.path())?;
        let [record] = &records[..] else {
            panic!("{records:?}");
        };
        assert_eq!(record.memory_peak, Some(20));
        assert_eq!(record.commands, Some(200.0));
        assert_eq!(record.slowest, Some(0.003));
        let burst = record.burst.clone().unwrap_or_default();
        assert_eq!(
            (burst.start, burst.end, burst.reclaim_end),
            (1000.0, 1002.5, 1003.0)
        );
        assert_eq!(read_all(&directory.path().join("none"))?.len(), 0);
        Ok(())
    }
}
