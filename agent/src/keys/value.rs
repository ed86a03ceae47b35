//! How much memory a key takes with its value, as `MEMORY USAGE` counts it.
//!
//! If a value has many allocations, a few elements are looked at, and their mean stands for all.

use super::allocator::Allocator;
use super::dict::Dict;
use super::entry::Entry;
use super::layout::Layout;
use super::memory::Memory;
use super::object::{HEAD, Object};
use super::table::Table;

/// Elements of a large value that are looked at.
const ELEMENTS: u64 = 8;
/// Places of a table that are looked at for them.
const PLACES: u64 = 128;
/// Bytes of an entry of a hash table, and of one without a value.
const ENTRY: u64 = 24;
const VALUELESS: u64 = 16;
/// Bytes of the head of a list.
const QUICKLIST: u64 = 40;
/// Bytes that the last part of a stream usually has from the start: `STREAM_LISTPACK_MAX_PRE_ALLOCATE`.
const STREAM_AHEAD: u64 = 4_096;
/// Bytes of the head of a hash whose field names are elsewhere, and the most values that it has.
const TEMPLATE_ARRAY: u64 = 16;
const MOST_VALUES: u64 = 1 << 32;
/// The word in the head of a list, a stream, an array, a hash table and the list of a sorted set in which the server
/// counts what they take.
const QUICKLIST_SUM: u64 = 4;
const STREAM_SUM: u64 = 9;
const ARRAY_SUM: u64 = 5;
const DICT_SUM: u64 = 7;
pub const SORTED_SUM: u64 = 4;
/// The most bytes of a packed value.
const PACKED: u64 = 1 << 32;
/// The most levels of a radix tree to descend.
const DEPTH: usize = 128;
/// What `MEMORY USAGE` counts for a node of a radix tree: 4 bytes and 30 pointers.
const RAX_NODE: u64 = 4 + 8 * 30;

/// What sizes depend on.
#[derive(Clone, Copy)]
pub struct Sizes<'a> {
    /// The memory.
    pub memory: &'a Memory,
    /// How it is laid out.
    pub layout: &'static Layout,
    /// What rounds sizes.
    pub allocator: Allocator,
}

