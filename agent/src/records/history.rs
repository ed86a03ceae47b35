//! The last day of each server, a moment a second, in files of five minutes each.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::RecordId;
use super::folder::Folder;
use super::packed;
use super::record::compact_time;
use super::store::ENDING;
use crate::telemetry::Moment;

/// The time that a file covers at most.
const CHUNK_US: u64 = 300_000_000;
/// For how long a file is kept.
const KEPT: Duration = Duration::from_secs(24 * 3_600);
/// A server of which no moment came for this time has ended, or cannot be read.
const ENDED: Duration = Duration::from_secs(60);

/// Moments of one server.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chunk {
    about: About,
    moments: Vec<Moment>,
}

/// What the first line of a file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct About {
    /// The server's name in metrics.
    server: String,
    /// Its process id.
    pid: u32,
    /// When counting began: between moments with different ones, counters begin again.
    counting_since_us: u64,
    /// The time of the first moment.
    began_us: u64,
}

impl Chunk {
    /// Tells whether it is of the server with this label.
    pub(super) fn is_of(&self, server: &str) -> bool {
        self.about.server == server
    }

    /// Returns the name of its file.
    pub(super) fn id(&self) -> RecordId {
        RecordId::new(self.about.began_us, &self.about.server, self.about.pid)
    }

    /// Returns the content of its file.
    pub(super) fn packed(&self) -> io::Result<Vec<u8>> {
        packed::pack(&self.about, &self.moments)
    }

    /// Tells whether the next moment of this server belongs to the same counting: the counters of the agent itself have not begun
    /// again, and the clock was not set back.
    fn is_continued_by(&self, pid: u32, next: &Moment) -> bool {
        let last = self.moments.last();
        pid == self.about.pid
            && last.is_none_or(|last| {
                last.unix_us < next.unix_us
                    && last.observed_us <= next.observed_us
                    && last.evicting_calls <= next.evicting_calls
                    && last.evicting_us <= next.evicting_us
                    && last.expiring_us <= next.expiring_us
                    && last
                        .cpu_us
                        .zip(next.cpu_us)
                        .is_none_or(|(last, next)| last <= next)
            })
    }
}

fn window(unix_us: u64) -> u64 {
    unix_us / CHUNK_US
}

/// Moments that are in no file yet.
#[derive(Debug, Default)]
pub(super) struct Gathering(BTreeMap<String, Open>);

/// A chunk that still grows.
#[derive(Debug)]
struct Open {
    chunk: Chunk,
    /// When the last moment came.
    grew: Instant,
}

impl Gathering {
    /// Adds a moment, and returns the file that it does not belong to any more.
    pub(super) fn note(&mut self, server: &str, pid: u32, moment: &Moment) -> Option<Chunk> {
        let grew = Instant::now();
        let mut since = moment.unix_us;
        if let Some(open) = self.0.get_mut(server)
            && open.chunk.is_continued_by(pid, moment)
        {
            if window(open.chunk.about.began_us) == window(moment.unix_us) {
                open.chunk.moments.push(*moment);
                open.grew = grew;
                return None;
            }
            since = open.chunk.about.counting_since_us;
        }
        let chunk = Chunk {
            about: About {
                server: server.to_owned(),
                pid,
                counting_since_us: since,
                began_us: moment.unix_us,
            },
            moments: vec![*moment],
        };
        let before = self.0.insert(server.to_owned(), Open { chunk, grew });
        before.map(|open| open.chunk)
    }

    /// Takes the moments of servers that have ended: no more came for a while.
    pub(super) fn take_ended(&mut self) -> Vec<Chunk> {
        let has_ended = |open: &Open| open.grew.elapsed() > ENDED;
        let ended = self.0.extract_if(.., |_, open| has_ended(open));
        ended.map(|(_, open)| open.chunk).collect()
    }

