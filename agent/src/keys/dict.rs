//! A hash table of Redis, `dict`, or of Valkey since 8.1, `hashtable`: two tables while it is rehashed, else one.

use super::entry::Entry;
use super::layout::Layout;
use super::memory::Memory;
use super::table::Table;

/// How many places of a table of times to live are looked at for one place of a table of keys, at most.
const FOLDED: u64 = 64;
/// Slots of a cluster.
const SLOTS: usize = 16_384;

/// A hash table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dict {
    /// Where it is, or 0 if there is none.
    address: u64,
    /// The second is empty unless it is rehashed.
    pub tables: [Table; 2],
}

impl Dict {
    /// Reads a table. Returns `None` if there is none, or it is about to change.
    pub fn read(memory: &Memory, layout: &'static Layout, address: u64) -> Option<Self> {
        let (kind, tables, rehashed) = if layout.buckets.is_some() {
            let [kind, rehashed, a, b, used_a, used_b, exponents, children @ ..]: [u64; 9] = memory.words(address)?;
            let [exponent_a, exponent_b, ..] = exponents.to_ne_bytes();
            let tables = [(a, size(exponent_a)?, used_a, children[0]), (b, size(exponent_b)?, used_b, children[1])];
            (kind, tables, rehashed)
        } else if let Some(exponents) = layout.exponents {
            let [kind, a, b, used_a, used_b, rehashed, last] = memory.words(address)?;
            let last = last.to_ne_bytes();
            let [exponent_a, exponent_b] = [last[exponents], last[exponents + 1]];
            let tables = [(a, size(exponent_a)?, used_a, 0), (b, size(exponent_b)?, used_b, 0)];
            (kind, tables, rehashed)
        } else {
            let [kind, _, words @ ..]: [u64; 11] = memory.words(address)?;
            let [a, size_a, mask_a, used_a, words @ ..] = words;
            let [b, size_b, mask_b, used_b, rehashed] = words;
            let masks = [(size_a, mask_a), (size_b, mask_b)];
            let are_masks = masks.iter().all(|(size, mask)| size.saturating_sub(1) == *mask);
            are_masks.then_some(())?;
            let tables = [(a, size_a, used_a, 0), (b, size_b, used_b, 0)];
            (kind, tables, rehashed)
        };
        let tables = tables.map(|(places, size, used, children)| Table { layout, places, size, used, children });
        let [first, second] = tables;
        let is_rehashed = match rehashed.cast_signed() {
            -1 => second.size == 0,
            from => from >= 0 && rehashed <= first.size && second.size > 0,
        };
        let is_sound = kind != 0 && is_rehashed && tables.iter().all(Table::is_sound);
        is_sound.then_some(Self { address, tables })
    }

    /// Reads the tables of a database's keys, or of their times to live: the only one, or, in a `kvstore` of a member
    /// of a cluster, one for each slot.
    pub fn read_all(memory: &Memory, layout: &'static Layout, address: u64) -> Option<Vec<Self>> {
        let Some(store) = layout.store else {
            return Some(vec![Self::read(memory, layout, address)?]);
        };
        let [tables, count] = memory.words(address.checked_add(store)?)?;
        // Behind it, Valkey has the exponent.
        let count = count as u32 as usize;
        [1, SLOTS].contains(&count).then_some(())?;
        let mut pointers = vec![[0; 8]; count];
        memory.fill(tables, pointers.as_flattened_mut())?;
        let dicts = pointers.into_iter().map(u64::from_ne_bytes);
        let read = |dict| match dict {
            // It is made with the first key.
            0 => Some(Self::empty(layout)),
            dict => Self::read(memory, layout, dict),
        };
        dicts.map(read).collect()
    }

    /// Returns whether its places are still where they were.
    pub fn is_there(&self, memory: &Memory) -> bool {
        let [first, second] = self.tables.map(|table| (table.places, table.size));
        let now = Self::read(memory, self.tables[0].layout, self.address);
        now.is_some_and(|now| now.tables.map(|table| (table.places, table.size)) == [first, second])
    }

