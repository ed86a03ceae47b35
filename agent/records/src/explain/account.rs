//! What memory went to: an account of its parts from just before evictions began to their peak.
//!
//! At the limit, what takes memory has to be freed elsewhere, so used memory hardly shows it. It shows in each part by
//! itself, and in how much memory falls when the buffers are released: what was evicted for them is gone.

use evictscope_telemetry::{ClientBuffers, MemoryPart, Moment};

use super::cause_kind::CauseKind;
use super::expiry::{self, Behind};
use super::growth::{Growth, bytes_of_parts, grown_parts, growth, growth_since_lowest, rise};
use super::step::{self, MemoryStep};
use super::window::{LATELY_US, Window};
use crate::text::{count, size};

/// The least that an evicted key frees, where the mean size of keys is not known: a `dictEntry` of 24 bytes and the
/// shortest string for its name.
const LEAST_KEY: f64 = 32.0;

/// What memory went to. What is not known is `None`.
#[derive(Clone, Debug)]
pub struct Account {
    /// Client buffers except those of replicas.
    pub client_buffers: Option<Growth>,
    /// The client buffers in the calm before, and at their peak.
    pub classes: Option<(ClientBuffers, ClientBuffers)>,
    /// Buffers of replicas, as the server accounts them to clients: each replica that shares a buffer has all of it.
    pub replicas: Option<Growth>,
    /// Replication and AOF buffers that do not count against `maxmemory`.
    pub not_counted: Option<Growth>,
    /// Other parts of memory that are no keys, and grew for more than a moment.
    pub parts: Vec<(CauseKind, Growth)>,
    pub table: Option<MemoryStep>,
    pub expired: Option<Behind>,
    /// How far memory fell from its highest to the lowest after it, bytes.
    pub fallen: Option<u64>,
    /// What commands wrote while evictions went on, net of what expired and was deleted, estimated, bytes.
    pub written: Option<u64>,
    /// The mean size of the server's keys with their values, where its parts of memory are read, bytes.
    mean_key: Option<f64>,
    /// By how much all but the buffers and these parts rose per second in the later half of the calm before, bytes.
    pub rise_before: Option<f64>,
    pub lowered: Option<LoweredLimit>,
}

/// How `maxmemory` was lowered, bytes.
#[derive(Clone, Copy, Debug)]
pub struct LoweredLimit {
    /// 0 if there was no limit.
    pub from: u64,
    pub to: u64,
    /// Used memory before the first step.
    pub used: u64,
    pub steps: usize,
}

impl Account {
    pub fn of(window: &Window<'_>) -> Self {
        let mut account = Self {
            client_buffers: growth(window, |moment| moment.client_buffers.map(without_replicas)),
            classes: classes(window),
            replicas: growth_since_lowest(window, |moment| Some(moment.client_buffers?.replica)),
            not_counted: growth_since_lowest(window, |moment| moment.not_counted),
            parts: grown_parts(window),
            table: step::resized_table(window),
            expired: None,
            fallen: fallen(window),
            written: None,
            mean_key: mean_key(window),
            rise_before: rise_before(window),
            lowered: lowered(window),
        };
        account.written = account.estimate_written(window);
        account.expired = (account.fallen).and_then(|fallen| expiry::found(window, fallen));
        account
    }

    /// Returns by how much replication and AOF buffers grew, bytes. The server accounts a shared buffer to each of its
    /// replicas: half of that is what two of them hold.
    pub fn replication(&self) -> Option<u64> {
        let grown = |part: Option<Growth>| Some(part.filter(Growth::is_lasting)?.bytes());
        grown(self.not_counted).max(grown(self.replicas).map(|bytes| bytes / 2))
    }

    /// Returns by how much the measured parts grew, bytes.
    fn measured(&self) -> u64 {
        let client_buffers = self.client_buffers.map_or(0, |growth| growth.bytes());
        let table = self.table.map_or(0, |table| table.bytes);
        let parts = self.parts.iter().map(|(_, growth)| growth.bytes());
        parts.chain([client_buffers, table, self.replication().unwrap_or(0)]).fold(0, u64::saturating_add)
    }

    /// Returns what commands wrote while evictions went on, less what expired and was deleted, bytes. Takes the higher
    /// of two estimates: each command wrote as much as before; what was evicted, but made no room for anything
    /// measured, made room for something new. Where the size of keys is not known, they err on the low side.
    fn estimate_written(&self, window: &Window<'_>) -> Option<u64> {
        let evicted = window.evicted_keys()? as f64;
        // If nothing was evicted, nothing had to make room.
        if evicted == 0.0 {
            return Some(0);
        }
        // A rise is not assumed to last longer than it was seen.
        let length = window.seconds().min(window.calm_length().as_secs_f64());
        let length = length * window.commands_kept().unwrap_or(1.0).min(1.0);
        let by_rise = self.rise_before.map_or(0.0, |rise| rise * length);
        let used = |moment: Option<&Moment>| Some(moment?.used_memory? as f64);
        let change = used(window.inside.first()).zip(used(window.inside.last())).map(|(first, last)| last - first);
        let key = self.mean_key.unwrap_or(LEAST_KEY).max(LEAST_KEY);
        let by_keys = change.map_or(0.0, |change| evicted * key - self.measured() as f64 + change.min(0.0));
        Some(by_rise.max(by_keys).max(0.0) as u64)
    }

