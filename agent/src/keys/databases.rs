//! Where a server's databases are.
//!
//! `server` has a pointer to them before its counters. What it points to shows which word that is: an array whose
//! databases are numbered from 0, each with two sound hash tables. Exactly one word must do.

use anyhow::bail;

use super::dict::Dict;
use super::layout::Layout;
use super::memory::Memory;

/// Bytes before the first member of `server` that is known, and behind it, that are looked through.
const BEFORE: u64 = 512;
const BEHIND: u64 = 1_024;
/// Most databases that are looked at.
const MOST: u64 = 16_384;
/// Words of a database that are looked at.
const WORDS: usize = 10;

/// The databases of a server.
pub struct Databases {
    layout: &'static Layout,
    first: u64,
    count: u64,
}

/// The two hash tables of a database: its keys, and those with a time to live.
#[derive(Clone, PartialEq, Eq)]
pub struct Database {
    /// Whether there is one.
    is_made: bool,
    /// The keys and their values.
    pub keys: Dict,
    /// Of the keys that expire, when. Empty where that lies with their values.
    pub expires: Dict,
}

impl Databases {
    /// Finds them from the address of a member of `server`.
    pub fn find(memory: &Memory, layout: &'static Layout, member: u64) -> anyhow::Result<Self> {
        let begin = member.saturating_sub(BEFORE) & !7;
        let words = (begin..member + BEHIND).step_by(8);
        let found = words.filter_map(|word| Self::at(memory, layout, memory.u64(word)?));
        let found: Vec<Self> = found.collect();
        match <[Self; 1]>::try_from(found) {
            Ok([databases]) => Ok(databases),
            Err(found) => bail!(
                "{} words of `server` look like the pointer to its databases, not one: members of clusters are not read since Redis 7.4 and Valkey 8.0; otherwise please report this server's version",
                found.len()
            ),
        }
    }

    fn at(memory: &Memory, layout: &'static Layout, first: u64) -> Option<Self> {
        if first == 0 || !first.is_multiple_of(8) {
            return None;
        }
        let mut databases = Self {
            layout,
            first,
            count: 0,
        };
        for number in 0..MOST {
            match databases.read(memory, number) {
                Some(Database { is_made: true, .. }) => databases.count = number + 1,
                Some(_) if databases.count > 0 => {}
                _ => break,
            }
        }
        (databases.count > 0).then_some(databases)
    }

    fn read(&self, memory: &Memory, number: u64) -> Option<Database> {
        let layout = self.layout;
        let step = if layout.has_pointers {
            8
        } else {
            layout.database_bytes
        };
        let mut address = self.first.checked_add(number * step)?;
        if layout.has_pointers {
            address = memory.u64(address)?;
            if address == 0 {
                let none = Dict::empty(layout);
                return Some(Database {
                    is_made: false,
                    keys: none,
                    expires: none,
                });
            }
        }
        let words: [u64; WORDS] = memory.words(address)?;
        let [begin, number_at] = layout.others_at;
        let mut others = words[begin..number_at].iter();
        let has_others = others.all(|dict| Dict::read(memory, layout.others(), *dict).is_some());
        (has_others && words[number_at] as u32 == number as u32).then_some(())?;
        Some(Database {
            is_made: true,
            keys: Dict::read_only(memory, layout, words[0])?,
            expires: match layout.object.expires {
                0 => Dict::read_only(memory, layout, words[1])?,
                _ => Dict::empty(layout),
            },
        })
    }

    /// Reads all of them. `None` where one is about to change.
    pub fn all(&self, memory: &Memory) -> Option<Vec<Database>> {
        (0..self.count)
            .map(|number| self.read(memory, number))
            .collect()
    }

    /// Returns how they are laid out.
    pub fn layout(&self) -> &'static Layout {
        self.layout
    }
}
