//! Draws keys of a server.
//!
//! A draw is a place of the hash tables, each as likely as any other, with all keys there: so each key is as likely
//! as any other, however long its chain is. A small cache is looked through as a whole.

use std::time::{Instant, SystemTime};

use anyhow::{Context as _, bail};

use super::Question;
use super::allocator::Allocator;
use super::databases::{Database, Databases};
use super::dict::Entry;
use super::memory::Memory;
use super::value::{Object, Sizes};

/// Seconds of the clock that is kept with each key, before it begins anew.
const CLOCK: u64 = 1 << 24;
/// Draws between two looks at how large the tables are, and at the time.
const ROUND: u32 = 256;
/// How often the tables are read again while they change.
const TRIES: u32 = 1_000;
/// Bytes of a name that an expression is matched in.
const NAME: usize = 512;

/// A key that was drawn.
pub struct Key {
    /// Its type and encoding.
    pub kind: (&'static str, &'static str),
    /// By what the expression matched in its name.
    pub group: Option<String>,
    /// What it takes.
    pub bytes: u64,
    /// For how long it had not been used, seconds; where it has a counter, that means nothing.
    pub idle: u64,
    /// Its counter, where it has one.
    pub counter: u8,
    /// How long it has to live, seconds, where it expires.
    pub ttl: Option<f64>,
}

/// What was drawn.
#[derive(Default)]
pub struct Drawn {
    /// The keys.
    pub keys: Vec<Key>,
    /// Keys and places that were not consistent.
    pub rejected: u64,
    /// Keys of the server before and after it.
    pub all: [u64; 2],
    /// Whether each key was looked at.
    pub is_whole: bool,
    /// For how long it was looked, seconds.
    pub seconds: f64,
}

/// Draws until there are enough keys, or the time is over.
pub fn draw(memory: &Memory, databases: &Databases, question: &Question) -> anyhow::Result<Drawn> {
    let begun = Instant::now();
    let mut drawn = Drawn::default();
    let mut tables = read(memory, databases)?;
    let all = |tables: &[Database]| tables.iter().map(|one| one.keys.used()).sum::<u64>();
    let places = |tables: &[Database]| tables.iter().map(|one| one.keys.size()).sum::<u64>();
    drawn.all = [all(&tables); 2];
    let mut allocator = None;
    if places(&tables) <= u64::from(question.samples) {
        drawn.is_whole = true;
        for place in 0..places(&tables) {
            look(
                memory,
                databases,
                &tables,
                place,
                &mut allocator,
                question,
                &mut drawn,
            );
            if begun.elapsed() > question.length {
                bail!(
                    "the cache was not looked through in time: allow more --seconds, or fewer --samples than {}",
                    places(&tables)
                );
            }
        }
    } else {
        while drawn.keys.len() < question.samples as usize && begun.elapsed() < question.length {
            for _ in 0..ROUND {
                let place = fastrand::u64(..places(&tables).max(1));
                look(
                    memory,
                    databases,
                    &tables,
                    place,
                    &mut allocator,
                    question,
                    &mut drawn,
                );
            }
            tables = read(memory, databases)?;
        }
    }
    drawn.all[1] = all(&tables);
    drawn.seconds = begun.elapsed().as_secs_f64();
    Ok(drawn)
}

/// Reads the tables, again where they are about to change.
fn read(memory: &Memory, databases: &Databases) -> anyhow::Result<Vec<Database>> {
    let mut tries = (0..TRIES).filter_map(|_| databases.all(memory));
    tries
        .next()
        .context("the databases cannot be read any more: the process has ended")
}

/// Looks at the keys at one place.
fn look(
    memory: &Memory,
    databases: &Databases,
    tables: &[Database],
    mut place: u64,
    allocator: &mut Option<Allocator>,
    question: &Question,
    drawn: &mut Drawn,
) {
    for database in tables {
        let size = database.keys.size();
        if place >= size {
            place -= size;
            continue;
        }
        let (table, place) = database.keys.place(place);
        let Some(chain) = table.chain(memory, place) else {
            drawn.rejected += 1;
            return;
        };
        for entry in chain {
            if allocator.is_none() {
                *allocator = Allocator::of(memory, question.pid, entry.address);
            }
            let key = allocator.and_then(|allocator| {
                let sizes = Sizes {
                    memory,
                    layout: databases.layout(),
                    allocator,
                };
                let twin = || database.expires.twin(memory, entry.key, place, table.size);
                key(&sizes, &entry, twin, question)
            });
            match key {
                Some(key) => drawn.keys.push(key),
                None => drawn.rejected += 1,
            }
        }
        return;
    }
}

/// Looks at a key. `None` where something about it is not consistent, or has changed meanwhile.
fn key(
    sizes: &Sizes<'_>,
    entry: &Entry,
    twin: impl Fn() -> Option<Option<Entry>>,
    question: &Question,
) -> Option<Key> {
    let memory = sizes.memory;
    let object = Object::read(memory, entry.value)?;
    let bytes = sizes.key(entry, &object)?;
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .ok()?;
    let ttl = twin()?.map(|twin| {
        let expires = twin.value.cast_signed() as f64 / 1e3;
        (expires - now.as_secs_f64()).max(0.0)
    });
    let group = match &question.by {
        None => None,
        Some(expression) => {
            let mut name = vec![0; NAME.min(memory.string(entry.key)?.length as usize)];
            memory.fill(entry.key, &mut name)?;
            let found = expression.captures(&name);
            let group = found.and_then(|found| found.get(1).or_else(|| found.get(0)));
            let text = group.map(|group| String::from_utf8_lossy(group.as_bytes()).into_owned());
            Some(text.unwrap_or_else(|| "(no match)".to_owned()))
        }
    };
    let [key, value] = memory.words(entry.address)?;
    let is_same =
        (key, value) == (entry.key, entry.value) && Object::read(memory, entry.value)?.is(&object);
    is_same.then_some(Key {
        kind: object.names()?,
        group,
        bytes,
        idle: (now.as_secs() % CLOCK + CLOCK - u64::from(object.lru)) % CLOCK,
        counter: object.lru as u8,
        ttl,
    })
}
