//! A table of places: each is a chain of entries, or, in Valkey since 8.1, of buckets with up to seven entries.

use super::entry::Entry;
use super::layout::Layout;
use super::memory::Memory;

/// The longest chain that is followed, and the most keys for a place in a table: with more, it is not a table.
const CHAIN: usize = 1_000;
/// Bytes of a bucket.
const BUCKET: u64 = 64;

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// How it is laid out.
    pub layout: &'static Layout,
    /// Where its places are.
    pub places: u64,
    /// How many places there are.
    pub size: u64,
    /// Entries in it.
    pub used: u64,
    /// Buckets behind those at its places.
    pub children: u64,
}

impl Table {
    /// Returns whether its numbers are those of a table.
    pub fn is_sound(&self) -> bool {
        match self.places {
            0 => (self.size, self.used) == (0, 0),
            _ => {
                let most = self.size.saturating_mul(CHAIN as u64);
                self.size.is_power_of_two() && self.size < 1 << 40 && self.used <= most && self.children <= most
            }
        }
    }

    /// Returns the entries at a place, or `None` if these are not entries.
    pub fn chain(&self, memory: &Memory, place: u64) -> Option<Vec<Entry>> {
        if self.layout.buckets.is_some() {
            return self.buckets(memory, place);
        }
        let mut next = memory.u64(self.places.checked_add(8 * place)?)?;
        let mut chain = Vec::new();
        while next != 0 {
            let (entry, following) = Entry::read(memory, self.layout, next)?;
            (chain.len() < CHAIN).then_some(())?;
            chain.push(entry);
            next = following;
        }
        Some(chain)
    }

    fn buckets(&self, memory: &Memory, place: u64) -> Option<Vec<Entry>> {
        let mut bucket = self.places.checked_add(BUCKET * place)?;
        let mut entries = Vec::new();
        for _ in 0..CHAIN {
            let [head, slots @ ..]: [u64; 8] = memory.words(bucket)?;
            let present = |slot: &usize| head >> 1 >> slot & 1 != 0;
            let [.., child] = slots;
            let is_last = head & 1 == 0;
            for slot in (0..if is_last { 7 } else { 6 }).filter(present) {
                entries.push(Entry::of_key(slots[slot])?);
            }
            if is_last {
                return Some(entries);
            }
            bucket = child;
        }
        None
    }

    /// Returns how many bytes its places take.
    pub fn bytes(&self) -> u64 {
        match self.layout.buckets {
            Some(_) => BUCKET * (self.size + self.children),
            None => 8 * self.size,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Memory, Table};
    use crate::keys::layout::{REDIS_7_0, VALKEY_8_1};

    #[test]
    fn a_chain_that_does_not_end_is_none() -> anyhow::Result<()> {
        let memory = Memory::open(std::process::id(), crate::keys::Walk::Tables)?;
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
        let memory = Memory::open(std::process::id(), crate::keys::Walk::Tables)?;
        let last: [u64; 8] = [0b1000_0000, 0, 0, 0, 0, 0, 0, 72];
        let child = last.as_ptr() as u64;
        let mut places = [[0; 8], [0b0100_0011, 8, 16, 24, 32, 40, 48, child]].concat();
        let table = Table { layout: &VALKEY_8_1, places: places.as_ptr() as u64, size: 2, used: 3, children: 1 };
        let keys = |place| {
            let entries = table.chain(&memory, place)?;
            Some(entries.iter().map(|entry| entry.key).collect::<Vec<_>>())
        };
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
