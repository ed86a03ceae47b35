//! Draws keys of a server.
//!
//! A draw is a place of the hash tables, each equally likely, with all keys there: so all keys are equally likely,
//! however long their chains are. A small cache is looked at as a whole.

use std::time::Instant;

use anyhow::{Context as _, bail};
use evictscope_host::printable;
use regex::bytes::{Match, Regex};

use super::KeysArguments;
use super::allocator::Allocator;
use super::databases::{Databases, KeyTables};
use super::dict::DictEntry;
use super::layout::KeyspaceLayout;
use super::memory::{Memory, Walk};
use super::object::Object;
use super::size::Sizes;
use crate::clock::unix_time;

/// Seconds that the clock kept with each key counts before it starts again.
const CLOCK: u64 = 1 << 24;
/// Draws between two looks at the sizes of the tables: as many as there are tables, within these bounds.
const ROUND: [usize; 2] = [256, 16_384];
/// How often the tables are read again while they change.
const TRIES: u32 = 1_000;
/// How many entries decide which allocator it is, and how many places are looked at for each.
const VOTES: usize = 51;
const SPARSE: usize = 1_000;
/// How many bytes of a name an expression is matched against.
const NAME: usize = 512;

pub struct DrawnKey {
    /// Its type and encoding.
    pub kind: (&'static str, &'static str),
    /// What the expression matched in its name.
    pub group: Option<String>,
    pub bytes: u64,
    /// How long it had not been used, in seconds; if it has a counter, that means nothing. `None` if its clock is older
    /// than the server, as it came with the key or is of another policy, or if others share it.
    pub idle: Option<u64>,
    /// Its counter, if it has one.
    pub counter: u8,
    /// How long it has to live, in seconds, if it expires.
    pub ttl: Option<f64>,
}

#[derive(Default)]
pub struct Drawn {
    pub keys: Vec<DrawnKey>,
    /// Keys and places that were inconsistent.
    pub rejected: u64,
    /// The server's keys before and after the drawing.
    pub all: [u64; 2],
    /// Whether each key was looked at.
    pub is_whole: bool,
    /// How long the drawing took, in seconds.
    pub seconds: f64,
}

/// Draws until there are enough keys, or the time is over. The server has run since `started`, in seconds since 1970.
/// Fails if the process ends, or no key was read.
pub fn draw(memory: &Memory, databases: &Databases, arguments: &KeysArguments, started: u64) -> anyhow::Result<Drawn> {
    let begun = Instant::now();
    let mut tables = read(memory, databases)?;
    let walk = memory.another(Walk::Allocator(arguments.seconds / 4));
    let allocator = Allocator::of(&walk, arguments.pid, &allocations(&walk, databases.layout, &tables));
    let drawing = memory.another(Walk::Draw(arguments.seconds.saturating_sub(begun.elapsed())));
    let mut sampler = KeySampler {
        memory: &drawing,
        layout: databases.layout,
        arguments,
        started,
        allocator,
        drawn: Drawn::default(),
    };
    let (before, size) = (tables.used(), tables.places());
    let is_small = size.max(before) <= u64::from(arguments.samples);
    // In random order, so that what was seen represents the rest if the time runs out.
    let mut order: Vec<u64> = if is_small { (0..size).collect() } else { Vec::new() };
    fastrand::shuffle(&mut order);
    let mut is_whole = is_small;
    loop {
        let size = tables.places().max(1);
        let round = tables.count().clamp(ROUND[0], ROUND[1]).min(if is_small { order.len() } else { usize::MAX });
        for _ in 0..round {
            if drawing.is_spent() {
                break;
            }
            sampler.look(&tables, order.pop().filter(|_| is_whole).unwrap_or_else(|| fastrand::u64(..size)));
        }
        let now = read(memory, databases)?;
        // Keys that come, go or move to the other table meanwhile may be missed, or seen twice: the rest is drawn at
        // random.
        is_whole &= now == tables;
        tables = now;
        let is_done = if is_small { order.is_empty() } else { sampler.drawn.keys.len() >= arguments.samples as usize };
        if is_done || drawing.is_spent() {
            break;
        }
    }
    let mut drawn = sampler.drawn;
    let after = tables.used();
    if drawn.keys.is_empty() && after > 0 {
        bail!(
            "none of its {after} keys was read: allow more --seconds, and report this server's version if that does not help"
        );
    }
    drawn.all = [before, after];
    drawn.is_whole = is_whole && order.is_empty();
    drawn.seconds = begun.elapsed().as_secs_f64();
    Ok(drawn)
}

