//! Reads the counters that a server has of each of its commands: often while clients wait, else once a second, and not
//! at all while it executes none.

use std::sync::Arc;
use std::time::Duration;

use evictscope_host::Words;
use evictscope_model::{Member, ProcessAddress};
use evictscope_plan::ProbePlan;
use evictscope_telemetry::{CommandCounts, CommandLog, ServerState, Snapshot};
use parking_lot::Mutex;

/// How often they are read while nothing happens.
const INTERVAL: Duration = Duration::from_millis(950);
/// The most bytes to read at once for several entries: memory of this size is at hand, larger memory has to be mapped.
const RANGE: u64 = 32 << 10;

/// Entries that are read at once.
struct EntryRange {
    begin: u64,
    len: usize,
    /// The places of the entries among all, and where each is in the range.
    entries: Vec<(usize, usize)>,
}

#[derive(Default)]
pub struct CommandReader {
    ranges: Vec<EntryRange>,
    /// How many entries there are.
    entries: usize,
    /// Where the counters are in an entry: calls, microseconds, and rejected and failed calls.
    offsets: [Option<usize>; 4],
    /// What was read, until it turns out to be something else.
    pub log: Arc<Mutex<CommandLog>>,
    is_wrong: bool,
    /// When they were last read, and how many commands the server had executed.
    read: Option<(Duration, Option<u64>)>,
    /// Whether clients waited at the last reading, and whether clients were stalled at the last look.
    did_clients_wait: bool,
    is_stalled: bool,
}

impl CommandReader {
    /// Returns what reads them in a process that was loaded with `load_bias`, if they were found.
    pub fn of(plan: &ProbePlan, load_bias: u64) -> Option<Self> {
        let found = plan.commands.as_ref()?;
        let mut entries: Vec<_> =
            (found.entries().enumerate()).map(|(place, (_, address))| (address.at(load_bias).get(), place)).collect();
        entries.sort_unstable();
        let mut ranges: Vec<EntryRange> = Vec::new();
        for (address, place) in &entries {
            let end = |begin: u64| address.saturating_add(found.stride).saturating_sub(begin);
            match ranges.last_mut() {
                Some(range) if end(range.begin) <= RANGE => {
                    range.entries.push((*place, (address - range.begin) as usize));
                    range.len = end(range.begin) as usize;
                }
                _ => {
                    ranges.push(EntryRange { begin: *address, len: found.stride as usize, entries: vec![(*place, 0)] })
                }
            }
        }
        Some(Self {
            entries: entries.len(),
            offsets: [Some(found.calls), Some(found.microseconds), found.rejected, found.failed]
                .map(|at| at.map(|at| at as usize)),
            log: Arc::new(Mutex::new(CommandLog::new(found.entries().map(|(name, _)| name.to_owned()).collect()))),
            ranges,
            ..Self::default()
        })
    }

    /// Reads them if that is due at a reading, which `state` has taken in. `do_clients_wait` says whether clients
    /// wait for long. Returns whether they are still what they seem.
    pub fn follow(&mut self, words: &Words, snapshot: &Snapshot, state: &ServerState, do_clients_wait: bool) -> bool {
        if snapshot.look.is_some() {
            self.is_stalled = state.stalled_by.is_some();
        }
        let did_clients_wait = std::mem::replace(&mut self.did_clients_wait, do_clients_wait);
        let at = snapshot.at;
        let is_late = self.read.is_none_or(|(read, _)| at.saturating_sub(read) >= INTERVAL);
        if self.is_wrong || !(is_late || do_clients_wait || did_clients_wait || self.is_stalled) {
            return true;
        }
        let processed = snapshot.members.as_ref().and_then(|members| members.get(Member::StatNumcommands));
        if processed.is_some() && self.read.is_some_and(|(_, before)| before == processed) {
            self.log.lock().rested(at);
            self.read = Some((at, processed));
            return true;
        }
        // Its memory is gone, or could not be read for a moment.
        let Some(counts) = self.counts(words) else { return true };
        self.read = Some((at, processed));
        let mut log = self.log.lock();
        self.is_wrong = !log.take_in(at, counts, processed, self.is_stalled);
        if self.is_wrong {
            *log = CommandLog::default();
        }
        !self.is_wrong
    }

    fn counts(&self, words: &Words) -> Option<Vec<CommandCounts>> {
        let mut counts = vec![CommandCounts::default(); self.entries];
        let mut bytes = Vec::new();
        for range in &self.ranges {
            bytes.resize(range.len, 0);
            words.fill(ProcessAddress::new(range.begin), &mut bytes).then_some(())?;
            for (place, at) in &range.entries {
                let word = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
                let [calls, us, rejected, failed] =
                    self.offsets.map(|offset| offset.map_or(Some(0), |offset| word(at + offset)));
                *counts.get_mut(*place)? =
                    CommandCounts { calls: calls?, us: us?, rejected: rejected?, failed: failed? };
            }
        }
        Some(counts)
    }
}
