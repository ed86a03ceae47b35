//! A hash table of Redis, `dict`, or of Valkey since 8.1, `hashtable`: two tables of places while it is rehashed, else
//! one. Each place is a chain of entries, or, in Valkey since 8.1, of buckets with up to seven entries.

use super::layout::{EntryForm, KeyspaceLayout};
use super::memory::Memory;

/// How many places of a table of times to live are looked at for one place of a table of keys, at most.
const FOLDED: u64 = 64;
const SLOTS: usize = 16_384;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dict {
    /// Where it is, or 0 if there is none.
    address: u64,
    /// The second is empty unless it is rehashed.
    pub tables: [Table; 2],
}

impl Dict {
    /// Reads a table. Returns `None` if there is none, or it is about to change.
    pub fn read(memory: &Memory, layout: &'static KeyspaceLayout, address: u64) -> Option<Self> {
        let (kind, rehashed, tables) = if layout.buckets.is_some() {
            let [kind, rehashed, a, b, used_a, used_b, exponents, children @ ..]: [u64; 9] = memory.words(address)?;
            let [exponent_a, exponent_b, ..] = exponents.to_ne_bytes();
            let second = (b, size(exponent_b)?, used_b, children[1]);
            (kind, rehashed, [(a, size(exponent_a)?, used_a, children[0]), second])
        } else if let Some(exponents) = layout.exponents {
            let [kind, a, b, used_a, used_b, rehashed, last] = memory.words(address)?;
            let last = last.to_ne_bytes();
            let (size_a, size_b) = (size(last[exponents])?, size(last[exponents + 1])?);
            (kind, rehashed, [(a, size_a, used_a, 0), (b, size_b, used_b, 0)])
        } else {
            let [kind, _, a, size_a, mask_a, used_a, b, size_b, mask_b, used_b, rehashed] = memory.words(address)?;
            let are_masks = size_a.saturating_sub(1) == mask_a && size_b.saturating_sub(1) == mask_b;
            are_masks.then_some((kind, rehashed, [(a, size_a, used_a, 0), (b, size_b, used_b, 0)]))?
        };
        let tables = tables.map(|(places, size, used, children)| Table { layout, places, size, used, children });
        let [first, second] = tables;
        let is_rehashed = match rehashed.cast_signed() {
            -1 => second.size == 0,
            from => from >= 0 && rehashed <= first.size && second.size > 0,
        };
        (kind != 0 && is_rehashed && tables.iter().all(Table::is_sound)).then_some(Self { address, tables })
    }

    /// Reads the tables of a database's keys, or of their times to live: the only one, or, in a `kvstore` of a member
    /// of a cluster, one for each slot.
    pub fn read_all(memory: &Memory, layout: &'static KeyspaceLayout, address: u64) -> Option<Vec<Self>> {
        let Some(store) = layout.store else { return Some(vec![Self::read(memory, layout, address)?]) };
        let [tables, count] = memory.words(address.checked_add(store)?)?;
        // Behind it, Valkey has the exponent.
        let count = count as u32 as usize;
        [1, SLOTS].contains(&count).then_some(())?;
        let mut pointers = vec![[0; 8]; count];
        memory.fill(tables, pointers.as_flattened_mut())?;
        let read = |pointer| match u64::from_ne_bytes(pointer) {
            // It is made with the first key.
            0 => Some(Self::empty(layout)),
            dict => Self::read(memory, layout, dict),
        };
        pointers.into_iter().map(read).collect()
    }

    /// Returns whether its places are still where they were.
    pub fn is_there(&self, memory: &Memory) -> bool {
        let places = |dict: &Self| dict.tables.map(|table| (table.places, table.size));
        Self::read(memory, self.tables[0].layout, self.address).is_some_and(|now| places(&now) == places(self))
    }

    pub fn empty(layout: &'static KeyspaceLayout) -> Self {
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
        if let Some(place) = place.checked_sub(first.size) { (second, place) } else { (first, place) }
    }