    /// Takes all moments.
    pub(super) fn take_all(&mut self) -> Vec<Chunk> {
        let all = std::mem::take(&mut self.0).into_values();
        all.map(|open| open.chunk).collect()
    }

    /// Drops the moments of one server.
    pub(super) fn forget(&mut self, server: &str) {
        self.0.remove(server);
    }

    /// Returns the last moments of one server.
    pub(super) fn of(&self, server: &str) -> Option<Chunk> {
        self.0.get(server).map(|open| open.chunk.clone())
    }
}

/// The folder of files.
#[derive(Clone, Debug)]
pub(super) struct History(Folder);

impl History {
    /// Returns the folder at this path, which need not exist.
    pub(super) fn at(path: PathBuf) -> Self {
        Self(Folder::at(path))
    }

    /// Makes the folder where it does not exist.
    pub(super) fn prepare(&self) -> io::Result<()> {
        self.0.prepare()
    }

    /// Returns the folder.
    pub(super) fn folder(&self) -> &Folder {
        &self.0
    }

    /// Removes files that are older than a day.
    pub(super) fn remove_old(&self, now_us: u64) -> io::Result<()> {
        let limit = compact_time(now_us.saturating_sub(KEPT.as_micros() as u64 + CHUNK_US));
        for (id, name) in self.files()? {
            if id.as_str() < limit.as_str() {
                self.0.remove(name)?;
            }
        }
        Ok(())
    }

    /// Removes the files of a server.
    pub(super) fn remove_of(&self, server: &str, pid: u32) -> io::Result<()> {
        for (id, name) in self.files()? {
            if id.is_of(server) && id.has_pid(pid) {
                self.0.remove(name)?;
            }
        }
        Ok(())
    }

    /// Reads what there is of a server from a time on, the oldest first; `unwritten` are the last of its moments, which are in no
    /// file yet, or only just. What is damaged is left out.
    pub(super) fn read(
        &self,
        server: &str,
        from_us: u64,
        unwritten: Vec<Chunk>,
    ) -> io::Result<Vec<Vec<Moment>>> {
        let limit = compact_time(from_us.saturating_sub(CHUNK_US));
        let mut files = self.files()?;
        files.retain(|(id, _)| id.as_str() >= limit.as_str() && id.is_of(server));
        files.sort();
        let is_unwritten = |id: &RecordId| unwritten.iter().any(|chunk| chunk.id() == *id);
        files.retain(|(id, _)| !is_unwritten(id));
        let written = files.iter().filter_map(|(_, name)| self.chunk(name));
        let mut stretches: Vec<Vec<Moment>> = Vec::new();
        let mut counting = None;
        let own = |chunk: &Chunk| chunk.is_of(server);
        for chunk in written.chain(unwritten).filter(own) {
            let since = (chunk.about.pid, chunk.about.counting_since_us);
            let moments = chunk.moments.into_iter();
            let mut moments = moments
                .filter(|moment| moment.unix_us >= from_us)
                .peekable();
            if moments.peek().is_none() {
                continue;
            }
            match stretches.last_mut() {
                Some(stretch) if counting == Some(since) => stretch.extend(moments),
                _ => stretches.push(moments.collect()),
            }
            counting = Some(since);
        }
        Ok(stretches)
    }

    fn chunk(&self, name: &str) -> Option<Chunk> {
        let (file, metadata) = self.0.open(name).ok()?;
        let (about, moments) = packed::read_all(file, metadata.len()).ok()?;
        Some(Chunk { about, moments })
    }

    /// Returns our own files: their names without and with the ending.
    fn files(&self) -> io::Result<Vec<(RecordId, String)>> {
        let files = self.0.entries()?.into_iter().filter(|entry| entry.is_file);
        let files = files.filter_map(|entry| {
            let name = entry.name.into_string().ok()?;
            let id = RecordId::try_from(name.strip_suffix(ENDING)?.to_owned()).ok()?;
            id.has_time().then_some((id, name))
        });
        Ok(files.collect())
    }
}