/// Reads the tables, again if they are about to change. It takes no time from a drawing, whose end must not pass for
/// theirs.
pub(super) fn read(memory: &Memory, databases: &Databases) -> anyhow::Result<KeyTables> {
    let memory = &memory.another(Walk::Tables);
    let mut tries = (0..TRIES).filter_map(|_| databases.tables(memory));
    tries.next().context("the databases can no longer be read: has the process ended?")
}

/// Returns where some entries are, or the heads of values that have keys with them, and what was asked for each.
fn allocations(memory: &Memory, layout: &KeyspaceLayout, tables: &KeyTables) -> Vec<(u64, u64)> {
    let size = tables.places().max(1);
    let chains = (0..VOTES * SPARSE).map(|_| fastrand::u64(..size)).filter_map(|place| {
        let (_, table, place) = tables.find(memory, place)?;
        table.chain(memory, place)
    });
    let made = |entry: DictEntry| {
        if layout.object.key == 0 {
            return Some((entry.pointer & !7, entry.allocated));
        }
        let object = Object::read(memory, layout, entry.key)?;
        Some((entry.key - object.before, object.allocated(memory)?))
    };
    chains.flatten().filter_map(made).take(VOTES).collect()
}

struct KeySampler<'a> {
    memory: &'a Memory,
    layout: &'static KeyspaceLayout,
    arguments: &'a KeysArguments,
    started: u64,
    allocator: Allocator,
    drawn: Drawn,
}

impl KeySampler<'_> {
    fn look(&mut self, tables: &KeyTables, place: u64) {
        // A table that has moved is read again before the next round.
        let Some((keys, table, place)) = tables.find(self.memory, place) else { return };
        let Some(chain) = table.chain(self.memory, place) else {
            self.drawn.rejected += 1;
            return;
        };
        for entry in chain {
            let twin = || keys.expires.twin(self.memory, entry.key, place, table.size);
            match self.key(&entry, twin) {
                Some(key) => self.drawn.keys.push(key),
                None if self.memory.is_spent() => return,
                None => self.drawn.rejected += 1,
            }
        }
    }

    /// Looks at a key, and at its entry among those that expire. Returns `None` if anything about it is inconsistent,
    /// or has changed meanwhile.
    fn key(&self, entry: &DictEntry, twin: impl Fn() -> Option<Option<DictEntry>>) -> Option<DrawnKey> {
        let memory = self.memory;
        let sizes = Sizes { memory, layout: self.layout, allocator: self.allocator };
        let has_key = self.layout.object.key != 0;
        let address = if has_key { entry.key } else { entry.value };
        let object = Object::read(memory, self.layout, address)?;
        let bytes = sizes.key(entry, &object)?;
        let now = unix_time();
        let expires = if has_key { object.expires } else { twin()?.map(|twin| twin.value) };
        let ttl = expires.map(|expires| (expires.cast_signed() as f64 / 1e3 - now.as_secs_f64()).max(0.0));
        let name = if has_key { object.key } else { entry.key };
        let group = if let Some(expression) = &self.arguments.by { Some(self.group(expression, name)?) } else { None };
        // Each key has its own `now`: a drawing may take minutes.
        let idle = (now.as_secs() % CLOCK + CLOCK - u64::from(object.lru)) % CLOCK;
        let is_known = !object.is_shared && idle <= now.as_secs().saturating_sub(self.started);
        let is_same = entry.is_same(memory, self.layout)? && Object::read(memory, self.layout, address)?.is(&object);
        is_same.then_some(DrawnKey {
            kind: object.names()?,
            group,
            bytes,
            idle: is_known.then_some(idle),
            counter: object.lru as u8,
            ttl,
        })
    }

    /// Returns what an expression matches in the name of a key.
    fn group(&self, expression: &Regex, key: u64) -> Option<String> {
        let length = self.memory.string(key)?.length;
        let mut name = vec![0; NAME.min(length as usize)];
        self.memory.fill(key, &mut name)?;
        let group = expression.captures(&name).and_then(|found| found.get(1).or_else(|| found.get(0)));
        let text = |group: Match<'_>| printable(&String::from_utf8_lossy(group.as_bytes()));
        Some(group.map_or_else(|| "(no match)".to_owned(), text))
    }
}