impl Sizes<'_> {
    /// Returns how many bytes a key takes with its value. Returns `None` if what it points to is inconsistent.
    pub fn key(&self, entry: &Entry, object: &Object) -> Option<u64> {
        let entry = match object.key {
            0 if entry.is_embedding => self.entry(entry),
            0 => self.string(entry.key)? + self.entry(entry),
            _ => 0,
        };
        let own = match self.layout {
            layout if layout.is_as_asked => object.allocated(self.memory)?,
            layout if object.is_inner() || layout.is_whole => self.allocator.rounded(object.allocated(self.memory)?),
            _ => HEAD,
        };
        Some(entry + own + self.content(object)?)
    }

    /// Returns the size of an entry.
    pub fn entry(&self, entry: &Entry) -> u64 {
        match entry {
            _ if !self.layout.has_forms => ENTRY,
            Entry { is_embedding: true, allocated, .. } => self.allocator.rounded(*allocated),
            Entry { allocated, .. } => *allocated,
        }
    }

    fn content(&self, object: &Object) -> Option<u64> {
        let at = object.content;
        Some(match object.names()? {
            (_, "int" | "embstr") => 0,
            (_, "quicklist") if self.layout.is_counted => self.counted(at, QUICKLIST_SUM)?,
            (_, "stream") if self.layout.is_counted => self.counted(at, STREAM_SUM)?,
            (_, "sliced-array") => self.counted(at, ARRAY_SUM)?,
            (_, "hashtable") if self.layout.is_counted => self.dict(at)? + self.counted(at, DICT_SUM)?,
            (_, "raw") => self.string(at)?,
            (_, "ziplist" | "listpack" | "template-listpack") => self.packed(at)?,
            (_, "template-array") => self.templated(at)?,
            (_, "listpackex") => {
                let before = self.layout.listpack_at;
                let packed = self.packed(self.memory.u64(at + before)?)?;
                self.rounded(before + 8) + packed
            }
            (_, "intset") => {
                let (width, length) = (self.memory.u32(at)?, self.memory.u32(at + 4)?);
                let bytes = 8 + u64::from(width) * u64::from(length);
                [2, 4, 8].contains(&width).then_some(self.rounded(bytes))?
            }
            (_, "quicklist") => self.quicklist(at)?,
            ("set", "hashtable") => self.table(at, |entry| Some(self.entry(entry) + self.string(entry.key)?))?,
            (_, "hashtable") => self.table(at, |entry| self.field(entry))?,
            (_, "skiplist") => self.sorted_set(at)?,
            (_, "stream") => self.stream(at)?,
            // Only the module knows.
            _ => 0,
        })
    }

    /// Returns how many bytes an allocation of a value counts as.
    fn rounded(&self, bytes: u64) -> u64 {
        match self.layout.is_counted {
            true => bytes,
            false => self.allocator.rounded(bytes),
        }
    }

    /// Returns the word of a value in which the server counts what its parts take.
    pub fn counted(&self, address: u64, word: u64) -> Option<u64> {
        let sum = self.memory.u64(address.checked_add(8 * word)?)?;
        (sum < 1 << 48).then_some(sum)
    }

    /// Returns the size of a hash table without what is in it.
    pub fn dict(&self, address: u64) -> Option<u64> {
        let dict = Dict::read(self.memory, self.layout, address)?;
        let entry = if self.layout.is_as_asked { VALUELESS } else { ENTRY };
        Some(self.without_entries(&dict) + entry * dict.used())
    }

    fn without_entries(&self, dict: &Dict) -> u64 {
        let places: u64 = dict.tables.iter().map(Table::bytes).sum();
        self.layout.table_bytes() + places
    }

    /// Returns the size of a string.
    pub fn string(&self, address: u64) -> Option<u64> {
        let asked = self.memory.string(address)?.allocated();
        Some(self.rounded(asked))
    }

    /// Returns the size of a ziplist or listpack, which begins with that size and ends with 255.
    fn packed(&self, address: u64) -> Option<u64> {
        let bytes = u64::from(self.memory.u32(address)?);
        let is_sound = (7..PACKED).contains(&bytes) && self.memory.u8(address.checked_add(bytes - 1)?)? == u8::MAX;
        is_sound.then_some(self.rounded(bytes))
    }

    /// Returns the size of a hash that holds only its values. Its field names, which other hashes share, are not
    /// counted.
    fn templated(&self, address: u64) -> Option<u64> {
        let [_, length] = self.memory.words(address)?;
        (length < MOST_VALUES).then_some(())?;
        let mut sum = 0;
        let looked_at = length.min(ELEMENTS);
        let start = fastrand::u64(..length.max(1));
        for value in (0..looked_at).map(|step| (start + step) % length) {
            sum += match self.memory.u64(address + TEMPLATE_ARRAY + 8 * value)? {
                0 => 0,
                value => self.string(value)?,
            };
        }
        Some(TEMPLATE_ARRAY + 8 * length + scaled(sum, looked_at, length))
    }

    fn quicklist(&self, address: u64) -> Option<u64> {
        let [mut node, _, _, length] = self.memory.words(address)?;
        let node_bytes = if self.layout.exponents.is_some() { 40 } else { 32 };
        let mut sum = 0;
        let looked_at = length.min(ELEMENTS);
        for _ in 0..looked_at {
            let [_, next, _] = self.memory.words(node)?;
            let bytes = u64::from(self.memory.u32(node + 24)?);
            sum += node_bytes + self.allocator.rounded(bytes);
            node = next;
        }
        Some(QUICKLIST + scaled(sum, looked_at, length))
    }

    /// Returns the size of a hash table whose entries take `bytes`.
    pub fn table(&self, address: u64, bytes: impl Fn(&Entry) -> Option<u64>) -> Option<u64> {
        let dict = Dict::read(self.memory, self.layout, address)?;
        let size = dict.size();
        let (mut sum, mut looked_at) = (0, 0);
        let start = fastrand::u64(..size.max(1));
        for place in (0..size.min(PLACES)).map(|step| (start + step) % size) {
            let (table, place) = dict.place(place);
            for entry in table.chain(self.memory, place)? {
                sum += bytes(&entry)?;
                looked_at += 1;
            }
            if looked_at >= ELEMENTS {
                break;
            }
        }
        Some(self.without_entries(&dict) + scaled(sum, looked_at, dict.used()))
    }

    fn stream(&self, address: u64) -> Option<u64> {
        let own = if self.layout.exponents.is_some() { 80 } else { 40 };
        let at = self.layout.buckets.map_or(0, |buckets| buckets.stream);
        let rax = self.memory.u64(address + at)?;
        let [head, elements, nodes, bytes] = self.memory.words(rax)?;
        (elements < 1 << 40 && nodes < 1 << 40).then_some(())?;
        let tree = match self.layout.buckets {
            Some(_) => (bytes < 1 << 48).then_some(bytes)?,
            None => 16 * elements + RAX_NODE * nodes,
        };
        let full = match elements {
            0 | 1 => 0,
            _ => (elements - 1) * self.packed(self.leaf(head, false)?)?,
        };
        let last = match elements {
            0 => 0,
            _ => {
                let part = self.leaf(head, true)?;
                // A part that was read from a file, or is full, has none.
                let is_ahead = self.layout.is_ahead && self.allocator.may_be_page(self.memory, part)?;
                let ahead = if is_ahead { STREAM_AHEAD } else { 0 };
                self.packed(part)?.max(self.allocator.rounded(ahead))
            }
        };
        Some(own + tree + full + last)
    }

    /// Returns the first or last value of a radix tree.
    fn leaf(&self, mut node: u64, last: bool) -> Option<u64> {
        for _ in 0..DEPTH {
            let head = self.memory.u32(node)?;
            let (is_key, is_null, is_compressed) = (head & 1 != 0, head & 2 != 0, head & 4 != 0);
            let size = u64::from(head >> 3);
            let pointers = node + (4 + size).next_multiple_of(8);
            if size == 0 {
                return (is_key && !is_null).then_some(self.memory.u64(pointers)?);
            }
            let child = if last && !is_compressed { size - 1 } else { 0 };
            node = self.memory.u64(pointers + 8 * child)?;
        }
        None
    }
}

/// Estimates what all take from what some take.
fn scaled(sum: u64, of: u64, all: u64) -> u64 {
    (sum as f64 / of.max(1) as f64 * all as f64) as u64
}