    /// Returns a hash table without entries.
    pub fn empty(layout: &'static Layout) -> Self {
        let table = Table { layout, places: 0, size: 0, used: 0, children: 0 };
        Self { address: 0, tables: [table, table] }
    }

    /// Returns how many entries it has.
    pub fn used(&self) -> u64 {
        self.tables.iter().map(|table| table.used).sum()
    }

    /// Returns how many places it has.
    pub fn size(&self) -> u64 {
        self.tables.iter().map(|table| table.size).sum()
    }

    /// Returns a place of the two tables, and the table that it is in.
    pub fn place(&self, place: u64) -> (&Table, u64) {
        let [first, second] = &self.tables;
        match place.checked_sub(first.size) {
            Some(place) => (second, place),
            None => (first, place),
        }
    }

    /// Returns the entry with the same key as the one at `place` in a table of `size` places: both hash alike, so no
    /// key need be read. The outer `None` means that this is not known.
    pub fn twin(&self, memory: &Memory, key: u64, place: u64, size: u64) -> Option<Option<Entry>> {
        for table in self.tables.iter().filter(|table| table.used > 0) {
            let step = size.min(table.size);
            let places = table.size / step;
            if places > FOLDED {
                return None;
            }
            for fold in 0..places {
                let chain = table.chain(memory, (place & (step - 1)) + fold * step)?;
                if let Some(entry) = chain.into_iter().find(|entry| entry.key == key) {
                    return Some(Some(entry));
                }
            }
        }
        Some(None)
    }
}

/// Returns a size by its exponent.
fn size(exponent: u8) -> Option<u64> {
    match exponent {
        u8::MAX => Some(0),
        _ => 1_u64.checked_shl(exponent.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Dict, Entry, Memory};
    use crate::keys::layout::REDIS_7_0;

    /// Makes a table of these chains of keys, each with ten times its key as value.
    fn table(chains: &[&[u64]]) -> Vec<u64> {
        let chain = |keys: &&[u64]| {
            keys.iter().rev().fold(0, |next, key| {
                let entry: &mut [u64; 3] = Box::leak(Box::new([*key, 10 * key, next]));
                entry.as_ptr() as u64
            })
        };
        chains.iter().map(chain).collect()
    }

    #[test]
    fn an_entry_is_found_by_the_place_of_its_twin() -> anyhow::Result<()> {
        let memory = Memory::open(std::process::id(), crate::keys::Walk::Tables)?;
        let [first, second] = [table(&[&[8, 16], &[24]]), table(&[&[], &[], &[32], &[40, 48]])];
        let exponents = u64::from_ne_bytes([0, 0, 1, 2, 0, 0, 0, 0]);
        let mut dict = [1, first.as_ptr() as u64, second.as_ptr() as u64, 3, 3, 0, exponents];
        let read = |dict: &[u64; 7]| Dict::read(&memory, &REDIS_7_0, dict.as_ptr() as u64);
        let expires = read(&dict).ok_or_else(|| anyhow::anyhow!("no table"))?;
        assert_eq!((expires.used(), expires.size()), (6, 6));
        assert_eq!(expires.place(5), (&expires.tables[1], 3));
        let twin = |key, place, size| {
            let twin = expires.twin(&memory, key, place, size)?;
            Some(twin.map(|Entry { value, .. }| value))
        };
        // From tables of eight places, four, two and one.
        assert_eq!(twin(16, 6, 8), Some(Some(160)));
        assert_eq!(twin(48, 3, 4), Some(Some(480)));
        assert_eq!(twin(40, 1, 2), Some(Some(400)));
        assert_eq!(twin(32, 0, 1), Some(Some(320)));
        assert_eq!(twin(48, 2, 4), Some(None), "it is at another place");
        assert_eq!(twin(56, 3, 8), Some(None));

        for (word, wrong) in [(0, 0), (1, 0), (3, 1 << 20), (5, 9), (5, u64::MAX), (6, u64::MAX)] {
            let right = std::mem::replace(&mut dict[word], wrong);
            assert_eq!(read(&dict), None, "word {word} is {wrong}");
            dict[word] = right;
        }
        assert!(read(&dict).is_some());
        Ok(())
    }
}