    /// Returns the entry with the same key as the one at `place` in a table of `size` places: both hash alike, so no
    /// key need be read. The outer `None` means that this is not known.
    pub fn twin(&self, memory: &Memory, key: u64, place: u64, size: u64) -> Option<Option<DictEntry>> {
        for table in self.tables.iter().filter(|table| table.used > 0) {
            let step = size.min(table.size);
            let folds = table.size / step;
            (folds <= FOLDED).then_some(())?;
            for fold in 0..folds {
                let chain = table.chain(memory, (place & (step - 1)) + fold * step)?;
                if let Some(entry) = chain.into_iter().find(|entry| entry.key == key) {
                    return Some(Some(entry));
                }
            }
        }
        Some(None)
    }
}

fn size(exponent: u8) -> Option<u64> {
    if exponent == u8::MAX { Some(0) } else { 1_u64.checked_shl(exponent.into()) }
}

/// The longest chain that is followed, and the most keys for a place in a table: with more, it is not a table.
const CHAIN: usize = 1_000;
const BUCKET: u64 = 64;

/// One of the two tables of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    pub layout: &'static KeyspaceLayout,
    /// Where its places are.
    pub places: u64,
    /// Places in it, a power of two.
    pub size: u64,
    pub used: u64,
    /// Buckets behind those at its places.
    pub children: u64,
}

impl Table {
    /// Returns whether its numbers are those of a table.
    pub fn is_sound(&self) -> bool {
        if self.places == 0 {
            return (self.size, self.used) == (0, 0);
        }
        let most = self.size.saturating_mul(CHAIN as u64);
        self.size.is_power_of_two() && self.size < 1 << 40 && self.used <= most && self.children <= most
    }

    /// Returns the entries at a place, or `None` if these are not entries.
    pub fn chain(&self, memory: &Memory, place: u64) -> Option<Vec<DictEntry>> {
        if self.layout.buckets.is_some() {
            return self.buckets(memory, place);
        }
        let mut next = memory.u64(self.places.checked_add(8 * place)?)?;
        let mut chain = Vec::new();
        while next != 0 {
            let (entry, following) = DictEntry::read(memory, self.layout, next)?;
            (chain.len() < CHAIN).then_some(())?;
            chain.push(entry);
            next = following;
        }
        Some(chain)
    }

    fn buckets(&self, memory: &Memory, place: u64) -> Option<Vec<DictEntry>> {
        let mut bucket = self.places.checked_add(BUCKET * place)?;
        let mut entries = Vec::new();
        for _ in 0..CHAIN {
            let [head, slots @ ..]: [u64; 8] = memory.words(bucket)?;
            let is_last = head & 1 == 0;
            for slot in (0..if is_last { 7 } else { 6 }).filter(|slot| head >> 1 >> slot & 1 != 0) {
                entries.push(DictEntry::of_key(slots[slot])?);
            }
            if is_last {
                return Some(entries);
            }
            bucket = slots[6];
        }
        None
    }

    pub fn bytes(&self) -> u64 {
        if self.layout.buckets.is_some() { BUCKET * (self.size + self.children) } else { 8 * self.size }
    }
}

/// Bytes of an entry before the key inside it.
const EMBEDDED: u64 = 17;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DictEntry {
    /// The pointer to it, as the table has it.
    pub pointer: u64,
    /// What was asked of the allocator for it: 0 if the pointer is to its key.
    pub allocated: u64,
    /// Whether its key is in it.
    pub is_embedding: bool,
    /// Where its key is.
    pub key: u64,
    /// Its value, or where that is; 0 if it has none.
    pub value: u64,
}

impl DictEntry {
    /// Returns what a pointer to a key stands for. Returns `None` if it is null.
    pub fn of_key(pointer: u64) -> Option<Self> {
        let key = if pointer & 1 == 0 { pointer & !7 } else { pointer };
        (key != 0).then_some(Self { pointer, allocated: 0, is_embedding: false, key, value: 0 })
    }

