//! How much memory a key takes with its value, as `MEMORY USAGE` counts it.
//!
//! If a value has many allocations, a few elements are looked at, and their mean stands for all.

use super::allocator::Allocator;
use super::dict::{Dict, DictEntry, Table};
use super::layout::{Buckets, KeyspaceLayout};
use super::memory::Memory;
use super::object::{HEAD, Object};

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
const SORTED_SUM: u64 = 4;
/// The most bytes of a packed value.
const PACKED: u64 = 1 << 32;
/// The most levels of a radix tree to descend.
const DEPTH: usize = 128;
/// What `MEMORY USAGE` counts for a node of a radix tree: 4 bytes and 30 pointers.
const RAX_NODE: u64 = 4 + 8 * 30;
/// Bytes of the two pointers of a sorted set.
const SORTED: u64 = 16;
/// Levels of a skip list: a quarter of the nodes at each level reach the next.
const LEVELS: u32 = 32;
/// The flag of a field's name whose value belongs to a module.
const REFERENCE: u8 = 32;

/// What sizes depend on.
#[derive(Clone, Copy)]
pub struct Sizes<'a> {
    pub memory: &'a Memory,
    pub layout: &'static KeyspaceLayout,
    pub allocator: Allocator,
}

impl Sizes<'_> {
    /// Returns how many bytes a key takes with its value. Returns `None` if what it points to is inconsistent.
    pub fn key(&self, entry: &DictEntry, object: &Object) -> Option<u64> {
        let entry_bytes = match object.key {
            0 if entry.is_embedding => self.entry(entry),
            0 => self.string(entry.key)? + self.entry(entry),
            _ => 0,
        };
        let head_bytes = match self.layout {
            layout if layout.is_as_asked => object.allocated(self.memory)?,
            layout if object.is_inner() || layout.is_whole => self.allocator.rounded(object.allocated(self.memory)?),
            _ => HEAD,
        };
        Some(entry_bytes + head_bytes + self.content(object)?)
    }

    pub fn entry(&self, entry: &DictEntry) -> u64 {
        match entry {
            _ if !self.layout.has_forms => ENTRY,
            DictEntry { is_embedding: true, allocated, .. } => self.allocator.rounded(*allocated),
            DictEntry { allocated, .. } => *allocated,
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
                self.rounded(before + 8) + self.packed(self.memory.u64(at + before)?)?
            }
            (_, "intset") => {
                let (width, length) = (self.memory.u32(at)?, self.memory.u32(at + 4)?);
                [2, 4, 8].contains(&width).then_some(())?;
                self.rounded(8 + u64::from(width) * u64::from(length))
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
        if self.layout.is_counted { bytes } else { self.allocator.rounded(bytes) }
    }

    /// Returns the word of a value in which the server counts what its parts take.
    fn counted(&self, address: u64, word: u64) -> Option<u64> {
        let sum = self.memory.u64(address.checked_add(8 * word)?)?;
        (sum < 1 << 48).then_some(sum)
    }

    /// Returns the size of a hash table without what is in it.
    fn dict(&self, address: u64) -> Option<u64> {
        let dict = Dict::read(self.memory, self.layout, address)?;
        let entry = if self.layout.is_as_asked { VALUELESS } else { ENTRY };
        Some(self.without_entries(&dict) + entry * dict.used())
    }

    fn without_entries(&self, dict: &Dict) -> u64 {
        self.layout.table_bytes() + dict.tables.iter().map(Table::bytes).sum::<u64>()
    }

    fn string(&self, address: u64) -> Option<u64> {
        let bytes = self.memory.string(address)?.allocated();
        // Since Valkey 8.0 without what the server writes before it.
        let is_bare = self.layout.has_bare_strings || self.layout.has_forms && self.allocator == Allocator::Asked;
        Some(if is_bare { bytes } else { self.rounded(bytes) })
    }

    /// Returns the size of a ziplist or listpack, which begins with that size and ends with 255.
    fn packed(&self, address: u64) -> Option<u64> {
        let bytes = u64::from(self.memory.u32(address)?);
        ((7..PACKED).contains(&bytes) && self.memory.u8(address.checked_add(bytes - 1)?)? == u8::MAX)
            .then(|| self.rounded(bytes))
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
            sum += node_bytes + self.allocator.rounded(self.memory.u32(node + 24)?.into());
            node = self.memory.u64(node + 8)?;
        }
        Some(QUICKLIST + scaled(sum, looked_at, length))
    }

    /// Returns the size of a hash table whose entries take `bytes`.
    fn table(&self, address: u64, bytes: impl Fn(&DictEntry) -> Option<u64>) -> Option<u64> {
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
        let stream = if self.layout.exponents.is_some() { 80 } else { 40 };
        let rax = self.memory.u64(address + self.layout.buckets.map_or(0, |buckets| buckets.stream))?;
        let [head, elements, nodes, bytes] = self.memory.words(rax)?;
        (elements < 1 << 40 && nodes < 1 << 40).then_some(())?;
        let tree = match self.layout.buckets {
            Some(_) => (bytes < 1 << 48).then_some(bytes)?,
            None => 16 * elements + RAX_NODE * nodes,
        };
        if elements == 0 {
            return Some(stream + tree);
        }
        let full = if elements == 1 { 0 } else { (elements - 1) * self.packed(self.leaf(head, false)?)? };
        let part = self.leaf(head, true)?;
        // A part that was read from a file, or is full, has none.
        let is_ahead = self.layout.is_ahead && self.allocator.may_have(STREAM_AHEAD, self.memory, part)?;
        let last = self.packed(part)?.max(self.allocator.rounded(if is_ahead { STREAM_AHEAD } else { 0 }));
        Some(stream + tree + full + last)
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

/// The members of sorted sets and the fields of hashes, if they are not packed.
impl Sizes<'_> {
    fn sorted_set(&self, address: u64) -> Option<u64> {
        let [dict, list] = self.memory.words(address)?;
        if self.layout.is_counted {
            return Some(SORTED + self.counted(list, SORTED_SUM)? + self.dict(dict)?);
        }
        if let Some(buckets) = &self.layout.buckets {
            let table = self.table(dict, |entry| self.node(buckets, entry.key))?;
            let head = if buckets.has_members {
                16 + 16 * u64::from(LEVELS)
            } else {
                32 + self.allocator.rounded(24 + 16 * u64::from(LEVELS))
            };
            return Some(SORTED + head + table);
        }
        let [_, _, length] = self.memory.words(list)?;
        let node = |levels: u32| self.allocator.rounded(24 + 16 * u64::from(levels)) as f64;
        let mean_node = (1..LEVELS).map(|level| 0.75 * 0.25_f64.powi(level as i32 - 1) * node(level)).sum::<f64>();
        let table = self.table(dict, |entry| Some(self.layout.member_bytes + self.string(entry.key)?))?;
        Some(SORTED + 32 + node(LEVELS) as u64 + table + (mean_node * length as f64) as u64)
    }

    /// Returns the size of a node of the list of a sorted set of Valkey, with its member.
    fn node(&self, buckets: &Buckets, address: u64) -> Option<u64> {
        let head = if buckets.has_members { 16 } else { 24 };
        // The lowest level has the height instead of a span.
        let height = self.memory.u64(address + head + 8)?;
        (1..=LEVELS.into()).contains(&height).then_some(())?;
        let bytes = head + 16 * height;
        if !buckets.has_members {
            return Some(self.allocator.rounded(bytes) + self.string(self.memory.u64(address)?)?);
        }
        let header = u64::from(self.memory.u8(address + bytes)?);
        let member = self.memory.string(address + bytes + 1 + header)?;
        (member.header == header).then_some(())?;
        Some(self.allocator.rounded(bytes + 1 + header + member.length + 1))
    }

    /// Returns the size of a field of a hash, with its value.
    fn field(&self, entry: &DictEntry) -> Option<u64> {
        if let Some(buckets) = &self.layout.buckets {
            return self.pair(buckets, entry.key);
        }
        let name = if self.layout.has_fields {
            self.allocator.rounded(self.memory.field(entry.key)?)
        } else {
            self.string(entry.key)?
        };
        Some(self.entry(entry) + name + self.string(entry.value)?)
    }

    /// Returns the size of a field of a hash of Valkey, which has both name and value.
    fn pair(&self, buckets: &Buckets, address: u64) -> Option<u64> {
        let field = self.memory.string(address)?;
        // The shortest have no flags.
        let flags = if field.header == 1 { 0 } else { self.memory.u8(address.checked_sub(1)?)? };
        // A module's own value is not known.
        (flags & REFERENCE == 0).then_some(())?;
        let [expiring, elsewhere] = buckets.field;
        let expires = if flags & expiring == 0 { 0 } else { 8 };
        let name = field.header + field.length + 1 + expires;
        if flags & elsewhere == 0 {
            return Some(name + self.memory.string(address + field.length + 4)?.allocated());
        }
        let value = self.memory.u64(address.checked_sub(field.header + 8)?)?;
        Some(self.allocator.rounded(name + 8) + self.string(value)?)
    }
}
