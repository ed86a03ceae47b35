//! Finds a server's databases.
//!
//! `server` has a pointer to them before its counters. The right word is known by what it points to: an array whose
//! databases are numbered from 0, each with two sound hash tables, or, in a cluster, two for each slot. Exactly one
//! word must fit.

use anyhow::{Context as _, bail};
use evictscope_model::Member;
use evictscope_plan::ProbePlan;

use super::dict::Dict;
use super::layout::Layout;
use super::memory::Memory;
use super::tables::{Keys, Tables};

/// How many bytes to search before and behind the first known member of `server`.
const BEFORE: u64 = 512;
const BEHIND: u64 = 1_024;
/// The most databases to look at, and the most tables of keys in all of them.
const MOST: u64 = 16_384;
const MOST_TABLES: usize = 1 << 18;
/// Words of a database that are looked at.
const WORDS: usize = 10;

/// The databases of a server.
pub struct Databases {
    layout: &'static Layout,
    first: u64,
    count: u64,
    /// Tables of keys in them, and keys, when they were found.
    tables: usize,
    keys: u64,
}

impl Databases {
    /// Finds the databases of a process whose executable has this plan and was loaded with `bias`.
    pub fn find(memory: &Memory, plan: &ProbePlan, bias: u64) -> anyhow::Result<Self> {
        let layout = Layout::of(&plan.identity)?;
        let members = Member::of_server().filter_map(|member| plan.member(member));
        let first = members.map(|member| member.address.at(bias).get()).min();
        let first = first.context("nothing of `server` was found in it: `evictscope inspect` says why")?;
        let begin = first.saturating_sub(BEFORE) & !7;
        let words = (begin..first + BEHIND).step_by(8);
        let found = words.filter_map(|word| Self::at(memory, layout, memory.u64(word)?));
        let found: Vec<Self> = found.collect();
        if memory.is_spent() {
            bail!("its databases take longer to find than is allowed");
        }
        match <[Self; 1]>::try_from(found) {
            Ok([databases]) if databases.tables > MOST_TABLES => {
                bail!("its keys are in more than {MOST_TABLES} tables, more than are read")
            }
            Ok([databases]) => Ok(databases),
            Err(found) => bail!(
                "{} words of `server` look like the pointer to its databases, not one: please report this server's version",
                found.len()
            ),
        }
    }

    fn at(memory: &Memory, layout: &'static Layout, first: u64) -> Option<Self> {
        if first == 0 || !first.is_multiple_of(8) {
            return None;
        }
        let mut databases = Self { layout, first, count: 0, tables: 0, keys: 0 };
        for number in 0..MOST {
            let Some(address) = databases.address(memory, number) else {
                break;
            };
            match databases.read(memory, number, address) {
                Some(tables) => {
                    databases.count = number + 1;
                    databases.tables += tables.len();
                    databases.keys += tables.iter().map(|keys| keys.all.used()).sum::<u64>();
                }
                None if address == 0 && databases.count > 0 => {}
                None => break,
            }
            if databases.tables > MOST_TABLES {
                break;
            }
        }
        (databases.count > 0).then_some(databases)
    }

    /// Returns where a database is, or 0 if there is none with this number yet.
    fn address(&self, memory: &Memory, number: u64) -> Option<u64> {
        let layout = self.layout;
        match layout.has_pointers {
            true => memory.u64(self.first.checked_add(8 * number)?),
            false => self.first.checked_add(number * layout.database_bytes),
        }
    }

    /// Returns where a database has its keys, and those that expire.
    fn stores(&self, memory: &Memory, number: u64, address: u64) -> Option<[u64; 2]> {
        let layout = self.layout;
        let words: [u64; WORDS] = memory.words(address)?;
        let [begin, number_at] = layout.others_at;
        let mut others = words[begin..number_at].iter();
        let has_others = others.all(|dict| Dict::read(memory, layout.others(), *dict).is_some());
        (has_others && words[number_at] as u32 == number as u32).then_some([words[0], words[1]])
    }

    /// Reads the tables of a database that are not empty.
    fn read(&self, memory: &Memory, number: u64, address: u64) -> Option<Vec<Keys>> {
        let layout = self.layout;
        let [keys, expires] = self.stores(memory, number, address)?;
        let keys = Dict::read_all(memory, layout, keys)?;
        let expires = match layout.object.expires {
            0 => Dict::read_all(memory, layout, expires)?,
            _ => vec![Dict::empty(layout); keys.len()],
        };
        let are_pairs = keys.len() == expires.len();
        let pairs = keys.into_iter().zip(expires);
        let pairs = pairs.filter(|(keys, _)| keys.size() > 0);
        are_pairs.then(|| pairs.map(|(all, expires)| Keys { all, expires }).collect())
    }

    /// Reads the tables of all databases. Returns `None` if one is about to change.
    pub fn tables(&self, memory: &Memory) -> Option<Tables> {
        self.each(memory, |number, address| self.read(memory, number, address))
    }

    /// Reads the tables of the keys that expire, of all databases. Returns `None` if one is about to change.
    pub fn expiring(&self, memory: &Memory) -> Option<Tables> {
        let expires = Dict::empty(self.layout);
        self.each(memory, |number, address| {
            let [_, expiring] = self.stores(memory, number, address)?;
            let own = Dict::read_all(memory, self.layout, expiring)?.into_iter();
            let own = own.filter(|all| all.size() > 0);
            Some(own.map(|all| Keys { all, expires }).collect())
        })
    }

    /// Reads the tables of each database.
    fn each(&self, memory: &Memory, read: impl Fn(u64, u64) -> Option<Vec<Keys>>) -> Option<Tables> {
        let mut tables = Vec::new();
        for number in 0..self.count {
            let address = self.address(memory, number)?;
            if address != 0 {
                tables.extend(read(number, address)?);
            }
            (tables.len() <= MOST_TABLES).then_some(())?;
        }
        Some(Tables::new(tables))
    }

    /// Returns how many keys were in them when they were found.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Returns how they are laid out.
    pub fn layout(&self) -> &'static Layout {
        self.layout
    }
}
