//! The hash tables with a server's keys: one for each database, or, in a cluster, one for each slot.

use super::dict::Dict;
use super::memory::Memory;
use super::table::Table;

/// The hash tables of a database, or of one slot of it.
#[derive(PartialEq, Eq)]
pub struct Keys {
    /// The keys and their values.
    pub all: Dict,
    /// When keys expire, for those that do. Empty if that lies with their values.
    pub expires: Dict,
}

/// All hash tables of keys.
#[derive(PartialEq, Eq)]
pub struct Tables {
    tables: Vec<Keys>,
    /// How many places each has together with those before it.
    ends: Vec<u64>,
}

impl Tables {
    /// Puts them in a row.
    pub fn new(tables: Vec<Keys>) -> Self {
        let ends = tables.iter().scan(0, |end, keys| {
            *end += keys.all.size();
            Some(*end)
        });
        let ends = ends.collect();
        Self { tables, ends }
    }

    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.tables.len()
    }

    /// Returns how many keys are in them.
    pub fn used(&self) -> u64 {
        self.tables.iter().map(|keys| keys.all.used()).sum()
    }

    /// Returns how many places they have.
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
    use super::{Dict, Keys, Memory, Tables};
    use crate::keys::layout::REDIS_8_0;

    /// Makes a table of `1 << exponent` places, and no second table.
    fn dict(exponent: u8) -> [u64; 7] {
        let places = vec![0_u64; 1 << exponent].leak();
        let exponents = u64::from_ne_bytes([0, 0, exponent, 255, 0, 0, 0, 0]);
        [1, places.as_ptr() as u64, 0, 0, 0, u64::MAX, exponents]
    }

    #[test]
    fn a_place_of_all_is_in_the_table_of_its_slot() -> anyhow::Result<()> {
        let memory = Memory::open(std::process::id(), crate::keys::Walk::Tables)?;
        let mut dicts = [dict(2), dict(0), dict(3)];
        let mut slots = vec![0; 16_384];
        for (slot, dict) in [7, 8, 16_000].into_iter().zip(&dicts) {
            slots[slot] = dict.as_ptr() as u64;
        }
        let mut store = [0; 20];
        (store[18], store[19]) = (slots.as_ptr() as u64, 14 << 32 | 16_384);
        let read = |store: &[u64; 20]| Dict::read_all(&memory, &REDIS_8_0, store.as_ptr() as u64);
        let all = read(&store).ok_or_else(|| anyhow::anyhow!("no tables"))?;
        assert_eq!(all.len(), 16_384);
        let expires = Dict::empty(&REDIS_8_0);
        let tables = all.into_iter().filter(|all| all.size() > 0);
        let tables = tables.map(|all| Keys { all, expires });
        let tables = Tables::new(tables.collect());
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
