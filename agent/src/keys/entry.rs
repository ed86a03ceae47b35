//! An entry of a hash table.

use super::layout::{Form, Layout};
use super::memory::Memory;

/// Bytes of an entry before the key inside it.
const EMBEDDED: u64 = 17;

/// An entry of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
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

impl Entry {
    /// Returns what a pointer to a key stands for. Returns `None` if it is null.
    pub fn of_key(pointer: u64) -> Option<Self> {
        let key = if pointer & 1 == 0 { pointer & !7 } else { pointer };
        (key != 0).then_some(Self { pointer, allocated: 0, is_embedding: false, key, value: 0 })
    }

    /// Reads an entry, and the pointer to the next in its chain. Returns `None` if there is none.
    pub fn read(memory: &Memory, layout: &Layout, pointer: u64) -> Option<(Self, u64)> {
        let address = pointer & !7;
        let form = if pointer & 1 != 0 { 4 } else { (pointer & 7) / 2 };
        let form = layout.entries[form as usize];
        let (allocated, [key, value, next]) = match form {
            Form::None => return None,
            Form::Whole => (24, memory.words(address)?),
            Form::Valueless => {
                let [key, next] = memory.words(address)?;
                (16, [key, 0, next])
            }
            Form::Chained => {
                let [next, key] = memory.words(address)?;
                (16, [key, 0, next])
            }
            Form::Embedding => {
                let [value, next, header] = memory.words(address)?;
                let key = address + EMBEDDED + u64::from(header as u8);
                let text = memory.string(key)?;
                (text.header == u64::from(header as u8)).then_some(())?;
                let allocated = EMBEDDED + text.header + text.length + 1;
                (allocated, [key, value, next])
            }
            Form::Key => return Some((Self::of_key(pointer)?, 0)),
        };
        let entry = Self { pointer, allocated, is_embedding: form == Form::Embedding, key, value };
        (key != 0).then_some((entry, next))
    }

    /// Returns whether it has not changed since it was read. A mere pointer does not change.
    pub fn is_same(&self, memory: &Memory, layout: &Layout) -> Option<bool> {
        Some(self.allocated == 0 || Self::read(memory, layout, self.pointer)?.0 == *self)
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Memory};
    use crate::keys::layout::{REDIS_7_0, REDIS_8_0, REDIS_8_6, VALKEY_8_0};

    #[test]
    fn the_lowest_bits_of_a_pointer_say_what_an_entry_is() -> anyhow::Result<()> {
        let memory = Memory::open(std::process::id(), crate::keys::Walk::Tables)?;
        let words: [[u64; 3]; 2] = [[40, 50, 60], [0; 3]];
        let at = words.as_ptr() as u64;
        let read = |layout, pointer| {
            let (entry, next) = Entry::read(&memory, layout, pointer)?;
            Some((entry.key, entry.value, next, entry.allocated))
        };
        assert_eq!(read(&REDIS_7_0, at), Some((40, 50, 60, 24)));
        assert_eq!(read(&REDIS_8_0, at | 4), Some((40, 0, 50, 16)));
        assert_eq!(read(&VALKEY_8_0, at | 2), Some((40, 0, 50, 16)));
        assert_eq!(read(&REDIS_8_6, at), Some((50, 0, 40, 16)));
        assert_eq!(read(&REDIS_8_0, at | 2), Some((at, 0, 0, 0)));
        assert_eq!(read(&REDIS_8_0, at | 1), Some((at | 1, 0, 0, 0)));
        for (layout, bits) in [(&REDIS_7_0, 1), (&REDIS_7_0, 2), (&REDIS_8_0, 6)] {
            assert_eq!(read(layout, at | bits), None, "{bits}");
        }
        assert_eq!(read(&REDIS_7_0, at + 24), None, "it has no key");

        // One byte, three of the key's own header, and the key.
        let embedding = [*b"valueval", *b"nextnext", *b"\x03\x02\x05\x01ab\0\0"];
        let embedding = embedding.map(u64::from_ne_bytes);
        let key = embedding.as_ptr() as u64 + 20;
        let (entry, _) = Entry::read(&memory, &VALKEY_8_0, embedding.as_ptr() as u64 | 4)
            .ok_or_else(|| anyhow::anyhow!("no entry"))?;
        assert_eq!((entry.key, entry.allocated), (key, 23));
        Ok(())
    }
}
