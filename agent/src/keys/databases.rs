//! Finds a server's databases, and the hash tables with their keys: one for each database, or, in a cluster, one for
//! each slot.
//!
//! `server` has a pointer to the databases before its counters. The right word is known by what it points to: an array
//! whose databases are numbered from 0, each with two sound hash tables, or, in a cluster, two for each slot. Exactly
//! one word must fit.

use anyhow::{Context as _, bail, ensure};
use evictscope_model::Member;
use evictscope_plan::ProbePlan;

use super::dict::{Dict, Table};
use super::layout::KeyspaceLayout;
use super::memory::Memory;

/// How many bytes to search before and behind the first known member of `server`.
const BEFORE: u64 = 512;
const BEHIND: u64 = 1_024;
/// The most databases to look at, and the most tables of keys in all of them.
const MOST: u64 = 16_384;
const MOST_TABLES: usize = 1 << 18;
/// Words of a database that are looked at.
const WORDS: usize = 10;

pub struct Databases {
    pub layout: &'static KeyspaceLayout,
    first: u64,
    count: u64,
    /// Tables of keys in them when they were found.
    tables: usize,
}

impl Databases {
    /// Finds the databases of a process whose executable has this plan and was loaded with `bias`.
    pub fn find(memory: &Memory, plan: &ProbePlan, bias: u64) -> anyhow::Result<Self> {
        let layout = KeyspaceLayout::of(&plan.identity)?;
        let members = Member::of_server().filter_map(|member| plan.member(member));
        let first = (members.map(|member| member.address.at(bias).get()).min())
            .context("nothing of `server` was found in it: `evictscope inspect` says why")?;
        let words = (first.saturating_sub(BEFORE) & !7..first + BEHIND).step_by(8);
        let found: Vec<Self> = words.filter_map(|word| Self::at(memory, layout, memory.u64(word)?)).collect();
        ensure!(!memory.is_spent(), "its databases take longer to find than is allowed");
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

    fn at(memory: &Memory, layout: &'static KeyspaceLayout, first: u64) -> Option<Self> {
        if first == 0 || !first.is_multiple_of(8) {
            return None;
        }
        let mut databases = Self { layout, first, count: 0, tables: 0 };
        for number in 0..MOST {
            let Some(address) = databases.address(memory, number) else { break };
            match databases.read(memory, number, address) {
                Some(tables) => {
                    databases.count = number + 1;
                    databases.tables += tables.len();
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
        if self.layout.has_pointers {
            memory.u64(self.first.checked_add(8 * number)?)
        } else {
            self.first.checked_add(number * self.layout.database_bytes)
        }
    }

    /// Returns where a database has its keys, and those that expire.
    fn stores(&self, memory: &Memory, number: u64, address: u64) -> Option<[u64; 2]> {
        let words: [u64; WORDS] = memory.words(address)?;
        let [begin, number_at] = self.layout.others_at;
        let is_dict = |word: &u64| Dict::read(memory, self.layout.others(), *word).is_some();
        let is_database = words[begin..number_at].iter().all(is_dict) && words[number_at] as u32 == number as u32;
        is_database.then_some([words[0], words[1]])
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
        (keys.len() == expires.len()).then_some(())?;
        let pairs = keys.into_iter().zip(expires).filter(|(keys, _)| keys.size() > 0);
        Some(pairs.map(|(all, expires)| Keys { all, expires }).collect())
    }

    /// Reads the tables of all databases. Returns `None` if one is about to change.
    pub fn tables(&self, memory: &Memory) -> Option<KeyTables> {
        self.each(memory, |number, address| self.read(memory, number, address))
    }

    /// Reads the tables of the keys that expire, of all databases. Returns `None` if one is about to change.
    pub fn expiring(&self, memory: &Memory) -> Option<KeyTables> {
        let expires = Dict::empty(self.layout);
        self.each(memory, |number, address| {
            let [_, expiring] = self.stores(memory, number, address)?;
            let dicts = Dict::read_all(memory, self.layout, expiring)?.into_iter().filter(|dict| dict.size() > 0);
            Some(dicts.map(|all| Keys { all, expires }).collect())
        })
    }

    fn each(&self, memory: &Memory, read: impl Fn(u64, u64) -> Option<Vec<Keys>>) -> Option<KeyTables> {
        let mut tables = Vec::new();
        for number in 0..self.count {
            let address = self.address(memory, number)?;
            if address != 0 {
                tables.extend(read(number, address)?);
            }
            (tables.len() <= MOST_TABLES).then_some(())?;
        }
        Some(KeyTables::new(tables))
    }
}

/// The hash tables of a database, or of one slot of it.
#[derive(PartialEq, Eq)]
pub struct Keys {
    /// The keys and their values.
    pub all: Dict,
    /// When keys expire, for those that do. Empty if that lies with their values.
    pub expires: Dict,
}

#[derive(PartialEq, Eq)]
pub struct KeyTables {
    tables: Vec<Keys>,
    /// How many places each has together with those before it.
    ends: Vec<u64>,
}

impl KeyTables {
    /// Puts them in a row.
    pub fn new(tables: Vec<Keys>) -> Self {
        let mut end = 0;
        let mut add = |keys: &Keys| {
            end += keys.all.size();
            end
        };
        Self { ends: tables.iter().map(&mut add).collect(), tables }
    }

    pub fn count(&self) -> usize {
        self.tables.len()
    }

    pub fn used(&self) -> u64 {
        self.tables.iter().map(|keys| keys.all.used()).sum()
    }

    /// Returns how many of their keys expire, where that does not lie with the values.
    pub fn expiring(&self) -> u64 {
        self.tables.iter().map(|keys| keys.expires.used()).sum()
    }

    /// Returns the bytes of their places.
    pub fn bytes(&self) -> u64 {
        let dicts = self.tables.iter().flat_map(|keys| [&keys.all, &keys.expires]);
        dicts.flat_map(|dict| &dict.tables).map(Table::bytes).sum()
    }

    pub fn places(&self) -> u64 {
        self.ends.last().copied().unwrap_or_default()
    }

    /// Returns the table that one of all places is in, with those of its database or slot, and the place there. Returns
    /// `None` also if that table is about to move.
    pub fn find(&self, memory: &Memory, place: u64) -> Option<(&Keys, &Table, u64)> {
        let at = self.ends.partition_point(|end| *end <= place);
        let keys = self.tables.get(at)?;
        keys.all.is_there(memory).then_some(())?;
        let begin = self.ends[at] - keys.all.size();
        let (table, place) = keys.all.place(place - begin);
        Some((keys, table, place))
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::{Dict, KeyTables, Keys, Memory};
    use crate::keys::layout::REDIS_8_0;
    use crate::keys::tests;

    /// Makes a table of `1 << exponent` places, and no second table.
    fn dict(exponent: u8) -> [u64; 7] {
        *tests::dict(tests::at(vec![0_u64; 1 << exponent].leak()), 0, exponent)
    }

    #[test]
    fn a_place_of_all_is_in_the_table_of_its_slot() -> anyhow::Result<()> {
        let memory = Memory::of_this_process()?;
        let mut dicts = [dict(2), dict(0), dict(3)];
        let mut slots = vec![0; 16_384];
        for (slot, dict) in [7, 8, 16_000].into_iter().zip(&dicts) {
            slots[slot] = dict.as_ptr() as u64;
        }
        let mut store = [0; 20];
        (store[18], store[19]) = (slots.as_ptr() as u64, 14 << 32 | 16_384);
        let read = |store: &[u64; 20]| Dict::read_all(&memory, &REDIS_8_0, store.as_ptr() as u64);
        let all = read(&store).context("no tables")?;
        assert_eq!(all.len(), 16_384);
        let expires = Dict::empty(&REDIS_8_0);
        let used = all.into_iter().filter(|all| all.size() > 0);
        let tables = KeyTables::new(used.map(|all| Keys { all, expires }).collect());
        assert_eq!((tables.count(), tables.places()), (3, 13));
        let find = |place| {
            let (_, table, place) = tables.find(&memory, place)?;
            Some((table.size, place))
        };
        let found = [0, 3, 4, 5, 12, 13].map(find);
        let expected = [(4, 0), (4, 3), (1, 0), (8, 0), (8, 7)].map(Some);
        assert_eq!((&found[..5], found[5]), (&expected[..], None));

        // The places of one table move.
        assert_ne!(std::mem::replace(&mut dicts[1], dict(0)), dicts[1]);
        assert_eq!([3, 4, 5].map(find), [Some((4, 3)), None, Some((8, 0))]);
        store[19] = 2;
        assert_eq!(read(&store), None, "it is no member's and not alone");
        Ok(())
    }
}