    /// Reads an entry, and the pointer to the next in its chain. Returns `None` if there is none.
    pub fn read(memory: &Memory, layout: &KeyspaceLayout, pointer: u64) -> Option<(Self, u64)> {
        let address = pointer & !7;
        let form = layout.entries[if pointer & 1 != 0 { 4 } else { (pointer & 7) as usize / 2 }];
        let (allocated, [key, value, next]) = match form {
            EntryForm::None => return None,
            EntryForm::Whole => (24, memory.words(address)?),
            EntryForm::Valueless => memory.words(address).map(|[key, next]| (16, [key, 0, next]))?,
            EntryForm::Chained => memory.words(address).map(|[next, key]| (16, [key, 0, next]))?,
            EntryForm::Embedding => {
                let [value, next, header] = memory.words(address)?;
                let key = address + EMBEDDED + u64::from(header as u8);
                let text = memory.string(key)?;
                (text.header == u64::from(header as u8)).then_some(())?;
                (EMBEDDED + text.header + text.length + 1, [key, value, next])
            }
            EntryForm::Key => return Some((Self::of_key(pointer)?, 0)),
        };
        let entry = Self { pointer, allocated, is_embedding: form == EntryForm::Embedding, key, value };
        (key != 0).then_some((entry, next))
    }

    /// Returns whether it has not changed since it was read. A mere pointer does not change.
    pub fn is_same(&self, memory: &Memory, layout: &KeyspaceLayout) -> Option<bool> {
        Some(self.allocated == 0 || Self::read(memory, layout, self.pointer)?.0 == *self)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::{Dict, Memory, Table};
    use crate::keys::layout::{REDIS_7_0, VALKEY_8_1};

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
        let memory = Memory::of_this_process()?;
        let [first, second] = [table(&[&[8, 16], &[24]]), table(&[&[], &[], &[32], &[40, 48]])];
        let exponents = u64::from_ne_bytes([0, 0, 1, 2, 0, 0, 0, 0]);
        let mut dict = [1, first.as_ptr() as u64, second.as_ptr() as u64, 3, 3, 0, exponents];
        let read = |dict: &[u64; 7]| Dict::read(&memory, &REDIS_7_0, dict.as_ptr() as u64);
        let expires = read(&dict).context("no table")?;
        assert_eq!((expires.used(), expires.size()), (6, 6));
        assert_eq!(expires.place(5), (&expires.tables[1], 3));
        let twin = |key, place, size| Some(expires.twin(&memory, key, place, size)?.map(|entry| entry.value));
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

    #[test]
    fn a_chain_that_does_not_end_is_none() -> anyhow::Result<()> {
        let memory = Memory::of_this_process()?;
        let mut entry = [8, 8, 0_u64];
        entry[2] = entry.as_ptr() as u64;
        let places = [entry.as_ptr() as u64, 8];
        let table = Table { layout: &REDIS_7_0, places: places.as_ptr() as u64, size: 2, used: 2, children: 0 };
        assert_eq!(table.chain(&memory, 0), None);
        assert_eq!(table.chain(&memory, 1), None, "nothing is mapped there");
        Ok(())
    }

    #[test]
    fn the_entries_of_a_place_are_in_all_of_its_buckets() -> anyhow::Result<()> {
        let memory = Memory::of_this_process()?;
        let last: [u64; 8] = [0b1000_0000, 0, 0, 0, 0, 0, 0, 72];
        let mut places = [[0; 8], [0b0100_0011, 8, 16, 24, 32, 40, 48, last.as_ptr() as u64]].concat();
        let table = Table { layout: &VALKEY_8_1, places: places.as_ptr() as u64, size: 2, used: 3, children: 1 };
        let keys = |place| Some(table.chain(&memory, place)?.iter().map(|entry| entry.key).collect::<Vec<_>>());
        assert_eq!(keys(0), Some(Vec::new()));
        assert_eq!(keys(1), Some(vec![8, 48, 72]));
        assert_eq!((table.is_sound(), table.bytes()), (true, 192));
        places[15] = 8;
        assert_eq!(keys(1), None, "nothing is mapped there");
        places[15] = places.as_ptr() as u64 + 64;
        assert_eq!(keys(1), None, "it does not end");
        Ok(())
    }
}
