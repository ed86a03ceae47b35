//! What a key is: its type, its encoding, and how much memory it takes, as `MEMORY USAGE` counts it.
//!
//! Of a value of many allocations a few elements are looked at, and taken for the mean of all.

use super::allocator::Allocator;
use super::dict::{Dict, Entry};
use super::layout::Layout;
use super::memory::Memory;

/// Elements of a large value that are looked at.
const ELEMENTS: u64 = 8;
/// Places of a table that are looked at for them.
const PLACES: u64 = 128;
/// Bytes of an entry of a hash table, and of an object's head.
const ENTRY: u64 = 24;
const OBJECT: u64 = 16;
/// Bytes before the pointer to a listpack whose fields expire: `listpackEx`.
const LISTPACK_AT: u64 = 24;
/// Bytes of the head of a list.
const QUICKLIST: u64 = 40;
/// Bytes that the last part of a stream mostly has from the beginning: `STREAM_LISTPACK_MAX_PRE_ALLOCATE`.
const STREAM_AHEAD: u64 = 4_096;
/// Most bytes of a packed value.
const PACKED: u64 = 1 << 32;
/// Most levels of a radix tree that are gone down.
const DEPTH: usize = 128;
/// Levels of a skip list: each is reached by a quarter of those that reach the one below.
const LEVELS: u32 = 32;
/// What `MEMORY USAGE` counts for a node of a radix tree: 4 bytes and 30 pointers.
const RAX_NODE: u64 = 4 + 8 * 30;

/// The types by their numbers.
const TYPES: [&str; 7] = ["string", "list", "set", "zset", "hash", "module", "stream"];
/// The encodings by theirs. What is empty is not used any more.
const ENCODINGS: [&str; 13] = [
    "raw",
    "int",
    "hashtable",
    "",
    "",
    "ziplist",
    "intset",
    "skiplist",
    "embstr",
    "quicklist",
    "stream",
    "listpack",
    "listpackex",
];

/// The head of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    kind: u8,
    encoding: u8,
    /// When it was used, seconds without their upper bits; or its counter, in the lower 8 bits.
    pub lru: u32,
    content: u64,
}

/// What sizes depend on.
#[derive(Clone, Copy)]
pub struct Sizes<'a> {
    /// The memory.
    pub memory: &'a Memory,
    /// How it is laid out.
    pub layout: &'static Layout,
    /// Who rounds.
    pub allocator: Allocator,
}

impl Object {
    /// Reads the head of a value. `None` where there is none.
    pub fn read(memory: &Memory, address: u64) -> Option<Self> {
        let [head, content] = memory.words(address)?;
        let object = Self {
            kind: (head & 15) as u8,
            encoding: (head >> 4 & 15) as u8,
            lru: (head as u32) >> 8,
            content,
        };
        let is_sound = (head >> 32) as i32 > 0 && object.names().is_some();
        is_sound.then_some(object)
    }

    /// Returns whether this is still the same value: it may have been used.
    pub fn is(&self, other: &Self) -> bool {
        Self {
            lru: other.lru,
            ..*self
        } == *other
    }

    /// Returns the names of its type and encoding.
    pub fn names(&self) -> Option<(&'static str, &'static str)> {
        let kind = *TYPES.get(usize::from(self.kind))?;
        let encoding = *ENCODINGS.get(usize::from(self.encoding))?;
        let encodings: &[&str] = match kind {
            "string" => &["raw", "int", "embstr"],
            "list" => &["quicklist", "ziplist", "listpack"],
            "set" => &["hashtable", "intset", "listpack"],
            "zset" => &["skiplist", "ziplist", "listpack"],
            "hash" => &["hashtable", "ziplist", "listpack", "listpackex"],
            "stream" => &["stream"],
            _ => &ENCODINGS,
        };
        encodings.contains(&encoding).then_some((kind, encoding))
    }
}