    /// Says how much commands wrote: some bytes, or at least so many.
    pub fn written_text(&self, written: u64) -> String {
        let written = size(written);
        if self.mean_key.is_some() { format!("some {written}") } else { format!("{written} or more") }
    }

    /// Returns everything that took memory, and what fell without an explanation, bytes; `None` if memory is not known.
    pub fn total(&self) -> Option<f64> {
        let measured = self.measured();
        Some(measured.saturating_add(self.fallen?.saturating_sub(measured)) as f64 + self.written.unwrap_or(0) as f64)
    }

    /// Says that the evidence decides nothing, and why.
    pub fn why_undecided(&self, window: &Window<'_>) -> String {
        let mut missing = Vec::new();
        if !window.has_calm() {
            missing.push(format!(
                "only {:.1} s without evictions are known before it, so what is usual is not known",
                window.calm_length().as_secs_f64()
            ));
        }
        let lacks = [
            (self.fallen.is_none(), "used memory is"),
            (self.client_buffers.is_none(), "client buffers are"),
            (window.evicted_keys().is_none(), "evicted keys are"),
            (window.slowest().next().is_none(), "single evicting calls are"),
        ];
        let lacks = lacks.into_iter().filter(|(is_missing, _)| *is_missing);
        missing.extend(lacks.map(|(_, what)| format!("{what} not known")));
        if !missing.is_empty() {
            return format!("The evidence is inconclusive: {}.", missing.join("; "));
        }
        let grown = self.client_buffers.map(|growth| growth.bytes());
        let keys = window.evicted_keys();
        let parts = [
            (self.fallen).map(|bytes| format!("memory fell by {} from its peak", size(bytes))),
            grown.map(|bytes| format!("client buffers grew by {}", size(bytes))),
            (self.written).map(|bytes| format!("writes took {}", self.written_text(bytes))),
            keys.map(|keys| format!("{} keys were evicted", count(keys as f64))),
        ];
        let parts = Vec::from_iter(parts.into_iter().flatten()).join(", ");
        format!("The evidence is inconclusive: {parts}, and no single cause explains that.")
    }
}

/// Returns the mean size of keys when evictions began, bytes.
fn mean_key(window: &Window<'_>) -> Option<f64> {
    let parts = window.inside.iter().chain(window.calm.iter().rev()).find_map(|moment| moment.memory)?;
    let values = parts.get(MemoryPart::Rest)?.saturating_sub(parts.tracking_table().unwrap_or_default());
    Some(values as f64 / parts.keys.filter(|keys| *keys > 0)? as f64)
}

/// Returns the classes in the calm, at the median of their sum, and at their peak.
fn classes(window: &Window<'_>) -> Option<(ClientBuffers, ClientBuffers)> {
    let all = |moments: &[Moment]| {
        let mut buffers: Vec<_> = moments.iter().filter_map(|moment| moment.client_buffers).collect();
        buffers.sort_by_key(|buffers| without_replicas(*buffers));
        buffers
    };
    let (calm, whole) = (all(window.calm), all(window.whole));
    let median = calm.get(calm.len() - calm.len().div_ceil(2))?;
    Some((*median, *whole.last()?))
}

/// Returns by how much memory fell from its highest to the lowest after that.
fn fallen(window: &Window<'_>) -> Option<u64> {
    window.burst().and_then(|burst| Some(burst.memory_peak?.saturating_sub(burst.memory_after?))).or_else(|| {
        let used = |moment: &Moment| moment.used_memory;
        let peak = window.inside.iter().filter_map(used).max()?;
        let mut whole = window.whole.iter();
        whole.find(|moment| used(moment) == Some(peak))?;
        Some(peak.saturating_sub(whole.filter_map(used).fold(peak, u64::min)))
    })
}

/// Returns by how much everything but client buffers and, where they are read, the parts that are no keys rose per
/// second in the calm before.
fn rise_before(window: &Window<'_>) -> Option<f64> {
    if !window.has_calm() {
        return None;
    }
    let knows_parts = window.settled().iter().any(|moment| moment.memory.is_some());
    let rest = |moment: &Moment| {
        let parts = if knows_parts { bytes_of_parts(moment)? } else { 0 };
        let rest = moment.used_memory? as f64 - moment.client_buffers?.total() as f64 - parts as f64;
        Some((window.seconds_since_calm(moment), rest))
    };
    let values: Vec<_> = window.settled().iter().filter_map(rest).collect();
    rise(&values)
}

/// Returns how `maxmemory` was lowered, if used memory was above the lower limit and within the higher.
fn lowered(window: &Window<'_>) -> Option<LoweredLimit> {
    // Its effect may have begun with an earlier burst, or before clients were stalled.
    let span = window.began_us.saturating_sub(LATELY_US)..=window.evicted_until_us;
    let moments = window.record.moments.iter().filter(|moment| span.contains(&moment.unix_us()));
    let steps = moments.clone().zip(moments.skip(1)).filter_map(|(before, after)| {
        let (from, to) = (before.maxmemory?, after.maxmemory?);
        let used = before.used_memory?;
        (to > 0 && (to < from || from == 0) && used > to).then_some((from, to, used))
    });
    let steps = Vec::from_iter(steps);
    let (from, _, used) = *steps.first()?;
    let to = steps.iter().map(|(_, to, _)| *to).min()?;
    (from == 0 || used <= from).then_some(LoweredLimit { from, to, used, steps: steps.len() })
}

pub fn without_replicas(buffers: ClientBuffers) -> u64 {
    buffers.normal.saturating_add(buffers.pubsub).saturating_add(buffers.primary)
}
