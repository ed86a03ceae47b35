//! An entry of a hash table.

use super::layout::{Form, Layout};
use super::memory::Memory;

/// Bytes of an entry before the key that is in it.
const EMBEDDED: u64 = 17;

/// An entry of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The pointer to it, as the table has it.
    pub pointer: u64,
    /// What was asked of the allocator for it: nothing, where the pointer is to its key.
    pub allocated: u64,
    /// Whether its key is in it.
    pub is_embedding: bool,
    /// Where its key is.
    pub key: u64,
    /// Its value, or where it is: 0, where it has none.
    pub value: u64,
}

impl Entry {
    /// Returns what a pointer to a key stands for. `None` where it is none.
    pub fn of_key(pointer: u64) -> Option<Self> {
        let key = if pointer & 1 == 0 {
            pointer & !7
        } else {
            pointer
        };
        (key != 0).then_some(Self {
            pointer,
            allocated: 0,
            is_embedding: false,
            key,
            value: 0,
        })
    }

    /// Reads an entry, and the pointer to the next of its chain. `None` where there is none.
    pub fn read(memory: &Memory, layout: &Layout, pointer: u64) -> Option<(Self, u64)> {
        let address = pointer & !7;
        let form = if pointer & 1 != 0 {
            4
        } else {
            (pointer & 7) / 2
        };
        let form = layout.entries[form as usize];
        let (allocated, [key, value, next]) = match form {
            Form::None => return None,
            Form::Whole => (24, memory.words(address)?),
            Form::Valueless => {
                let [key, next] = memory.words(address)?;
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
        let entry = Self {
            pointer,
            allocated,
            is_embedding: form == Form::Embedding,
            key,
            value,
        };
        (key != 0).then_some((entry, next))
    }

    /// Returns whether it has not changed since it was read. What is only a pointer does not.
    pub fn is_same(&self, memory: &Memory, layout: &Layout) -> Option<bool> {
        Some(self.allocated == 0 || Self::read(memory, layout, self.pointer)?.0 == *self)
    }
}