impl Sizes<'_> {
    /// Returns how many bytes a key takes with its value. `None` where what it points to is not consistent.
    pub fn key(&self, entry: &Entry, object: &Object) -> Option<u64> {
        let key = if entry.is_embedding {
            0
        } else {
            self.string(entry.key)?
        };
        Some(key + self.entry(entry) + OBJECT + self.content(entry.value, object)?)
    }

    fn entry(&self, entry: &Entry) -> u64 {
        match entry {
            _ if !self.layout.is_exact => ENTRY,
            Entry {
                is_embedding: true,
                allocated,
                ..
            } => self.allocator.rounded(*allocated),
            Entry { allocated, .. } => *allocated,
        }
    }

    fn content(&self, address: u64, object: &Object) -> Option<u64> {
        let at = object.content;
        Some(match object.names()? {
            (_, "int") => 0,
            // It lies behind its object, in the same allocation.
            (_, "embstr") => {
                let text = self.memory.string(at)?;
                let is_behind = at == address + OBJECT + 3;
                is_behind.then_some(self.allocator.rounded(OBJECT + text.allocated()) - OBJECT)?
            }
            (_, "raw") => self.string(at)?,
            (_, "ziplist" | "listpack") => self.packed(at)?,
            (_, "listpackex") => {
                let packed = self.packed(self.memory.u64(at + LISTPACK_AT)?)?;
                self.allocator.rounded(LISTPACK_AT + 8) + packed
            }
            (_, "intset") => {
                let (width, length) = (self.memory.u32(at)?, self.memory.u32(at + 4)?);
                let bytes = 8 + u64::from(width) * u64::from(length);
                [2, 4, 8]
                    .contains(&width)
                    .then_some(self.allocator.rounded(bytes))?
            }
            (_, "quicklist") => self.quicklist(at)?,
            ("set", "hashtable") => self.table(at, |entry| self.string(entry.key))?,
            (_, "hashtable") => self.table(at, |entry| {
                Some(self.field(entry.key)? + self.string(entry.value)?)
            })?,
            (_, "skiplist") => self.sorted_set(at)?,
            (_, "stream") => self.stream(at)?,
            // Only the module knows.
            _ => 0,
        })
    }

    fn string(&self, address: u64) -> Option<u64> {
        let asked = self.memory.string(address)?.allocated();
        Some(if self.layout.is_exact {
            asked
        } else {
            self.allocator.rounded(asked)
        })
    }

    /// Returns the size of the name of a field of a hash.
    fn field(&self, address: u64) -> Option<u64> {
        if !self.layout.has_fields {
            return self.string(address);
        }
        Some(self.allocator.rounded(self.memory.field(address)?))
    }

    /// Returns the size of a ziplist or listpack, which begins with it.
    fn packed(&self, address: u64) -> Option<u64> {
        let bytes = u64::from(self.memory.u32(address)?);
        (7..PACKED)
            .contains(&bytes)
            .then_some(self.allocator.rounded(bytes))
    }

    fn quicklist(&self, address: u64) -> Option<u64> {
        let [mut node, _, _, length] = self.memory.words(address)?;
        let node_bytes = if self.layout.has_exponents { 40 } else { 32 };
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

    /// Returns the size of a hash table whose entries take so much beside themselves.
    fn table(&self, address: u64, bytes: impl Fn(&Entry) -> Option<u64>) -> Option<u64> {
        let dict = Dict::read(self.memory, self.layout, address)?;
        let size = dict.size();
        let (mut sum, mut looked_at) = (0, 0);
        let start = fastrand::u64(..size.max(1));
        for place in (0..size.min(PLACES)).map(|step| (start + step) % size) {
            let (table, place) = dict.place(place);
            for entry in table.chain(self.memory, place)? {
                sum += self.entry(&entry) + bytes(&entry)?;
                looked_at += 1;
            }
            if looked_at >= ELEMENTS {
                break;
            }
        }
        Some(self.layout.dict_bytes() + 8 * size + scaled(sum, looked_at, dict.used()))
    }

    fn sorted_set(&self, address: u64) -> Option<u64> {
        let [dict, list] = self.memory.words(address)?;
        let [_, _, length] = self.memory.words(list)?;
        let node = |levels: u32| self.allocator.rounded(24 + 16 * u64::from(levels)) as f64;
        let nodes = (1..LEVELS).map(|level| 0.75 * 0.25_f64.powi(level as i32 - 1) * node(level));
        let nodes = (nodes.sum::<f64>() * length as f64) as u64;
        let table = self.table(dict, |entry| self.string(entry.key))?;
        Some(OBJECT + 32 + node(LEVELS) as u64 + table + nodes)
    }

    fn stream(&self, address: u64) -> Option<u64> {
        let own = if self.layout.has_exponents { 80 } else { 40 };
        let rax = self.memory.u64(address)?;
        let [head, elements, nodes] = self.memory.words(rax)?;
        (elements < 1 << 40 && nodes < 1 << 40).then_some(())?;
        let tree = 16 * elements + RAX_NODE * nodes;
        let full = match elements {
            0 | 1 => 0,
            _ => (elements - 1) * self.packed(self.leaf(head, false)?)?,
        };
        let last = match elements {
            0 => 0,
            _ => {
                let part = self.leaf(head, true)?;
                // One that was read from a file, or is full, has none.
                let is_ahead =
                    self.layout.is_ahead && self.allocator.may_be_page(self.memory, part)?;
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

/// Returns what all take, by what some do.
fn scaled(sum: u64, of: u64, all: u64) -> u64 {
    (sum as f64 / of.max(1) as f64 * all as f64) as u64
}
